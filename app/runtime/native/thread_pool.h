// The process's thread pool: the calling thread and worker threads that share the chunks of one job at a time.
#pragma once

#include <cstdint>
#include <type_traits>

namespace transduce {

// The end of the chunk range that a thread takes chunks from. The caller goes up from the first chunk, workers go down
// from the last. In the next job over the same weights, the caller then finds most of its share in its own cache.
enum class Direction : int { up = 1, down = -1 };

// The chunks of a job that one thread runs. A thread that works alone runs all of them. Otherwise it takes one batch of
// chunks after another from the pool's queue.
class Chunks {
public:
    // All chunks of a job that no other thread works on.
    explicit Chunks(int num_chunks) : left_(num_chunks) {}
    // Chunks of the pool's current job.
    explicit Chunks(Direction direction) : direction_(direction), is_shared_(true) {}

    Direction direction() const { return direction_; }
    // Claims the next chunk for this thread, which must run it. Returns whether there was one.
    bool claim() { return left_ > 0 || (is_shared_ && take_some()); }
    // Takes the next chunk and stores its index in *chunk. Returns whether there was one.
    bool take(int* chunk) {
        if (!claim()) return false;
        *chunk = next_;
        next_ += static_cast<int>(direction_);
        --left_;
        return true;
    }
    // Whether there probably is another chunk. Takes none; another thread may be faster.
    bool seems_to_have_more() const { return left_ > 0 || (is_shared_ && are_some_left()); }
    // Takes all chunks that are left in the pool's queue, and runs none of them.
    void discard() {
        while (take_some()) {}
    }
    // Number of chunks taken from the pool's queue.
    int num_taken() const { return num_taken_; }

private:
    // Takes a batch of chunks from the pool's queue. Returns whether there was one.
    bool take_some();
    static bool are_some_left();

    Direction direction_ = Direction::up;
    bool is_shared_ = false;
    int next_ = 0, left_ = 0, num_taken_ = 0;
};

// Runs chunks until there are none left to take.
using Job = void (*)(void* context, Chunks& chunks);

// Maximum number of chunks of a job that threads share: the queue holds a chunk's index in 16 bits.
constexpr int MAX_CHUNKS = 65535;

// Memory that the next job reads. Threads prefetch it while they wait, `bytes` bytes each. The caller goes upward from
// `up`. Workers prefetch the piece at `down`, of `piece` bytes, and then the pieces before it. bytes 0: the memory that
// the previous job named stays.
struct Prefetch {
    const char* up = nullptr;
    const char* down = nullptr;
    uint32_t piece = 1, bytes = 0;
};

// Whether this thread runs rows of its own through a block. The thread then runs all chunks of every job of the block
// itself, even if the pool is free.
inline thread_local bool runs_own_rows = false;

// Sets runs_own_rows for its lifetime.
struct OwnRowsScope {
    const bool before = runs_own_rows;
    OwnRowsScope() { runs_own_rows = true; }
    ~OwnRowsScope() { runs_own_rows = before; }
    OwnRowsScope(const OwnRowsScope&) = delete;
    OwnRowsScope& operator=(const OwnRowsScope&) = delete;
};

// Number of threads that work on a job, including the caller.
int num_threads();

// Runs chunks 0..num_chunks-1, each exactly once, and returns when all of them are done.
//
// nanoseconds: rough cost of the whole job on one thread. It decides whether the workers take part, whether sleeping
// workers are woken, and how many chunks a thread takes at once. prefetch: memory that the job after this one reads.
// The caller runs all chunks alone if it runs rows of its own, if there are more than MAX_CHUNKS, or if the pool is
// busy, possibly with the job that makes this call.
//
// Throws what the job throws on any thread: the first exception, after the other threads have run the chunks that they
// have taken. The chunks that are left in the queue are not run.
void run_job(Job job, void* context, int num_chunks, int64_t nanoseconds, const Prefetch& prefetch);

// run_job for a callable (Chunks&) that runs every chunk it can take.
template <class Callable>
void parallel_chunks(int num_chunks, int64_t nanoseconds, Callable&& callable, const Prefetch& prefetch = {}) {
    auto job = [](void* context, Chunks& chunks) {
        (*static_cast<std::remove_reference_t<Callable>*>(context))(chunks);
    };
    run_job(job, &callable, num_chunks, nanoseconds, prefetch);
}

// run_job for a callable (int chunk, Direction).
template <class Callable>
void parallel_for(int num_chunks, int64_t nanoseconds, Callable&& callable, const Prefetch& prefetch = {}) {
    auto all = [&](Chunks& chunks) {
        for (int chunk; chunks.take(&chunk);) callable(chunk, chunks.direction());
    };
    parallel_chunks(num_chunks, nanoseconds, all, prefetch);
}

}  // namespace transduce
