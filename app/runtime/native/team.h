// One team of threads for the whole process: the caller and helpers that take chunks of its jobs.
#pragma once

#include <cstdint>
#include <type_traits>

namespace transduce {

// Which end of the chunks a thread works from: the caller goes up from the first, helpers come down from the
// last, so that the next job over the same weights finds each thread's share in its own cache.
enum class Direction : int { up = 1, down = -1 };

using Work = void (*)(void* context, int chunk, Direction direction);

constexpr int MAX_CHUNKS = 65535;

// Memory that the next job reads, which whoever waits for it asks for meanwhile: `bytes`, piece by piece, the caller from
// the first piece at `up` on, helpers from the last at `down` back to those before it. 0 bytes: as was said before.
struct Coming {
    const char* up = nullptr;
    const char* down = nullptr;
    uint32_t piece = 1, bytes = 0;
};

// The caller and its helpers.
int num_threads();

// Run chunks 0..num_chunks-1, each exactly once, and return when all are done.
//
// nanoseconds: what the whole job costs one thread, roughly. It decides whether helpers are asked, and whether
// sleeping ones are woken. coming: what is read after it. Never fails: where the team is at a job already, whose chunk
// this may be, the caller works alone.
void run_job(Work work, void* context, int num_chunks, int64_t nanoseconds, const Coming& coming);

// As run_job, for any callable (int chunk, Direction).
template <class Callable>
void parallel(int num_chunks, int64_t nanoseconds, Callable&& callable, const Coming& coming = {}) {
    auto work = [](void* context, int chunk, Direction direction) {
        (*static_cast<std::remove_reference_t<Callable>*>(context))(chunk, direction);
    };
    run_job(work, &callable, num_chunks, nanoseconds, coming);
}

}  // namespace transduce
