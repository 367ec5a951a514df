// multiply(): x W + b on all threads. The products go to a function of the caller, 16 columns of a row at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "linear.h"
#include "thread_pool.h"
#include "tile_products.h"

namespace transduce {

template <class Writer>
void Linear::multiply_tiles(const Activations& x, int64_t begin, const RowTiles& rows, int panel, const char* next,
                            int32_t* sums, Writer& writer) const {
    constexpr int MAX_TILES = TileGroup::MAX_TILES;
    constexpr size_t DEPTH_STRIDE = size_t(MATRIX_DEPTH) * PANEL;
    auto values = static_cast<const uint8_t*>(x.values) + begin * x.stride;
    int groups = (rows.tiles + MAX_TILES - 1) / MAX_TILES;
    PanelPrefetcher prefetcher(next, panel_bytes(), int64_t(rows.tiles) * inputs_ / MATRIX_DEPTH * TileGroup::VECTORS);
    for (int index = 0; index < groups; ++index) {
        int first = rows.tiles * index / groups, count = rows.tiles * (index + 1) / groups - first;
        TileGroup group{{}, x.stride, sums, rows.height * LANES};
        for (int i = 0; i < count; ++i) group.x[i] = values + rows.first(first + i) * x.stride;
        writer.set_rows(begin, rows, first, count, panel);
        for (int depth = 0; depth < inputs_; depth += DEPTH_BLOCK) {
            DepthRun run{this->panel(panel) + size_t(depth) * PANEL, depth, std::min(DEPTH_BLOCK, inputs_ - depth),
                         DEPTH_STRIDE};
            bool is_last = depth + run.depth == inputs_;
            if (count == 4) multiply_run<4>(group, run, is_last, prefetcher, writer);
            else if (count == 3) multiply_run<3>(group, run, is_last, prefetcher, writer);
            else if (count == 2) multiply_run<2>(group, run, is_last, prefetcher, writer);
            else multiply_run<1>(group, run, is_last, prefetcher, writer);
        }
    }
}

// Stores the sums of several tiles of rows. One vector of columns is buffered and stored between the tile instructions
// of the next vector.
template <class Store>
class TileSumsWriter {
public:
    TileSumsWriter(const Linear& linear, const float* absmax, Store& store)
        : linear_(linear), absmax_(absmax), store_(store) {
        int turns = std::max(1, std::min(linear.inputs(), DEPTH_BLOCK) / MATRIX_DEPTH - 1);
        rows_per_turn_ = TileGroup::MAX_TILES * MATRIX_ROWS / turns + 1;
    }

    // Sets the rows of the next sums: tiles [first, first + count) of the rows from `begin` on.
    void set_rows(int64_t begin, const RowTiles& rows, int first, int count, int panel) {
        next_rows_.begin = begin + int64_t(first) * rows.height;
        next_rows_.end = begin + std::min<int64_t>(int64_t(first + count) * rows.height, rows.rows);
        // The last tile may overlap the one before it. A row in both is stored from the earlier tile. Rows from
        // moved_from on are in the last tile alone, and their sums are moved_by rows further on.
        next_rows_.moved_from = begin + int64_t(rows.tiles - 1) * rows.height;
        next_rows_.moved_by = int64_t(rows.tiles) * rows.height - rows.rows;
        next_rows_.panel = panel;
    }
    // Buffers the sums (rows, 16) of a vector of columns. store_rest() must have been called.
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
        Integers initial_sums = linear_.initial_sums(rows_.panel, vector_);
        for (; row_ < end; ++row_) {
            int64_t index = row_ - rows_.begin + (row_ >= rows_.moved_from ? rows_.moved_by : 0);
            Integers sums = add16(load16(sums_ + index * LANES), initial_sums);
            put(row_, epilogue.of_int8(sums, absmax_[row_]));
        }
    }

    const Linear& linear_;
    const float* absmax_;
    Store& store_;
    // Rows that one call of store_some() stores. The calls during one vector's product store all rows of the largest
    // group, if the last run of inputs is as long as the first. store_rest() stores the others.
    int64_t rows_per_turn_;
    Rows next_rows_{}, rows_{};
    int vector_ = 0;
    int64_t row_ = 0;
    const int32_t* sums_ = nullptr;
};

// Stores the sums of one tile of rows. One panel is buffered and stored vector by vector between the tile instructions
// of the next panel.
template <class Store>
class PanelSumsWriter {
public:
    PanelSumsWriter(const Linear& linear, const float* absmax, Store& store)
        : linear_(linear), absmax_(absmax), store_(store) {}

    // Returns the memory of the next panel's sums, (4, MATRIX_ROWS, 16): the buffer that is not in use.
    int32_t* sums() { return sums_[is_second_]; }
    // Buffers the panel's sums of rows [begin, end), which are in sums(). store_rest() must have been called.
    void enqueue(int64_t begin, int64_t end, int panel) {
        buffered_ = sums_[is_second_];
        is_second_ = !is_second_;
        begin_ = begin;
        end_ = end;
        panel_ = panel;
        vector_ = 0;
    }
    void store_some() {
        if (vector_ < VECTORS) store_vector(vector_++);
    }
    void store_rest() {
        while (vector_ < VECTORS) store_vector(vector_++);
    }

private:
    void store_vector(int vector) {
        int column = panel_ * PANEL + vector * LANES;
        if (column >= linear_.outputs()) return;
        auto put = store_(column, first_lanes(linear_.outputs() - column));
        Epilogue epilogue = linear_.epilogue(panel_, vector);
        Integers initial_sums = linear_.initial_sums(panel_, vector);
        const int32_t* sums = buffered_ + vector * MATRIX_ROWS * LANES;
        for (int64_t row = begin_; row < end_; ++row, sums += LANES) {
            put(row, epilogue.of_int8(add16(load16(sums), initial_sums), absmax_[row]));
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

// Rows [begin, end) and panels [first, last) whose products are stored.
struct FinishedChunk {
    int64_t begin, end;
    int first, last;
};

// The `after` of a `multiply` that calls no function after each chunk.
struct NoCallback {
    void operator()(const FinishedChunk&) const {}
};

// Multiplies rows [0, n). store(column, lanes) returns a function (row, products) that is called for each row. `lanes`
// is the mask of columns that exist. A chunk has up to panels_per_chunk panels and up to BLOCK_ROWS rows. The thread
// that ran a chunk calls after(chunk) with a FinishedChunk. more_nanoseconds: rough cost of all these calls.
template <class Store, class After>
void multiply(const Linear& linear, const Activations& x, int64_t n, int panels_per_chunk, Store&& store,
              int64_t more_nanoseconds, After&& after) {
    int num_panels = linear.num_panels();
    int64_t num_row_blocks = (n + BLOCK_ROWS - 1) / BLOCK_ROWS;
    int groups = (num_panels + panels_per_chunk - 1) / panels_per_chunk;
    bool uses_matrix = linear.uses_matrix_tiles(n);
    // Calls run_panel(begin, end, panel, next) for each panel of this thread's chunks. next: the panel that the thread
    // probably needs afterwards, of this product or of the next one, or nullptr. store_rest() stores what is buffered.
    auto each_panel = [&](Chunks& chunks, auto&& run_panel, auto&& store_rest) {
        bool is_up = chunks.direction() == Direction::up;
        const Prefetch& next_product = linear.next();
        // Threads that share a product by vector instructions prefetch the next product only while they wait.
        const char* of_next_product = !uses_matrix && !runs_own_rows ? nullptr
                                      : is_up                        ? next_product.up
                                                                     : next_product.down;
        for (int chunk; chunks.take(&chunk);) {
            int64_t begin = chunk / groups * int64_t(BLOCK_ROWS), end = std::min<int64_t>(begin + BLOCK_ROWS, n);
            int first = chunk % groups * panels_per_chunk, last = std::min(first + panels_per_chunk, num_panels);
            for (int panel = first; panel < last; ++panel) {
                int next = panel + 1 < last || is_up ? panel + 1 : first - panels_per_chunk;
                bool is_of_this_product =
                    next >= 0 && next < num_panels && (panel + 1 < last || !uses_matrix || chunks.seems_to_have_more());
                run_panel(begin, end, panel, is_of_this_product ? linear.panel(next) : of_next_product);
            }
            if (std::is_same_v<std::decay_t<After>, NoCallback>) continue;
            store_rest();
            after(FinishedChunk{begin, end, first, last});
        }
        store_rest();
    };
    // Stores the products of rows [begin, end). sums_of(row) returns the row's sums (PANEL,).
    auto store_rows = [&](int64_t begin, int64_t end, int panel, auto&& sums_of) {
        for (int vector = 0; vector < VECTORS; ++vector) {
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
        int depth_block = linear.depth_block(tiles), vectors = linear.vectors_of_run(tiles);
        alignas(64) int32_t sums[BLOCK_ROWS * PANEL];
        for (int depth = 0; depth < inputs; depth += depth_block) {
            for (int vector = 0; vector < VECTORS; vector += vectors) {
                InputRun run{depth, std::min(depth_block, inputs - depth), vector, vector + vectors};
                for (int tile = 0; tile < tiles; ++tile) {
                    int64_t from = count * tile / tiles, to = count * (tile + 1) / tiles;
                    // If a run has all inputs and columns, a tile's sums are stored before the next tile begins, and
                    // all tiles use the same memory. Otherwise each tile keeps its sums until the last run.
                    int32_t* tile_sums = sums + (depth_block < inputs || vectors < VECTORS ? from * PANEL : 0);
                    TilePrefetch prefetch = linear.prefetch(panel, run, next, tile, tiles);
                    linear.sums(x, begin + from, int(to - from), panel, run, prefetch, tile_sums);
                    if (depth + run.count < inputs || run.last < VECTORS) continue;
                    int64_t first = begin + from;
                    store_rows(first, begin + to, panel,
                               [=](int64_t row) { return tile_sums + (row - first) * PANEL; });
                }
            }
        }
    };
    auto by_matrix = [&](Chunks& chunks) {
        TileSumsWriter<Store> writer(linear, x.absmax, store);
        PanelSumsWriter<Store> panel_writer(linear, x.absmax, store);
        alignas(64) int32_t sums[TileGroup::MAX_SUMS];
        auto run_panel = [&](int64_t begin, int64_t end, int panel, const char* next) {
            RowTiles rows(end - begin);
            set_up_matrix_tiles(rows.height);
            if (rows.tiles > 1) return linear.multiply_tiles(x, begin, rows, panel, next, sums, writer);
            auto values = static_cast<const uint8_t*>(x.values) + begin * x.stride;
            TilePanel weights{linear.panel(panel), linear.inputs(), next};
            multiply_one_tile(values, x.stride, weights, panel_writer.sums(), panel_writer);
            panel_writer.enqueue(begin, end, panel);
        };
        each_panel(chunks, run_panel, [&] {
            writer.store_rest();
            panel_writer.store_rest();
        });
    };
    auto job = [&](Chunks& chunks) { uses_matrix ? by_matrix(chunks) : each_panel(chunks, by_vectors, [] {}); };
    parallel_chunks(int(groups * num_row_blocks), linear.nanoseconds(n) + more_nanoseconds, job, linear.next());
}

// As above, without `after`: a chunk has one panel, or all panels if this thread runs rows of its own.
template <class Store>
void multiply(const Linear& linear, const Activations& x, int64_t n, Store&& store) {
    int panels_per_chunk = runs_own_rows ? linear.num_panels() : 1;
    multiply(linear, x, n, panels_per_chunk, store, 0, NoCallback());
}

}  // namespace transduce
