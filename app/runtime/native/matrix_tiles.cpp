#include "matrix_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "linear.h"

namespace transduce {
namespace {

// arch_prctl's request for a state of the processor that the system saves only for who asks, and the tiles' number.
constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
// In EDX of CPUID leaf 7: AMX-TILE and AMX-INT8.
constexpr unsigned TILE_FLAGS = 1u << 24 | 1u << 25;
constexpr size_t LINE = 64;
// Packed weights of one instruction: a tile, one block; four of them are the panel's over its depth.
constexpr size_t TILE_BYTES = MATRIX_ROWS * LINE, DEPTH_BYTES = TILE_BYTES * PANEL / LANES;
// Bytes ahead of the weights in use that a single pass asks for.
constexpr size_t AHEAD = 4096;
// Inputs that all rows are multiplied with before the next: half a panel of them stays in the nearest cache.
constexpr int DEPTH_TOGETHER = 512;
constexpr size_t SUMS_STRIDE = PANEL * 4;

// What LDTILECFG reads. Intel, Architecture Instruction Set Extensions Programming Reference, 3.3.
struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int count) {
        row_bytes[tile] = LINE;
        rows[tile] = static_cast<uint8_t>(count);
    }
};

bool is_granted() {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILE_FLAGS) != TILE_FLAGS) return false;
    // Granted to the whole process; refused by a system that does not save tiles.
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

std::atomic<bool> is_allowed{true};

// Of this thread's tiles, 0 where they are not in use.
thread_local int height_set_up = 0;

// Ask for cache lines: into the nearest cache, where they are used soon, else into the next.
inline void ask_soon(const char* from, int lines) {
    for (int line = 0; line < lines; ++line) _mm_prefetch(from + line * LINE, _MM_HINT_T0);
}
inline void ask_early(const char* from, int lines) {
    for (int line = 0; line < lines; ++line) _mm_prefetch(from + line * LINE, _MM_HINT_T1);
}

// Asks for a panel's memory bit by bit.
class Asking {
public:
    Asking(const char* from, size_t bytes, int64_t times)
        : next_(from), end_(from + bytes), lines_(int((bytes / LINE + times - 1) / times)) {}
    void once() {
        if (!next_ || next_ >= end_) return;
        ask_early(next_, lines_);
        next_ += lines_ * LINE;
    }

private:
    const char *next_, *end_;
    int lines_;
};

// Registers, everywhere: 0 to 3 sums, 4 and 5 inputs, 6 and 7 weights.

// One tile of rows by the whole panel, which is read once, from its first byte to its last.
void single_pass(const uint8_t* x, size_t stride, const MatrixPanel& panel, int32_t* to) {
    size_t bytes = size_t(panel.inputs) * PANEL;
    // Every row starts from the same sums.
    _tile_loadd(0, panel.starts, 0);
    _tile_loadd(1, panel.starts + LANES, 0);
    _tile_loadd(2, panel.starts + 2 * LANES, 0);
    _tile_loadd(3, panel.starts + 3 * LANES, 0);
    const char* weights = panel.weights;
    for (int depth = 0; depth < panel.inputs; depth += MATRIX_DEPTH, weights += DEPTH_BYTES) {
        size_t at = size_t(depth) * PANEL + AHEAD;
        const char* ahead = at < bytes ? panel.weights + at : panel.next ? panel.next + (at - bytes) : weights;
        _tile_loadd(4, x + depth, stride);
        _tile_loadd(6, weights, LINE);
        _tile_dpbusd(0, 4, 6);
        ask_soon(ahead, 16);
        _tile_loadd(7, weights + TILE_BYTES, LINE);
        _tile_dpbusd(1, 4, 7);
        ask_soon(ahead + 16 * LINE, 16);
        _tile_loadd(6, weights + 2 * TILE_BYTES, LINE);
        _tile_dpbusd(2, 4, 6);
        ask_soon(ahead + 32 * LINE, 16);
        _tile_loadd(7, weights + 3 * TILE_BYTES, LINE);
        _tile_dpbusd(3, 4, 7);
        ask_soon(ahead + 48 * LINE, 16);
    }
    _tile_stored(0, to, SUMS_STRIDE);
    _tile_stored(1, to + LANES, SUMS_STRIDE);
    _tile_stored(2, to + 2 * LANES, SUMS_STRIDE);
    _tile_stored(3, to + 3 * LANES, SUMS_STRIDE);
}

// A run of `depth` inputs of half a panel. stride: bytes from row to row of the inputs.
struct Run {
    const char* weights;
    int depth;
    size_t stride;
};

// The rows of a tile, and where their sums stand. starts: what the sums are before, `starts_stride` bytes from row to row,
// 0 where every row starts from the same.
struct TileRows {
    const uint8_t* x;
    const int32_t* starts;
    size_t starts_stride;
    int32_t* sums;
};

// Two tiles of rows by two vectors of columns: sums = starts + x weights.
void add_pair(const TileRows& one, const TileRows& two, const Run& run, Asking& asking) {
    _tile_loadd(0, one.starts, one.starts_stride);
    _tile_loadd(1, one.starts + LANES, one.starts_stride);
    _tile_loadd(2, two.starts, two.starts_stride);
    _tile_loadd(3, two.starts + LANES, two.starts_stride);
    const char* weights = run.weights;
    for (int depth = 0; depth < run.depth; depth += MATRIX_DEPTH, weights += DEPTH_BYTES) {
        _tile_loadd(4, one.x + depth, run.stride);
        _tile_loadd(6, weights, LINE);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, weights + TILE_BYTES, LINE);
        _tile_dpbusd(1, 4, 7);
        _tile_loadd(5, two.x + depth, run.stride);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
        asking.once();
    }
    _tile_stored(0, one.sums, SUMS_STRIDE);
    _tile_stored(1, one.sums + LANES, SUMS_STRIDE);
    _tile_stored(2, two.sums, SUMS_STRIDE);
    _tile_stored(3, two.sums + LANES, SUMS_STRIDE);
}

void add_one(const TileRows& one, const Run& run, Asking& asking) {
    _tile_loadd(0, one.starts, one.starts_stride);
    _tile_loadd(1, one.starts + LANES, one.starts_stride);
    const char* weights = run.weights;
    for (int depth = 0; depth < run.depth; depth += MATRIX_DEPTH, weights += DEPTH_BYTES) {
        _tile_loadd(4, one.x + depth, run.stride);
        _tile_loadd(6, weights, LINE);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, weights + TILE_BYTES, LINE);
        _tile_dpbusd(1, 4, 7);
        asking.once();
    }
    _tile_stored(0, one.sums, SUMS_STRIDE);
    _tile_stored(1, one.sums + LANES, SUMS_STRIDE);
}

}  // namespace

bool has_matrix_tiles() {
    static const bool is_there = is_granted();
    return is_there && is_allowed.load(std::memory_order_relaxed);
}

void set_up_matrix_tiles(int height) {
    if (height == height_set_up) return;
    Configuration configuration;
    for (int tile = 0; tile < 6; ++tile) configuration.set(tile, height);
    for (int tile = 6; tile < 8; ++tile) configuration.set(tile, MATRIX_ROWS);
    asm volatile("ldtilecfg %0" : : "m"(configuration));
    height_set_up = height;
}

void release_matrix_tiles() {
    if (height_set_up == 0) return;
    asm volatile("tilerelease");
    height_set_up = 0;
}

void matrix_sums(const uint8_t* x, size_t stride, const RowTiles& rows, const MatrixPanel& panel, int32_t* to) {
    if (rows.tiles == 1) return single_pass(x, stride, panel, to);
    int64_t runs = (panel.inputs + DEPTH_TOGETHER - 1) / DEPTH_TOGETHER;
    Asking asking(panel.next, size_t(panel.inputs) * PANEL, runs * DEPTH_TOGETHER / MATRIX_DEPTH * 2 * ((rows.tiles + 1) / 2));
    for (int begin = 0; begin < panel.inputs; begin += DEPTH_TOGETHER) {
        int depth = std::min(DEPTH_TOGETHER, panel.inputs - begin);
        for (int column = 0; column < PANEL; column += 2 * LANES) {
            Run run{panel.weights + size_t(begin) * PANEL + column / LANES * TILE_BYTES, depth, stride};
            auto of = [&](int tile) {
                int32_t* sums = to + int64_t(tile) * rows.height * PANEL + column;
                const uint8_t* own = x + rows.first(tile) * stride + begin;
                return begin ? TileRows{own, sums, SUMS_STRIDE, sums} : TileRows{own, panel.starts + column, 0, sums};
            };
            int tile = 0;
            for (; tile + 1 < rows.tiles; tile += 2) add_pair(of(tile), of(tile + 1), run, asking);
            if (tile < rows.tiles) add_one(of(tile), run, asking);
        }
    }
}

}  // namespace transduce

// Whether tile registers may be used; at first they may. Returns whether they are.
extern "C" __attribute__((visibility("default"))) int transduce_allow_matrix_tiles(int is_allowed) {
    transduce::is_allowed.store(is_allowed != 0, std::memory_order_relaxed);
    return transduce::has_matrix_tiles();
}
