#include "linear.h"

#include <cstring>

namespace transduce {
namespace {

// Distance in bytes between the weights in use and those being prefetched if a panel is read once, and bytes of a cache
// line.
constexpr size_t PREFETCH_BYTES = 4096, LINE = 64;
// Inputs that all rows are multiplied with before the next inputs, for float weights. 128 inputs of a panel are 32 kB.
// If larger, they are evicted from the L1 cache.
constexpr int FLOAT_DEPTH_BLOCK = 128;
// Most bytes of the next product that a waiting thread prefetches.
constexpr size_t MAX_NEXT_BYTES = 131072;
constexpr float MAX_SYMMETRIC = 127, MAX_NON_NEGATIVE = 255;
// Rough rates of one thread: bytes read per nanosecond, and multiply-adds per nanosecond by kind of instruction.
constexpr int64_t BYTES_PER_NS = 28, MATRIX_PRODUCTS_PER_NS = 1200, INT8_PRODUCTS_PER_NS = 300,
                  FLOAT_PRODUCTS_PER_NS = 70;

// uint8 by int8: an instruction multiplies four inputs in each lane.
struct Int8 {
    using Input = uint8_t;
    using Sum = __m512i;
    static constexpr int DEPTH = 4;
    static constexpr bool IS_GROUPED = true;
    static Sum start(const int32_t* from) { return _mm512_loadu_si512(from); }
    static Sum weights(const char* from) { return _mm512_load_si512(from); }
    static Sum spread(const Input* from) {
        int32_t four;
        std::memcpy(&four, from, 4);
        return _mm512_set1_epi32(four);
    }
    static Sum add(Sum sum, Sum input, Sum weights) { return _mm512_dpbusd_epi32(sum, input, weights); }
    static void put(int32_t* to, Sum sum) { _mm512_store_si512(to, sum); }
};

struct Float {
    using Input = float;
    using Sum = __m512;
    static constexpr int DEPTH = 1;
    // Groups have one step. As a constant, this spares the inner loop.
    static constexpr bool IS_GROUPED = false;
    static Sum start(const int32_t* from) { return _mm512_loadu_ps(from); }
    static Sum weights(const char* from) { return _mm512_load_ps(from); }
    static Sum spread(const Input* from) { return _mm512_set1_ps(*from); }
    static Sum add(Sum sum, Sum input, Sum weights) { return _mm512_fmadd_ps(input, weights, sum); }
    static void put(int32_t* to, Sum sum) { _mm512_store_ps(to, sum); }
};

constexpr int VECTORS = PANEL / LANES;

// Packed weights of a panel: `steps` steps, in groups of `group` steps that are stored vector by vector.
struct PanelSteps {
    const char* weights;
    int steps, group;
};

// The initial values of a tile's sums, `stride` numbers from row to row. stride 0: the same for every row.
struct InitialSums {
    const int32_t* sums;
    size_t stride;
};

// Sums of R rows over the steps of a panel. The order of a row's additions does not depend on R. L: prefetch.lines.
template <class Kind, int R, int L>
void tile(const void* values, size_t stride, const PanelSteps& panel, const TilePrefetch& prefetch,
          const InitialSums& initial_sums, int32_t* to) {
    const char* weights = panel.weights;
    const int group = Kind::IS_GROUPED ? panel.group : 1;
    // Bytes from vector to vector of a step, and from the end of a group's first vector to the next group.
    const size_t vector_stride = size_t(group) * LINE, group_gap = (VECTORS - 1) * vector_stride;
    const size_t prefetch_stride = prefetch.stride;
    const char* ahead = prefetch.from;
    auto x = static_cast<const typename Kind::Input*>(values);
    typename Kind::Sum sums[R][VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v)
            sums[r][v] = Kind::start(initial_sums.sums + r * initial_sums.stride + v * LANES);
    }
    for (int step = 0; step < panel.steps; weights += group_gap) {
        for (int last = step + group; step < last; ++step) {
            typename Kind::Sum w[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) w[v] = Kind::weights(weights + v * vector_stride);
            if (L == VECTORS && step == prefetch.turn) ahead = prefetch.then;
#pragma GCC unroll 4
            for (int l = 0; l < L; ++l) _mm_prefetch(ahead + l * LINE, L == VECTORS ? _MM_HINT_T0 : _MM_HINT_T1);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                typename Kind::Sum input = Kind::spread(x + r * stride);
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; ++v) sums[r][v] = Kind::add(sums[r][v], input, w[v]);
            }
            weights += LINE;
            ahead += prefetch_stride;
            x += Kind::DEPTH;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) Kind::put(to + r * PANEL + v * LANES, sums[r][v]);
    }
}

using Tile = void (*)(const void*, size_t, const PanelSteps&, const TilePrefetch&, const InitialSums&, int32_t*);
// `tile` by the number of rows, minus 1.
template <class Kind, int L>
constexpr Tile TILES[] = {tile<Kind, 1, L>, tile<Kind, 2, L>, tile<Kind, 3, L>,
                          tile<Kind, 4, L>, tile<Kind, 5, L>, tile<Kind, 6, L>};

template <class Kind>
Tile tile_of(int rows, int lines) {
    const Tile* const by_lines[] = {TILES<Kind, 0>, TILES<Kind, 1>, TILES<Kind, 2>, nullptr, TILES<Kind, 4>};
    return by_lines[lines][rows - 1];
}

}  // namespace

// Packed order, from the outermost: panels, groups of steps, the four vectors of a panel, steps of a group, 16 columns,
// the DEPTH weights of a step.
template <class Weight>
void Linear::pack(const LinearSource& source) {
    constexpr int depth = sizeof(Weight) == 1 ? 4 : 1;
    auto weights = static_cast<const Weight*>(source.weights);
    size_t down = source.is_transposed ? 1 : outputs_, across = source.is_transposed ? inputs_ : 1;
    auto to = packed_.as<Weight>();
    auto put = [&](int input, int column) {
        for (int i = 0; i < depth; ++i, ++to) {
            *to = column < outputs_ ? weights[(input + i) * down + column * across] : 0;
            if (depth > 1 && range_ == ActivationRange::symmetric) initial_sums_[column] -= 128 * int32_t(*to);
        }
    };
    for (int column = 0; column < num_panels() * PANEL; column += PANEL) {
        for (int begin = 0; begin < inputs_; begin += group_ * depth) {
            for (int vector = 0; vector < PANEL; vector += LANES) {
                for (int step = 0; step < group_; ++step) {
                    for (int lane = 0; lane < LANES; ++lane) put(begin + step * depth, column + vector + lane);
                }
            }
        }
    }
}

Linear::Linear(const LinearSource& source)
    : inputs_(source.inputs), outputs_(source.outputs), is_int8_(source.is_int8), range_(source.range) {
    // The order that tile registers read, if they can be used.
    group_ = is_int8_ && inputs_ % MATRIX_DEPTH == 0 ? MATRIX_DEPTH / 4 : 1;
    packed_ = Buffer(num_panels() * panel_bytes());
    size_t padded = size_t(num_panels()) * PANEL;
    columns_ = Buffer(3 * padded * 4);
    scales_ = columns_.as<float>();
    bias_ = scales_ + padded;
    initial_sums_ = reinterpret_cast<int32_t*>(bias_ + padded);
    if (source.bias) std::copy(source.bias, source.bias + outputs_, bias_);
    if (!is_int8_) {
        pack<float>(source);
        return;
    }
    pack<int8_t>(source);
    float levels = range_ == ActivationRange::symmetric ? MAX_SYMMETRIC : MAX_NON_NEGATIVE;
    for (int column = 0; column < outputs_; ++column) scales_[column] = source.scales[column] / levels;
}

void Linear::set_next(const Linear& next) {
    // At most half of the weights: other threads read the other half.
    size_t bytes = std::min(MAX_NEXT_BYTES, next.panel_bytes() * next.num_panels() / 2);
    next_ = {next.panel(0), next.panel(next.num_panels() - 1), uint32_t(next.panel_bytes()), uint32_t(bytes)};
}

int64_t Linear::nanoseconds(int64_t n) const {
    int64_t products = n * inputs_ * outputs_;
    int64_t bytes = int64_t(num_panels()) * panel_bytes();
    int64_t rate = uses_matrix_tiles(n) ? MATRIX_PRODUCTS_PER_NS
                   : is_int8_           ? INT8_PRODUCTS_PER_NS
                                        : FLOAT_PRODUCTS_PER_NS;
    return std::max(products / rate, n ? bytes / BYTES_PER_NS : 0);
}

TilePrefetch Linear::prefetch(int index, const InputRun& run, const char* next, int tile, int tiles) const {
    // One tile reads the panel once, in order, so it prefetches the weights that it soon uses itself.
    if (tiles == 1) {
        int turn = int((panel_bytes() - std::min(panel_bytes(), PREFETCH_BYTES)) / STEP_BYTES);
        return {panel(index) + PREFETCH_BYTES, VECTORS, VECTORS * LINE, next ? turn : -1, next};
    }
    int lines = tiles < 4 ? 2 : 1;
    if (!is_int8_) {
        // The next run is prefetched in even parts. A faster prefetch would evict weights of this run.
        size_t bytes = size_t(run.count) * STEP_BYTES, vector_stride = (STEP_BYTES + tiles - 1) / tiles;
        const char* from = run.begin + run.count < inputs_ ? panel(index) + run.begin * STEP_BYTES + bytes : next;
        return from ? TilePrefetch{from + size_t(tile) * run.count * vector_stride, lines, vector_stride}
                    : TilePrefetch{};
    }
    if (!next || tile >= VECTORS / lines) return {};
    return {next + panel_bytes() / VECTORS * lines * tile, lines, lines * LINE};
}

int Linear::depth_block(int tiles) const { return is_int8_ || tiles == 1 ? inputs_ : FLOAT_DEPTH_BLOCK; }

void Linear::sums(const Activations& x, int64_t begin, int count, int index, const InputRun& run,
                  const TilePrefetch& prefetch, void* to) const {
    auto out = static_cast<int32_t*>(to);
    InitialSums initial_sums = run.begin ? InitialSums{out, PANEL} : InitialSums{initial_sums_ + index * PANEL, 0};
    if (is_int8_) {
        const void* rows = static_cast<const uint8_t*>(x.values) + begin * x.stride;
        tile_of<Int8>(count, prefetch.lines)(rows, x.stride, {panel(index), inputs_ / 4, group_}, prefetch,
                                             initial_sums, out);
    } else {
        const void* rows = static_cast<const float*>(x.values) + begin * x.stride + run.begin;
        const char* weights = panel(index) + run.begin * STEP_BYTES;
        tile_of<Float>(count, prefetch.lines)(rows, x.stride, {weights, run.count, 1}, prefetch, initial_sums, out);
    }
}

}  // namespace transduce
