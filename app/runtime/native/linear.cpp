#include "linear.h"

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "hints.h"

namespace transduce {
namespace {

// Distance in bytes between the weights in use and those being prefetched if a panel is read once, and bytes of a cache
// line.
constexpr size_t PREFETCH_BYTES = 4096, LINE = 64;
// Inputs that all rows are multiplied with before the next inputs, for float weights: 128 inputs of a panel, or 512 of
// one vector of columns, are 32 kB. If larger, they are evicted from the L1 cache. If smaller, partial sums are read
// and written too often.
constexpr int FLOAT_DEPTH_BLOCK = NUM_VECTORS == 32 ? 128 : 512;
// The maximum number of bytes that a waiting thread prefetches of the weights of the next product.
constexpr size_t MAX_NEXT_BYTES = 131072;
constexpr float MAX_SYMMETRIC = 127, MAX_NON_NEGATIVE = 255;
// Rough rates of one thread: bytes read per nanosecond, and multiply-adds per nanosecond by kind of instruction.
constexpr int64_t BYTES_PER_NS = 28, MATRIX_PRODUCTS_PER_NS = 1200, INT8_PRODUCTS_PER_NS = NUM_VECTORS == 32 ? 300 : 80,
                  FLOAT_PRODUCTS_PER_NS = NUM_VECTORS == 32 ? 70 : 40;
// Whether a tile has all columns of a panel. Otherwise it computes one vector of columns after another, and the panel
// is packed in that order.
constexpr bool HAS_WHOLE_PANELS = VECTORS_AT_ONCE == VECTORS;
// Bytes of packed weights that a tile reads in a step.
constexpr size_t TILE_BYTES = VECTORS_AT_ONCE * LINE;

// Returns SMALL_PAIRS if all pairs of packed weights are small, else `any`.
Pairs pairs_of(const int8_t* weights, size_t count) {
    if (SMALL_PAIRS == Pairs::any) return Pairs::any;
    int largest = 0;
    for (size_t i = 0; i < count; i += 2) largest = std::max(largest, std::abs(weights[i] + weights[i + 1]));
    return largest <= MAX_SMALL_PAIR ? SMALL_PAIRS : Pairs::any;
}

// A step multiplies four inputs.
template <Pairs PAIRS>
struct Int8 {
    using Input = Quantized;
    using Sum = Integers;
    using Weights = QuantizedWeights;
    static constexpr int DEPTH = INT8_DEPTH;
    static constexpr bool IS_GROUPED = true;
    static Sum start(const int32_t* from) { return load16(from); }
    static Weights weights(const char* from) { return load_weights16(reinterpret_cast<const int8_t*>(from)); }
    static auto spread(const Input* from) { return spread16(from); }
    static Sum add(Sum sum, QuantizedInputs input, Weights weights) {
        return add_products16<PAIRS>(sum, input, weights);
    }
    static void put(int32_t* to, Sum sum) { store16(to, sum); }
};

struct Float {
    using Input = float;
    using Sum = Floats;
    using Weights = Floats;
    static constexpr int DEPTH = 1;
    // Groups have one step if tiles have whole panels. This is a constant, so that the compiler removes the loop over
    // the steps of a group.
    static constexpr bool IS_GROUPED = !HAS_WHOLE_PANELS;
    static Sum start(const int32_t* from) { return load16(reinterpret_cast<const float*>(from)); }
    static Weights weights(const char* from) { return load16(reinterpret_cast<const float*>(from)); }
    static auto spread(const Input* from) { return all16(*from); }
    static Sum add(Sum sum, Floats input, Weights weights) { return fma16(input, weights, sum); }
    static void put(int32_t* to, Sum sum) { store16(reinterpret_cast<float*>(to), sum); }
};

// Packed weights of vectors [first, last) of a panel: `steps` steps, in groups of `group` steps that are stored vector
// by vector.
struct PanelSteps {
    const char* weights;
    int steps, group, first = 0, last = VECTORS;
};

// The initial values of a tile's sums, `stride` numbers from row to row. stride 0: the same for every row.
struct InitialSums {
    const int32_t* sums;
    size_t stride;
};

// Sums of R rows over the steps of a panel. The order of a row's additions does not depend on R. L: prefetch.lines. If
// L is VECTORS, there is a single pass, which prefetches as many bytes as it reads.
template <class Kind, int R, int L>
void tile(const void* values, size_t stride, const PanelSteps& panel, const TilePrefetch& prefetch,
          const InitialSums& initial_sums, int32_t* to) {
    constexpr int V = VECTORS_AT_ONCE, LINES = std::min(L, V);
    constexpr bool IS_SINGLE_PASS = L == VECTORS;
    const int group = Kind::IS_GROUPED ? panel.group : 1;
    // Bytes from vector to vector of a step, and from the end of a group's first vector to the next group.
    const size_t vector_stride = size_t(group) * LINE, group_gap = (VECTORS - 1) * vector_stride;
    const size_t prefetch_stride = prefetch.stride;
    const char* ahead = prefetch.from;
    int turn = prefetch.turn;
    const int last = V == VECTORS ? VECTORS : panel.last;
    for (int first = V == VECTORS ? 0 : panel.first; first < last; first += V, turn -= panel.steps) {
        const char* weights = panel.weights + first * vector_stride;
        auto x = static_cast<const typename Kind::Input*>(values);
        typename Kind::Sum sums[R][V];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                sums[r][v] = Kind::start(initial_sums.sums + r * initial_sums.stride + (first + v) * LANES);
        }
        for (int step = 0; step < panel.steps; weights += group_gap) {
            for (int group_end = step + group; step < group_end; ++step) {
                typename Kind::Weights w[V];
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) w[v] = Kind::weights(weights + v * vector_stride);
                if (IS_SINGLE_PASS && step == turn) ahead = prefetch.next;
#pragma GCC unroll 4
                for (int l = 0; l < LINES; ++l)
                    IS_SINGLE_PASS ? prefetch_l1(ahead + l * LINE) : prefetch_l2(ahead + l * LINE);
#pragma GCC unroll 6
                for (int r = 0; r < R; ++r) {
                    auto input = Kind::spread(x + r * stride);
#pragma GCC unroll 4
                    for (int v = 0; v < V; ++v) sums[r][v] = Kind::add(sums[r][v], input, w[v]);
                    end_row();
                }
                weights += LINE;
                ahead += prefetch_stride;
                x += Kind::DEPTH;
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) Kind::put(to + r * PANEL + (first + v) * LANES, sums[r][v]);
        }
    }
}

using Tile = void (*)(const void*, size_t, const PanelSteps&, const TilePrefetch&, const InitialSums&, int32_t*);
// `tile` by the number of rows, minus 1.
template <class Kind, int L>
constexpr Tile TILES[] = {tile<Kind, 1, L>, tile<Kind, 2, L>, tile<Kind, 3, L>,
                          tile<Kind, 4, L>, tile<Kind, 5, L>, tile<Kind, 6, L>};

template <class Kind>
Tile tile_of(int rows, int lines) {
    constexpr int TWO = std::min(2, VECTORS_AT_ONCE);
    const Tile* const by_lines[] = {TILES<Kind, 0>, TILES<Kind, 1>, TILES<Kind, TWO>, nullptr, TILES<Kind, VECTORS>};
    return by_lines[lines][rows - 1];
}

}  // namespace

// Packed order, from the outermost: panels, groups of steps, the four vectors of a panel, steps of a group, 16
// columns, the weights of a step.
template <class Weight>
void Linear::pack(const LinearSource& source) {
    constexpr bool is_int8 = sizeof(Weight) == 1;
    constexpr int depth = is_int8 ? INT8_DEPTH : 1;
    auto weights = static_cast<const Weight*>(source.weights);
    size_t down = source.is_transposed ? 1 : outputs_, across = source.is_transposed ? inputs_ : 1;
    auto to = packed_.as<Weight>();
    // What is added to a stored input, q - STORED_INPUT_OFFSET, to get q minus its zero point.
    const int32_t offset = STORED_INPUT_OFFSET - (range_ == ActivationRange::symmetric ? 128 : 0);
    auto put = [&](int input, int column) {
        for (int i = 0; i < depth; ++i, ++to) {
            *to = column < outputs_ ? weights[(input + i) * down + column * across] : 0;
            if (is_int8 && offset) initial_sums_[column] += offset * int32_t(*to);
        }
    };
    for (int column = 0; column < num_panels() * PANEL; column += PANEL) {
        for (int begin = 0; begin < inputs_; begin += group_ * depth) {
            for (int vector = 0; vector < PANEL; vector += LANES) {
                int end = std::min(begin + group_ * depth, inputs_);
                for (int input = begin; input < end; input += depth) {
                    for (int lane = 0; lane < LANES; ++lane) put(input, column + vector + lane);
                }
            }
        }
    }
}

Linear::Linear(const LinearSource& source)
    : inputs_(source.inputs), outputs_(source.outputs), is_int8_(source.is_int8), range_(source.range) {
    if (!HAS_WHOLE_PANELS) group_ = is_int8_ ? inputs_ / INT8_DEPTH : FLOAT_DEPTH_BLOCK;
    // The order that tile registers read, if they can be used.
    else group_ = is_int8_ && inputs_ % MATRIX_DEPTH == 0 ? MATRIX_DEPTH / INT8_DEPTH : 1;
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
    pairs_ = pairs_of(packed_.as<int8_t>(), num_panels() * panel_bytes());
    float levels = range_ == ActivationRange::symmetric ? MAX_SYMMETRIC : MAX_NON_NEGATIVE;
    for (int column = 0; column < outputs_; ++column) scales_[column] = source.scales[column] / levels;
}

void Linear::set_next(const Linear& next) {
    // A thread prefetches at most half of the weights: other threads read the other half.
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
    bool is_last = run.begin + run.count == inputs_ && run.last == VECTORS;
    size_t vector_bytes = run.count * LINE;
    size_t bytes = is_int8_ ? panel_bytes() : vector_bytes * (run.last - run.first);
    const char* from = panel(index) + (is_int8_ ? 0 : run.begin * STEP_BYTES + run.first * vector_bytes);
    // One tile reads the panel once, in order, so it prefetches the weights that it soon uses itself.
    if (tiles == 1) {
        int turn = int((bytes - std::min(bytes, PREFETCH_BYTES)) / TILE_BYTES);
        return {from + PREFETCH_BYTES, VECTORS, TILE_BYTES, next && is_last ? turn : -1, next};
    }
    int lines = std::min(tiles < 4 ? 2 : 1, VECTORS_AT_ONCE);
    if (!is_int8_ || !HAS_WHOLE_PANELS) {
        // The next run is prefetched in even parts. A faster prefetch would evict weights of this run.
        size_t stride = (TILE_BYTES + tiles - 1) / tiles, part = bytes / TILE_BYTES * stride;
        const char* ahead = is_last ? next : from + bytes;
        return ahead ? TilePrefetch{ahead + tile * part, lines, stride} : TilePrefetch{};
    }
    if (!next || tile >= VECTORS / lines) return {};
    return {next + panel_bytes() / VECTORS * lines * tile, lines, lines * LINE};
}

int Linear::depth_block(int tiles) const {
    return is_int8_ || (tiles == 1 && HAS_WHOLE_PANELS) ? inputs_ : FLOAT_DEPTH_BLOCK;
}

void Linear::sums(const Activations& x, int64_t begin, int count, int index, const InputRun& run,
                  const TilePrefetch& prefetch, void* to) const {
    auto out = static_cast<int32_t*>(to);
    InitialSums initial_sums = run.begin ? InitialSums{out, PANEL} : InitialSums{initial_sums_ + index * PANEL, 0};
    if (is_int8_) {
        const void* rows = static_cast<const Quantized*>(x.values) + begin * x.stride;
        auto tile = pairs_ == Pairs::any ? tile_of<Int8<Pairs::any>> : tile_of<Int8<SMALL_PAIRS>>;
        tile(count, prefetch.lines)(rows, x.stride, {panel(index), inputs_ / INT8_DEPTH, group_}, prefetch,
                                    initial_sums, out);
    } else {
        const void* rows = static_cast<const float*>(x.values) + begin * x.stride + run.begin;
        const char* weights = panel(index) + run.begin * STEP_BYTES;
        PanelSteps steps{weights, run.count, run.count, run.first, run.last};
        tile_of<Float>(count, prefetch.lines)(rows, x.stride, steps, prefetch, initial_sums, out);
    }
}

}  // namespace transduce
