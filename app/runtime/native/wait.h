// Waiting for a number to change, as Linux's futex: a thread sleeps until another one changes the number and wakes it.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace transduce {

#ifdef __linux__

// Sleeps until the next wake_all, or not at all if the number is no longer `seen`. May return earlier.
inline void wait_for_change(std::atomic<uint32_t>& number, uint32_t seen) {
    syscall(SYS_futex, &number, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

// Wakes all threads that wait for this number. Call it after the change.
inline void wake_all(std::atomic<uint32_t>& number) {
    syscall(SYS_futex, &number, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else

// The lock and the condition variable of all sleeping threads. They are shared by all numbers.
struct Sleepers {
    std::mutex mutex;
    std::condition_variable woken;
};

// It is never destroyed, because threads may still sleep while the process ends.
inline Sleepers& sleepers() {
    static Sleepers& all = *new Sleepers;
    return all;
}

inline void wait_for_change(std::atomic<uint32_t>& number, uint32_t seen) {
    std::unique_lock<std::mutex> lock(sleepers().mutex);
    if (number.load() == seen) sleepers().woken.wait(lock);
}

inline void wake_all(std::atomic<uint32_t>&) {
    // While this thread has the lock, no other thread is between its check of the number and its sleep.
    std::lock_guard<std::mutex> lock(sleepers().mutex);
    sleepers().woken.notify_all();
}

#endif

}  // namespace transduce
