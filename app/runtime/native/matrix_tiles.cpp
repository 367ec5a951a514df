#include "matrix_tiles.h"

#include <atomic>

#include "simd.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace transduce {
namespace {

std::atomic<bool> is_allowed{true};

#ifdef __x86_64__

// The arch_prctl code that requests permission for a processor state, and the number of the tiles' state. Linux saves
// this state only for processes that have the permission.
constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
// Bits of AMX-TILE and AMX-INT8 in EDX of CPUID leaf 7.
constexpr unsigned TILE_FLAGS = 1u << 24 | 1u << 25;
// Bytes of a row of a tile.
constexpr int LINE = 64;

// The operand of LDTILECFG. Intel, Architecture Instruction Set Extensions Programming Reference, 3.3.
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
    // The permission holds for the whole process. A system that cannot save tiles refuses it.
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

void configure(int height) {
    Configuration configuration;
    for (int tile = 0; tile < 6; ++tile) configuration.set(tile, height);
    for (int tile = 6; tile < 8; ++tile) configuration.set(tile, MATRIX_ROWS);
    asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void release() { asm volatile("tilerelease"); }

#else

// Other processors have no tile registers.
bool is_granted() { return false; }
void configure(int) {}
void release() {}

#endif

// The tile height for which this thread's registers are configured; 0 if they are not in use.
thread_local int configured_height = 0;

}  // namespace

bool has_matrix_tiles() {
    static const bool is_available = HAS_TILE_PRODUCTS && is_granted();
    return is_available && is_allowed.load(std::memory_order_relaxed);
}

void set_up_matrix_tiles(int height) {
    if (height == configured_height) return;
    configure(height);
    configured_height = height;
}

void release_matrix_tiles() {
    if (configured_height == 0) return;
    release();
    configured_height = 0;
}

}  // namespace transduce

// Sets whether tile registers may be used; the default is yes. Returns whether they are used.
extern "C" __attribute__((visibility("default"))) int transduce_allow_matrix_tiles(int is_allowed) {
    transduce::is_allowed.store(is_allowed != 0, std::memory_order_relaxed);
    return transduce::has_matrix_tiles();
}
