// Hints to the processor. They change no result.
#pragma once

namespace transduce {

// Prefetches a cache line into the L1 cache, or only into the L2 cache.
[[gnu::always_inline]]
inline void prefetch_l1(const void* at) {
    __builtin_prefetch(at, 0, 3);
}
[[gnu::always_inline]]
inline void prefetch_l2(const void* at) {
    __builtin_prefetch(at, 0, 2);
}

// Waits for some cycles, in a loop that waits for another thread.
inline void pause() {
#ifdef __x86_64__
    __builtin_ia32_pause();
#else
    // Arm's instruction for this, YIELD, waits for one cycle only.
    asm volatile("isb" : : : "memory");
#endif
}

}  // namespace transduce
