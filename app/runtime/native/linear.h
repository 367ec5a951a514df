// x W + b with W packed for the processor: int8 by uint8 with exact sums, or float.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "matrix_tiles.h"
#include "memory.h"
#include "simd.h"
#include "thread_pool.h"
#include "tile_products.h"

namespace transduce {

// Columns of W that are multiplied together: one panel of packed memory, four registers.
constexpr int PANEL = 64;
// Rows of a register tile: 6 x 4 sums leave room for four weights and an input.
constexpr int TILE_ROWS = 6;
// Bytes of packed weights that one step over four eight-bit inputs, or one float, reads.
constexpr size_t STEP_BYTES = PANEL * 4;
// Rows that are taken together by one chunk, a multiple of TILE_ROWS and of MATRIX_ROWS.
constexpr int BLOCK_ROWS = 192;
// Inputs that a group of tiles is multiplied with before the next: its rows stay in the nearest cache meanwhile.
constexpr int DEPTH_BLOCK = 512;
// With fewer rows than these, vector instructions are as fast as tile registers.
constexpr int64_t MIN_MATRIX_ROWS = 5;

// How activations stand in eight bits: around 128, or from 0 where none is negative.
enum class ActivationRange { symmetric, non_negative };

// Rows to multiply, `stride` numbers from row to row. int8 weights: uint8 (rows, inputs) and the rows' magnitudes;
// float weights: float.
struct Activations {
    const void* values;
    size_t stride;
    const float* absmax;
};

// Inputs [begin, begin + count) of a panel.
struct InputRun {
    int begin, count;
};

// Memory that a tile asks for on its way: `lines` cache lines a step, 0 where nothing is wanted, from `from` on, `apart`
// bytes from step to step, and from step `turn` on so from `then` on.
struct TilePrefetch {
    const char* from = nullptr;
    int lines = 0;
    size_t stride = 0;
    int turn = -1;
    const char* then = nullptr;
};

// What a Linear is made of, as the graph holds it. Weights row-major: (inputs, outputs), or (outputs, inputs)
// where `is_transposed`. scales, bias: (outputs,) or nullptr.
struct LinearSource {
    const void* weights;
    bool is_int8;
    bool is_transposed;
    int inputs, outputs;
    const float* scales;
    const float* bias;
    ActivationRange range;
};

// Scale and bias of 16 columns.
struct Epilogue {
    bool is_int8;
    __m512 scale, bias;

    // One row's products. sums: 16 of that row, int32 or float.
    __m512 operator()(const int32_t* sums, float absmax) const {
        if (!is_int8) return _mm512_add_ps(load16(reinterpret_cast<const float*>(sums)), bias);
        return of_int8(_mm512_loadu_si512(sums), absmax);
    }
    __m512 of_int8(__m512i sums, float absmax) const {
        __m512 whole = _mm512_cvtepi32_ps(sums);
        return _mm512_fmadd_ps(_mm512_mul_ps(whole, _mm512_set1_ps(absmax)), scale, bias);
    }
};

class Linear {
public:
    Linear() = default;
    // Packs the weights. inputs must be a multiple of 16.
    explicit Linear(const LinearSource& source);

    int inputs() const { return inputs_; }
    int outputs() const { return outputs_; }
    bool is_int8() const { return is_int8_; }
    ActivationRange range() const { return range_; }
    int num_panels() const { return (outputs_ + PANEL - 1) / PANEL; }
    size_t panel_bytes() const { return size_t(inputs_) * PANEL * (is_int8_ ? 1 : 4); }
    // Whether n rows are multiplied by tile registers, by `multiply_one_tile` or `multiply_tiles`.
    bool uses_matrix_tiles(int64_t n) const { return group_ > 1 && n >= MIN_MATRIX_ROWS && has_matrix_tiles(); }
    // Rows that one thread takes through a whole block at most, and at least: with fewer all threads share each product
    // instead, so that each reads its part of the weights only. Measured, see docs/native-kernels.md.
    int64_t max_own_rows() const { return uses_matrix_tiles(BLOCK_ROWS) ? 96 : is_int8_ ? 36 : 66; }
    int64_t min_own_rows() const { return uses_matrix_tiles(BLOCK_ROWS) ? 12 : is_int8_ ? 16 : 32; }
    // What n rows cost one thread, roughly.
    int64_t nanoseconds(int64_t n) const;
    // What each of many rows costs.
    int64_t row_nanoseconds() const { return nanoseconds(1024) / 1024; }

    // Inputs that `tiles` tiles of rows are multiplied with before the next.
    int depth_block(int tiles) const;

    // (rows, PANEL) sums of rows [begin, begin + count), count <= TILE_ROWS, with the columns of a panel: int32 or
    // float by the weights' type. Of a run that is not the first, `to` holds those of the inputs before. Runs are of
    // `depth_block` inputs.
    void sums(const Activations& x, int64_t begin, int count, int panel, const InputRun& run, const TilePrefetch& prefetch,
              void* to) const;

    // Multiply some more rows from `begin` on by tile registers. sums: TileGroup::MAX_SUMS, in use until `writer` has
    // finished all that waits.
    template <class Writer>
    void multiply_tiles(const Activations& x, int64_t begin, const RowTiles& rows, int panel, const char* next,
                        int32_t* sums, Writer& writer) const;

    // What the sums of column 16 * vector of the panel on start from.
    __m512i initial_sums(int panel, int vector) const {
        return _mm512_loadu_si512(initial_sums_ + panel * PANEL + vector * LANES);
    }

    // What turns sums of column 16 * vector of the panel on into products.
    Epilogue epilogue(int panel, int vector) const {
        int column = panel * PANEL + vector * LANES;
        __m512 bias = load16(bias_ + column);
        return {is_int8_, is_int8_ ? load16(scales_ + column) : bias, bias};
    }

    // What tile `tile` of `tiles` over a run of a panel asks for: the next panel or run, in parts.
    TilePrefetch prefetch(int panel, const InputRun& run, const char* next, int tile, int tiles) const;

    const char* panel(int index) const { return packed_.as<char>() + index * panel_bytes(); }

    // What is multiplied with after this, to be asked for by threads that wait.
    void set_next(const Linear& next);
    const Prefetch& next() const { return next_; }

private:
    template <class Weight>
    void pack(const LinearSource& source);

    int inputs_ = 0, outputs_ = 0;
    // Steps that stand together in a panel.
    int group_ = 1;
    bool is_int8_ = true;
    ActivationRange range_ = ActivationRange::symmetric;
    Prefetch next_;
    Buffer packed_;
    // Each padded with zeros to whole panels: scale by column with the level in it, bias, and -128 times the sum of
    // a column's weights, which the sums start from.
    Buffer columns_;
    float* scales_ = nullptr;
    float* bias_ = nullptr;
    int32_t* initial_sums_ = nullptr;
};

template <class Writer>
void Linear::multiply_tiles(const Activations& x, int64_t begin, const RowTiles& rows, int panel, const char* next,
                            int32_t* sums, Writer& writer) const {
    constexpr int MOST = TileGroup::MAX_TILES;
    constexpr size_t APART = size_t(MATRIX_DEPTH) * PANEL;
    auto values = static_cast<const uint8_t*>(x.values) + begin * x.stride;
    int groups = (rows.tiles + MOST - 1) / MOST;
    PanelPrefetcher prefetcher(next, panel_bytes(), int64_t(rows.tiles) * inputs_ / MATRIX_DEPTH * TileGroup::VECTORS);
    for (int index = 0; index < groups; ++index) {
        int first = rows.tiles * index / groups, count = rows.tiles * (index + 1) / groups - first;
        TileGroup group{{}, x.stride, sums, rows.height * LANES};
        for (int i = 0; i < count; ++i) group.x[i] = values + rows.first(first + i) * x.stride;
        writer.set_rows(begin, rows, first, count, panel);
        for (int depth = 0; depth < inputs_; depth += DEPTH_BLOCK) {
            DepthRun run{this->panel(panel) + size_t(depth) * PANEL, depth, std::min(DEPTH_BLOCK, inputs_ - depth),
                         APART};
            bool is_last = depth + run.depth == inputs_;
            if (count == 4) multiply_run<4>(group, run, is_last, prefetcher, writer);
            else if (count == 3) multiply_run<3>(group, run, is_last, prefetcher, writer);
            else if (count == 2) multiply_run<2>(group, run, is_last, prefetcher, writer);
            else multiply_run<1>(group, run, is_last, prefetcher, writer);
        }
    }
}

// Gives away what tile registers made: a vector of columns of some tiles of rows waits, and is given away bit by bit.
template <class Store>
class TileSumsWriter {
public:
    TileSumsWriter(const Linear& linear, const float* absmax, Store& store)
        : linear_(linear), absmax_(absmax), store_(store) {
        int turns = std::max(1, std::min(linear.inputs(), DEPTH_BLOCK) / MATRIX_DEPTH - 1);
        rows_per_turn_ = TileGroup::MAX_TILES * MATRIX_ROWS / turns + 1;
    }

    // The next sums are those of tiles [first, first + count) of rows from `begin` on.
    void set_rows(int64_t begin, const RowTiles& rows, int first, int count, int panel) {
        next_rows_.begin = begin + int64_t(first) * rows.height;
        next_rows_.end = begin + std::min<int64_t>(int64_t(first + count) * rows.height, rows.rows);
        // The last tile begins inside the one before: those rows are that one's.
        next_rows_.moved_from = begin + int64_t(rows.tiles - 1) * rows.height;
        next_rows_.moved_by = int64_t(rows.tiles) * rows.height - rows.rows;
        next_rows_.panel = panel;
    }
    // `store_rest` was called. sums: (rows, 16).
    void enqueue(int vector, const int32_t* sums) {
        int column = next_rows_.panel * PANEL + vector * LANES;
        if (column >= linear_.outputs()) return;
        rows_ = next_rows_;
        vector_ = vector;
        row_ = rows_.begin;
        sums_ = sums;
    }
    void store_some() { store_rows(std::min(row_ + rows_per_turn_, rows_.end)); }
    void store_rest() { store_rows(rows_.end); }

private:
    struct Rows {
        int64_t begin, end = 0, moved_from, moved_by;
        int panel;
    };

    void store_rows(int64_t end) {
        if (row_ >= end) return;
        int column = rows_.panel * PANEL + vector_ * LANES;
        auto put = store_(column, first_lanes(linear_.outputs() - column));
        Epilogue epilogue = linear_.epilogue(rows_.panel, vector_);
        __m512i initial_sums = linear_.initial_sums(rows_.panel, vector_);
        for (; row_ < end; ++row_) {
            int64_t place = row_ - rows_.begin + (row_ >= rows_.moved_from ? rows_.moved_by : 0);
            __m512i sums = _mm512_add_epi32(_mm512_load_si512(sums_ + place * LANES), initial_sums);
            put(row_, epilogue.of_int8(sums, absmax_[row_]));
        }
    }

    const Linear& linear_;
    const float* absmax_;
    Store& store_;
    // So many that the most rows of a group are given away in the turns beside a vector's product.
    int64_t rows_per_turn_;
    Rows next_rows_{}, rows_{};
    int vector_ = 0;
    int64_t row_ = 0;
    const int32_t* sums_ = nullptr;
};

// Gives away what tile registers made of one tile of rows: a panel's sums wait, and are given away vector by vector.
template <class Store>
class PanelSumsWriter {
public:
    PanelSumsWriter(const Linear& linear, const float* absmax, Store& store)
        : linear_(linear), absmax_(absmax), store_(store) {}

    // Where the next panel's sums go, (4, MATRIX_ROWS, 16): beside those that wait.
    int32_t* sums() { return sums_[is_second_]; }
    // Those of rows [begin, end) stand there; `store_rest` was called.
    void enqueue(int64_t begin, int64_t end, int panel) {
        buffered_ = sums_[is_second_];
        is_second_ = !is_second_;
        begin_ = begin;
        end_ = end;
        panel_ = panel;
        vector_ = 0;
    }
    void store_some() { if (vector_ < VECTORS) store_vector(vector_++); }
    void store_rest() { while (vector_ < VECTORS) store_vector(vector_++); }

private:
    static constexpr int VECTORS = PANEL / LANES;
    void store_vector(int vector) {
        int column = panel_ * PANEL + vector * LANES;
        if (column >= linear_.outputs()) return;
        auto put = store_(column, first_lanes(linear_.outputs() - column));
        Epilogue epilogue = linear_.epilogue(panel_, vector);
        __m512i initial_sums = linear_.initial_sums(panel_, vector);
        const int32_t* sums = buffered_ + vector * MATRIX_ROWS * LANES;
        for (int64_t row = begin_; row < end_; ++row, sums += LANES) {
            put(row, epilogue.of_int8(_mm512_add_epi32(_mm512_load_si512(sums), initial_sums), absmax_[row]));
        }
    }

    const Linear& linear_;
    const float* absmax_;
    Store& store_;
    int64_t begin_ = 0, end_ = 0;
    int panel_ = 0, vector_ = VECTORS;
    bool is_second_ = false;
    const int32_t* buffered_ = nullptr;
    alignas(64) int32_t sums_[2][MATRIX_ROWS * PANEL];
};

// Whether this thread has taken rows of its own, which blocks inside do not divide again.
inline thread_local bool runs_own_rows = false;

// Rows and panels whose products have been given away.
struct FinishedChunk {
    int64_t begin, end;
    int first, last;
};

// What multiply does at a chunk's end where there is nothing to do.
struct NoCallback {
    void operator()(const FinishedChunk&) const {}
};

// Multiply rows [0, n) and give each row's sixteen products away: store(column, lanes), lanes a mask of those that exist,
// gives what is called as (row, products) for some rows. Split over columns, `panels_per_chunk` panels a chunk, then over blocks
// of rows; after(Multiplied) is called at a chunk's end by the thread that did it. more_nanoseconds: what all of these
// calls cost, roughly.
template <class Store, class After>
void multiply(const Linear& linear, const Activations& x, int64_t n, int panels_per_chunk, Store&& store,
              int64_t more_nanoseconds, After&& after) {
    int num_panels = linear.num_panels();
    int64_t num_row_blocks = (n + BLOCK_ROWS - 1) / BLOCK_ROWS;
    int groups = (num_panels + panels_per_chunk - 1) / panels_per_chunk;
    bool uses_matrix = linear.uses_matrix_tiles(n);
    // Call panel_of(begin, end, panel, next) for rows [begin, end) and each panel of what this thread does; next: what it
    // multiplies with afterwards, most likely, here or in the product that follows, or nullptr. rest(): nothing waits then.
    auto each_panel = [&](Chunks& chunks, auto&& panel_of, auto&& store_rest) {
        bool is_up = chunks.direction() == Direction::up;
        const Prefetch& next_product = linear.next();
        // With fewer rows than tile registers take, whoever shares a product asks for the next one's while he waits only.
        const char* then = !uses_matrix && !runs_own_rows ? nullptr : is_up ? next_product.up : next_product.down;
        for (int chunk; chunks.take(&chunk);) {
            int64_t begin = chunk / groups * int64_t(BLOCK_ROWS), end = std::min<int64_t>(begin + BLOCK_ROWS, n);
            int first = chunk % groups * panels_per_chunk, last = std::min(first + panels_per_chunk, num_panels);
            for (int panel = first; panel < last; ++panel) {
                int next = panel + 1 < last || is_up ? panel + 1 : first - panels_per_chunk;
                bool is_here = next >= 0 && next < num_panels &&
                               (panel + 1 < last || !uses_matrix || chunks.seems_to_have_more());
                panel_of(begin, end, panel, is_here ? linear.panel(next) : then);
            }
            if (std::is_same_v<std::decay_t<After>, NoCallback>) continue;
            store_rest();
            after(FinishedChunk{begin, end, first, last});
        }
        store_rest();
    };
    // Of rows [begin, end); sums_of(row): its (PANEL,) sums.
    auto store_rows = [&](int64_t begin, int64_t end, int panel, auto&& sums_of) {
        for (int vector = 0; vector < PANEL / LANES; ++vector) {
            int column = panel * PANEL + vector * LANES;
            if (column >= linear.outputs()) break;
            auto put = store(column, first_lanes(linear.outputs() - column));
            Epilogue epilogue = linear.epilogue(panel, vector);
            for (int64_t row = begin; row < end; ++row) {
                float absmax = epilogue.is_int8 ? x.absmax[row] : 0;
                put(row, epilogue(sums_of(row) + vector * LANES, absmax));
            }
        }
    };
    auto by_vectors = [&](int64_t begin, int64_t end, int panel, const char* next) {
        int64_t count = end - begin;
        int tiles = int((count + TILE_ROWS - 1) / TILE_ROWS), inputs = linear.inputs();
        int depth_block = linear.depth_block(tiles);
        alignas(64) int32_t sums[BLOCK_ROWS * PANEL];
        for (int depth = 0; depth < inputs; depth += depth_block) {
            InputRun run{depth, std::min(depth_block, inputs - depth)};
            for (int tile = 0; tile < tiles; ++tile) {
                int64_t from = count * tile / tiles, to = count * (tile + 1) / tiles;
                // Sums that are done at once need one place only.
                int32_t* own = sums + (depth_block < inputs ? from * PANEL : 0);
                TilePrefetch prefetch = linear.prefetch(panel, run, next, tile, tiles);
                linear.sums(x, begin + from, int(to - from), panel, run, prefetch, own);
                if (depth + run.count < inputs) continue;
                int64_t first = begin + from;
                store_rows(first, begin + to, panel, [=](int64_t row) { return own + (row - first) * PANEL; });
            }
        }
    };
    auto by_matrix = [&](Chunks& chunks) {
        TileSumsWriter<Store> writer(linear, x.absmax, store);
        PanelSumsWriter<Store> panel_writer(linear, x.absmax, store);
        alignas(64) int32_t sums[TileGroup::MAX_SUMS];
        auto panel_of = [&](int64_t begin, int64_t end, int panel, const char* next) {
            RowTiles rows(end - begin);
            set_up_matrix_tiles(rows.height);
            if (rows.tiles > 1) return linear.multiply_tiles(x, begin, rows, panel, next, sums, writer);
            auto values = static_cast<const uint8_t*>(x.values) + begin * x.stride;
            TilePanel weights{linear.panel(panel), linear.inputs(), next};
            multiply_one_tile(values, x.stride, weights, panel_writer.sums(), panel_writer);
            panel_writer.enqueue(begin, end, panel);
        };
        each_panel(chunks, panel_of, [&] {
            writer.store_rest();
            panel_writer.store_rest();
        });
    };
    auto work = [&](Chunks& chunks) { uses_matrix ? by_matrix(chunks) : each_panel(chunks, by_vectors, [] {}); };
    parallel_chunks(int(groups * num_row_blocks), linear.nanoseconds(n) + more_nanoseconds, work, linear.next());
}

template <class Store>
void multiply(const Linear& linear, const Activations& x, int64_t n, Store&& store) {
    int panels_per_chunk = runs_own_rows ? linear.num_panels() : 1;
    multiply(linear, x, n, panels_per_chunk, store, 0, NoCallback());
}

}  // namespace transduce
