// Products of 8-bit rows by tile registers (AMX-INT8). A `writer` (multiply.h) stores the sums of one vector of
// columns, or of one panel, by vector instructions while the tile registers compute the next.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hints.h"
#include "matrix_tiles.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace transduce {

#ifndef __x86_64__
// Other processors have no tile registers. Code with these functions is compiled there, but never called.
inline void _tile_zero(int) {}
inline void _tile_loadd(int, const void*, size_t) {}
inline void _tile_stored(int, void*, size_t) {}
inline void _tile_dpbusd(int, int, int) {}
#endif

// Prefetches a panel of `bytes` bytes in `times` equal parts, one part a step(). If `from` is nullptr, does nothing.
class PanelPrefetcher {
public:
    PanelPrefetcher(const char* from, size_t bytes, int64_t times)
        : next_(from), end_(from + bytes), lines_(int((bytes / LINE + times - 1) / times)) {}
    void step() {
        if (!next_ || next_ >= end_) return;
        for (int line = 0; line < lines_; ++line, next_ += LINE) prefetch_l2(next_);
    }

private:
    static constexpr size_t LINE = 64;
    const char *next_, *end_;
    int lines_;
};

// Tiles of rows that are multiplied together. x: the first row of each tile, `stride` bytes from row to row. sums:
// (VECTORS, tiles, height, 16). If one DepthRun covers the panel, only the first two of the VECTORS are used.
// tile_stride: numbers from one tile's sums to the next tile's.
struct TileGroup {
    static constexpr int MAX_TILES = 4, VECTORS = 4;
    static constexpr size_t LINE = 64;
    static constexpr int MAX_SUMS = VECTORS * MAX_TILES * MATRIX_ROWS * 16;

    const uint8_t* x[MAX_TILES];
    size_t stride;
    int32_t* sums;
    int tile_stride;
};

// Inputs [begin, begin + depth) of a panel. The run at 0 starts from zero. Every other run starts from the sums of the
// run before it.
struct DepthRun {
    const char* weights;
    int begin, depth;
    // Bytes from the weights of one instruction to the weights of the next instruction.
    size_t depth_stride;
};

// A packed panel of `inputs` inputs, a multiple of MATRIX_DEPTH. next: the panel that is prefetched meanwhile, or
// nullptr.
struct TilePanel {
    const char* weights;
    int inputs;
    const char* next;
};

// Prefetches a tile of weights into the L1 cache.
inline void prefetch_tile(const char* from) {
    for (int line = 0; line < MATRIX_ROWS; ++line) prefetch_l1(from + line * TileGroup::LINE);
}

// Tile registers: 0 to 3 hold sums, 4 and 5 inputs, 6 and 7 weights.

// The first instructions of a run of R tiles. `from`: the sums of the run before. `done` receives the sums of the
// previous vector of columns, nullptr if there is none.
template <int R>
inline void begin_tiles(const TileGroup& group, const DepthRun& run, const char* weights, const int32_t* from,
                        int32_t* done, PanelPrefetcher& prefetcher) {
    constexpr size_t LINE = TileGroup::LINE;
    const size_t x = run.begin;
    bool is_first = run.begin == 0;
    _tile_loadd(6, weights, LINE);
    _tile_loadd(4, group.x[0] + x, group.stride);
    if (done) _tile_stored(0, done, LINE);
    if (is_first) _tile_zero(0);
    else _tile_loadd(0, from, LINE);
    _tile_dpbusd(0, 4, 6);
    prefetcher.step();
    if constexpr (R > 1) {
        _tile_loadd(5, group.x[1] + x, group.stride);
        if (done) _tile_stored(1, done + group.tile_stride, LINE);
        if (is_first) _tile_zero(1);
        else _tile_loadd(1, from + group.tile_stride, LINE);
        _tile_dpbusd(1, 5, 6);
        prefetcher.step();
    }
    if constexpr (R > 2) {
        _tile_loadd(4, group.x[2] + x, group.stride);
        if (done) _tile_stored(2, done + 2 * group.tile_stride, LINE);
        if (is_first) _tile_zero(2);
        else _tile_loadd(2, from + 2 * group.tile_stride, LINE);
        _tile_dpbusd(2, 4, 6);
        prefetcher.step();
    }
    if constexpr (R > 3) {
        _tile_loadd(5, group.x[3] + x, group.stride);
        if (done) _tile_stored(3, done + 3 * group.tile_stride, LINE);
        if (is_first) _tile_zero(3);
        else _tile_loadd(3, from + 3 * group.tile_stride, LINE);
        _tile_dpbusd(3, 5, 6);
        prefetcher.step();
    }
}

// Adds the products of the next MATRIX_DEPTH inputs of R tiles. x: index of the first input.
template <int R>
inline void add_tiles(const TileGroup& group, size_t x, const char* weights, PanelPrefetcher& prefetcher) {
    _tile_loadd(6, weights, TileGroup::LINE);
    _tile_loadd(4, group.x[0] + x, group.stride);
    _tile_dpbusd(0, 4, 6);
    prefetcher.step();
    if constexpr (R > 1) {
        _tile_loadd(5, group.x[1] + x, group.stride);
        _tile_dpbusd(1, 5, 6);
        prefetcher.step();
    }
    if constexpr (R > 2) {
        _tile_loadd(4, group.x[2] + x, group.stride);
        _tile_dpbusd(2, 4, 6);
        prefetcher.step();
    }
    if constexpr (R > 3) {
        _tile_loadd(5, group.x[3] + x, group.stride);
        _tile_dpbusd(3, 5, 6);
        prefetcher.step();
    }
}

// Stores the sums of R tiles.
template <int R>
inline void store_tiles(const TileGroup& group, int32_t* to) {
    _tile_stored(0, to, TileGroup::LINE);
    if constexpr (R > 1) _tile_stored(1, to + group.tile_stride, TileGroup::LINE);
    if constexpr (R > 2) _tile_stored(2, to + 2 * group.tile_stride, TileGroup::LINE);
    if constexpr (R > 3) _tile_stored(3, to + 3 * group.tile_stride, TileGroup::LINE);
}

// Multiplies one tile of rows with one panel. The product is bound by memory, so the panel is read once, in the order
// of its bytes. The writer's buffered sums are stored meanwhile, a vector of columns between instructions. x: the
// tile's first row, `stride` bytes from row to row. sums: (VECTORS, MATRIX_ROWS, 16).
template <class Writer>
void multiply_one_tile(const uint8_t* x, size_t stride, const TilePanel& panel, int32_t* sums, Writer& writer) {
    constexpr size_t LINE = TileGroup::LINE, TILE_BYTES = MATRIX_ROWS * LINE;
    constexpr size_t DEPTH_BYTES = TileGroup::VECTORS * TILE_BYTES;
    // Distance in bytes between the weights in use and those being prefetched.
    constexpr size_t PREFETCH_BYTES = DEPTH_BYTES;
    constexpr int TILE_SUMS = MATRIX_ROWS * 16;
    const char *weights = panel.weights, *end = weights + size_t(panel.inputs) * TileGroup::VECTORS * 16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int depth = 0; depth < panel.inputs; depth += MATRIX_DEPTH, weights += DEPTH_BYTES) {
        const char* ahead = weights + PREFETCH_BYTES < end ? weights + PREFETCH_BYTES
                            : panel.next                   ? panel.next
                                                           : weights;
        _tile_loadd(4, x + depth, stride);
        _tile_loadd(6, weights, LINE);
        _tile_dpbusd(0, 4, 6);
        prefetch_tile(ahead);
        _tile_loadd(7, weights + TILE_BYTES, LINE);
        _tile_dpbusd(1, 4, 7);
        prefetch_tile(ahead + TILE_BYTES);
        _tile_loadd(6, weights + 2 * TILE_BYTES, LINE);
        _tile_dpbusd(2, 4, 6);
        prefetch_tile(ahead + 2 * TILE_BYTES);
        _tile_loadd(7, weights + 3 * TILE_BYTES, LINE);
        _tile_dpbusd(3, 4, 7);
        prefetch_tile(ahead + 3 * TILE_BYTES);
        if (depth) writer.store_some();
    }
    writer.store_rest();
    _tile_stored(0, sums, LINE);
    _tile_stored(1, sums + TILE_SUMS, LINE);
    _tile_stored(2, sums + 2 * TILE_SUMS, LINE);
    _tile_stored(3, sums + 3 * TILE_SUMS, LINE);
}

// Multiplies R tiles over one run of inputs with all vectors of columns of a panel. Only the last run of a panel hands
// its sums to the writer, which stores some of them between instructions.
template <int R, class Writer>
void multiply_run(const TileGroup& group, const DepthRun& run, bool is_last, PanelPrefetcher& prefetcher,
                  Writer& writer) {
    int32_t* before = nullptr;
    for (int vector = 0; vector < TileGroup::VECTORS; ++vector) {
        const char* weights = run.weights + vector * MATRIX_ROWS * TileGroup::LINE;
        // If the panel has a single run, its sums are needed only until the next vector is done.
        bool is_single = is_last && run.begin == 0;
        int32_t* vector_sums = group.sums + (is_single ? vector % 2 : vector) * R * group.tile_stride;
        if (vector) writer.store_rest();
        begin_tiles<R>(group, run, weights, vector_sums, before, prefetcher);
        if (vector && is_last) writer.enqueue(vector - 1, before);
        for (int depth = MATRIX_DEPTH; depth < run.depth; depth += MATRIX_DEPTH) {
            weights += run.depth_stride;
            add_tiles<R>(group, run.begin + depth, weights, prefetcher);
            writer.store_some();
        }
        before = vector_sums;
    }
    writer.store_rest();
    store_tiles<R>(group, before);
    if (is_last) writer.enqueue(TileGroup::VECTORS - 1, before);
}

}  // namespace transduce
