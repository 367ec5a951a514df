// One team of threads for the whole process: the caller and helpers that take chunks of its jobs.
#pragma once

#include <cstdint>
#include <type_traits>

namespace transduce {

// Which end of the chunks a thread works from: the caller goes up from the first, helpers come down from the
// last, so that the next job over the same weights finds each thread's share in its own cache.
enum class Direction : int { up = 1, down = -1 };

// The chunks of a job that one thread does, taken from the team's as it goes, or all of them where it works alone.
class Chunks {
public:
    // All of a job that nobody else works on.
    explicit Chunks(int num_chunks) : left_(num_chunks) {}
    // A job of the team's.
    explicit Chunks(Direction direction) : direction_(direction), is_shared_(true) {}

    Direction direction() const { return direction_; }
    // Whether there is one more, which is to be done then.
    bool has_more() { return left_ > 0 || (is_shared_ && take_some()); }
    // As has_more; *chunk is that one.
    bool take(int* chunk) {
        if (!has_more()) return false;
        *chunk = next_;
        next_ += static_cast<int>(direction_);
        --left_;
        return true;
    }
    // Whether there seems to be one more that this thread may take.
    bool seems_to_have_more() const { return left_ > 0 || (is_shared_ && are_some_left()); }
    // How many were taken, of a job of the team's.
    int num_taken() const { return num_taken_; }

private:
    bool take_some();
    static bool are_some_left();

    Direction direction_ = Direction::up;
    bool is_shared_ = false;
    int next_ = 0, left_ = 0, num_taken_ = 0;
};

// Does chunks until there are no more to take.
using Work = void (*)(void* context, Chunks& chunks);

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

// As run_job, for any callable (Chunks&) that does all it can take.
template <class Callable>
void each_thread(int num_chunks, int64_t nanoseconds, Callable&& callable, const Coming& coming = {}) {
    auto work = [](void* context, Chunks& chunks) {
        (*static_cast<std::remove_reference_t<Callable>*>(context))(chunks);
    };
    run_job(work, &callable, num_chunks, nanoseconds, coming);
}

// As run_job, for any callable (int chunk, Direction).
template <class Callable>
void parallel(int num_chunks, int64_t nanoseconds, Callable&& callable, const Coming& coming = {}) {
    auto all = [&](Chunks& chunks) {
        for (int chunk; chunks.take(&chunk);) callable(chunk, chunks.direction());
    };
    each_thread(num_chunks, nanoseconds, all, coming);
}

}  // namespace transduce
