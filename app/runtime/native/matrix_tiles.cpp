#include "matrix_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Ask for cache lines that are used soon.
inline void ask_soon(const char* from, int lines) {
    for (int line = 0; line < lines; ++line) _mm_prefetch(from + line * LINE, _MM_HINT_T0);
}

}  // namespace

// Registers: 0 to 3 sums, 4 inputs, 6 and 7 weights. The panel is read once, from its first byte to its last.
void matrix_sums(const uint8_t* x, size_t stride, const MatrixPanel& panel, int32_t* to) {
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

}  // namespace transduce

// Whether tile registers may be used; at first they may. Returns whether they are.
extern "C" __attribute__((visibility("default"))) int transduce_allow_matrix_tiles(int is_allowed) {
    transduce::is_allowed.store(is_allowed != 0, std::memory_order_relaxed);
    return transduce::has_matrix_tiles();
}
