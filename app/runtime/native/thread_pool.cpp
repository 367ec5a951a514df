#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>

#include "hints.h"
#include "matrix_tiles.h"
#include "wait.h"

namespace transduce {
namespace {

// Workers take part in a job only if its cost on one thread is at least this, in ns. A shorter job is done before a
// worker sees it.
constexpr int64_t MIN_SHARED_NS = 1500;
// Sleeping workers are woken only if a job's cost on one thread is at least this, in ns. A wake-up costs the caller a
// system call, and the worker runs some microseconds later.
constexpr int64_t MIN_WAKING_NS = 8000;
// Time, in ns, that the caller waits for other threads before it yields its core. A thread that takes longer was
// descheduled.
constexpr int64_t YIELD_AFTER_NS = 20000;
// Maximum cost, in ns, of the chunks that a thread takes at once. If larger, threads end at different times. If
// smaller, they contend for the queue.
constexpr int64_t MAX_BATCH_NS = 10000;
constexpr int MAX_WORKERS = 255;
// Spins between two reads of the clock.
constexpr int SPINS_PER_CHECK = 32;
// Cache lines prefetched between two checks for a job, and bytes of a line.
constexpr uint32_t LINES_PER_CHECK = 4, LINE = 64;

int64_t now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// The current job's number and its chunks [front, back) that no thread has taken, in one word. A thread takes chunks by
// compare-and-swap of the word. The number makes the swap fail for a thread that has read the word of an older job.
struct ChunkQueue {
    uint32_t job_number;
    uint16_t front, back;

    explicit ChunkQueue(uint64_t word) : job_number(word >> 32), front(word >> 16), back(word) {}
    ChunkQueue(uint32_t job_number, uint16_t front, uint16_t back) : job_number(job_number), front(front), back(back) {}
    uint64_t word() const { return uint64_t(job_number) << 32 | uint64_t(front) << 16 | back; }
};

// The first exception that a job's chunks throw. Lives on the caller's stack for the time of the job.
class Failure {
public:
    void record(std::exception_ptr error) {
        if (!is_recorded_.exchange(true, std::memory_order_relaxed)) error_ = std::move(error);
    }
    // Call when all chunks are done.
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    std::atomic<bool> is_recorded_{false};
    std::exception_ptr error_;
};

// The state of the process's pool. It has no destructor, because workers may still read it while the process ends.
struct alignas(64) ThreadPool {
    // A ChunkQueue.
    alignas(64) std::atomic<uint64_t> queue{0};
    alignas(64) Job job{nullptr};
    void* context{nullptr};
    Failure* failure{nullptr};
    // Maximum number of chunks that a thread takes at once.
    std::atomic<int> max_batch{1};
    // The fields of Prefetch, stored one by one. prefetch_piece and prefetch_bytes are in bytes. A thread that reads a
    // mixture of two jobs' values prefetches the wrong memory, which does no harm.
    std::atomic<const char*> prefetch_up{nullptr}, prefetch_down{nullptr};
    std::atomic<uint32_t> prefetch_piece{1}, prefetch_bytes{0};
    // Chunks that workers have finished.
    alignas(64) std::atomic<int> num_done{0};
    alignas(64) std::atomic<bool> is_busy{false};
    alignas(64) std::atomic<int> num_sleeping{0};
    std::atomic<uint32_t> wake_count{0};
    // Workers that should exist. A worker whose index is this number or larger ends.
    std::atomic<int> num_workers{0};
    // Threads that may work on a job now, including the caller. The other workers sleep.
    std::atomic<int> max_active{INT_MAX};
    // Workers that have not ended.
    std::atomic<int> num_alive{0};
    // Time that a worker looks for the next job before it sleeps.
    std::atomic<int64_t> spin_ns{150000};
};

ThreadPool pool;

// Takes chunks from one end. It takes fewer as fewer are left, so that all threads end together. Returns the number of
// chunks, 0 if none is left, and stores the first one in *chunk.
int take(Direction direction, int* chunk) {
    uint64_t word = pool.queue.load(std::memory_order_acquire);
    for (;;) {
        ChunkQueue queue(word);
        if (queue.front >= queue.back) return 0;
        // Read before the swap: if the swap succeeds, the value belongs to the same job as the word.
        int max_count = pool.max_batch.load(std::memory_order_relaxed);
        int count = std::clamp((queue.back - queue.front) / (2 * num_threads()), 1, max_count);
        if (direction == Direction::up) {
            *chunk = queue.front;
            queue.front = uint16_t(queue.front + count);
        } else {
            queue.back = uint16_t(queue.back - count);
            *chunk = queue.back + count - 1;
        }
        if (pool.queue.compare_exchange_weak(word, queue.word(), std::memory_order_acq_rel)) return count;
    }
}

// Runs chunks of the current job until none is left. Returns how many this thread has taken. If the job throws, takes
// the chunks that are left as well and runs none of them, so that no thread waits for them.
int run_chunks(Direction direction) {
    Chunks chunks(direction);
    // The pool's job, context and failure, which are read below, do not change before the claimed chunk is done.
    if (!chunks.claim()) return 0;
    try {
        pool.job(pool.context, chunks);
    } catch (...) {
        pool.failure->record(std::current_exception());
        chunks.discard();
    }
    return chunks.num_taken();
}

bool is_active(int index) { return index < num_threads() - 1; }

bool has_chunks() {
    ChunkQueue queue(pool.queue.load(std::memory_order_seq_cst));
    return queue.front < queue.back;
}

void sleep_until_woken(int index) {
    pool.num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    uint32_t seen = pool.wake_count.load(std::memory_order_seq_cst);
    bool has_job = has_chunks() && is_active(index);
    if (!has_job && index < pool.num_workers.load(std::memory_order_seq_cst)) {
        wait_for_change(pool.wake_count, seen);
    }
    pool.num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void wake() {
    pool.wake_count.fetch_add(1, std::memory_order_seq_cst);
    wake_all(pool.wake_count);
}

// Prefetches the next job's memory line by line while a thread waits.
class Prefetcher {
public:
    explicit Prefetcher(Direction direction) : direction_(direction) {}
    // Prefetches some lines, or pauses if all have been prefetched.
    void wait() {
        const auto& address = direction_ == Direction::up ? pool.prefetch_up : pool.prefetch_down;
        const char* from = address.load(std::memory_order_relaxed);
        if (from != from_) {
            from_ = from;
            bytes_before_ = at_ = 0;
        }
        if (bytes_before_ + at_ >= pool.prefetch_bytes.load(std::memory_order_relaxed)) return pause();
        from += static_cast<int>(direction_) * int64_t(bytes_before_) + at_;
        for (uint32_t i = 0; i < LINES_PER_CHECK; ++i) prefetch_l2(from + i * LINE);
        at_ += LINES_PER_CHECK * LINE;
        uint32_t piece = pool.prefetch_piece.load(std::memory_order_relaxed);
        if (at_ < piece) return;
        bytes_before_ += piece;
        at_ = 0;
    }

private:
    Direction direction_;
    const char* from_ = nullptr;
    // Bytes of the pieces prefetched before the current one, and bytes prefetched of the current one.
    uint32_t bytes_before_ = 0, at_ = 0;
};

void* worker_loop(void* argument) {
    int index = static_cast<int>(reinterpret_cast<intptr_t>(argument));
    int64_t last = now_ns();
    Prefetcher prefetcher(Direction::down);
    while (index < pool.num_workers.load(std::memory_order_relaxed)) {
        for (int i = 0; i < SPINS_PER_CHECK && !has_chunks(); ++i) prefetcher.wait();
        bool is_idle = !is_active(index);
        int count = is_idle ? 0 : run_chunks(Direction::down);
        if (count) {
            pool.num_done.fetch_add(count, std::memory_order_release);
            last = now_ns();
        } else if (is_idle || now_ns() - last > pool.spin_ns.load(std::memory_order_relaxed)) {
            release_matrix_tiles();
            sleep_until_woken(index);
            last = now_ns();
        }
    }
    release_matrix_tiles();
    pool.num_alive.fetch_sub(1);
    return nullptr;
}

bool start_worker(int index) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    bool has_started = pthread_create(&thread, nullptr, worker_loop, reinterpret_cast<void*>(intptr_t(index))) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (has_started) pthread_detach(thread);
    return has_started;
}

void run_alone(Job job, void* context, int num_chunks) {
    Chunks chunks(num_chunks);
    job(context, chunks);
}

// Waits until the workers have finished `count` chunks of the job.
void wait_for(int count) {
    int64_t since = 0;
    Prefetcher prefetcher(Direction::up);
    for (int i = 1; pool.num_done.load(std::memory_order_acquire) != count; ++i) {
        prefetcher.wait();
        if (i % SPINS_PER_CHECK) continue;
        if (since == 0) since = now_ns();
        if (now_ns() - since > YIELD_AFTER_NS) sched_yield();
    }
}

}  // namespace

bool Chunks::take_some() {
    left_ = transduce::take(direction_, &next_);
    num_taken_ += left_;
    return left_ > 0;
}

bool Chunks::are_some_left() {
    ChunkQueue queue(pool.queue.load(std::memory_order_relaxed));
    return queue.front < queue.back;
}

int num_threads() {
    return std::min(pool.num_workers.load(std::memory_order_relaxed) + 1,
                    pool.max_active.load(std::memory_order_relaxed));
}

void run_job(Job job, void* context, int num_chunks, int64_t nanoseconds, const Prefetch& prefetch) {
    bool is_worth_sharing = num_chunks > 1 && num_chunks <= MAX_CHUNKS && nanoseconds >= MIN_SHARED_NS;
    bool is_shared = is_worth_sharing && !runs_own_rows && num_threads() > 1;
    if (!is_shared || pool.is_busy.exchange(true, std::memory_order_acquire)) {
        return run_alone(job, context, num_chunks);
    }
    Failure failure;
    pool.failure = &failure;
    pool.job = job;
    pool.context = context;
    if (prefetch.bytes) {
        pool.prefetch_up.store(prefetch.up, std::memory_order_relaxed);
        pool.prefetch_down.store(prefetch.down, std::memory_order_relaxed);
        pool.prefetch_piece.store(prefetch.piece, std::memory_order_relaxed);
        pool.prefetch_bytes.store(prefetch.bytes, std::memory_order_relaxed);
    }
    int64_t max_batch = MAX_BATCH_NS * num_chunks / nanoseconds;
    pool.max_batch.store(int(std::clamp<int64_t>(max_batch, 1, MAX_CHUNKS)), std::memory_order_relaxed);
    pool.num_done.store(0, std::memory_order_relaxed);
    ChunkQueue last(pool.queue.load(std::memory_order_relaxed));
    pool.queue.store(ChunkQueue(last.job_number + 1, 0, num_chunks).word(), std::memory_order_seq_cst);
    int num_awake =
        pool.num_workers.load(std::memory_order_relaxed) - pool.num_sleeping.load(std::memory_order_seq_cst);
    if (nanoseconds >= MIN_WAKING_NS && num_awake < num_threads() - 1) wake();
    wait_for(num_chunks - run_chunks(Direction::up));
    pool.is_busy.store(false, std::memory_order_release);
    failure.rethrow();
}

}  // namespace transduce

// Sets the number of threads that work on a job: the caller and num_threads - 1 workers, of which there are 0 to
// MAX_WORKERS. Returns the number of threads that work on a job from now on. It is smaller than num_threads if the
// system refuses more threads. Must not be called from two threads at once.
extern "C" __attribute__((visibility("default"))) int transduce_set_num_threads(int num_threads) {
    using namespace transduce;
    int num_wanted = num_threads < 1 ? 0 : num_threads - 1 > MAX_WORKERS ? MAX_WORKERS : num_threads - 1;
    int before = pool.num_workers.exchange(num_wanted);
    wake();
    while (before > num_wanted && pool.num_alive.load() > num_wanted) sched_yield();
    for (int index = before; index < num_wanted; ++index) {
        pool.num_alive.fetch_add(1);
        if (start_worker(index)) continue;
        pool.num_alive.fetch_sub(1);
        pool.num_workers.store(index);
        return index + 1;
    }
    return num_wanted + 1;
}

// Sets how long a worker looks for the next job before it sleeps; initially 150 us. A negative number stands for 0.
extern "C" __attribute__((visibility("default"))) void transduce_set_spin_us(int microseconds) {
    transduce::pool.spin_ns.store(int64_t(microseconds < 0 ? 0 : microseconds) * 1000);
}

// From the next job on, a job runs on 1/num_sharing of the threads, at least one. num_sharing: the number of busy
// processes that share the cores. Must not be called while a job runs.
extern "C" __attribute__((visibility("default"))) void transduce_share_threads(int num_sharing) {
    using namespace transduce;
    int all = pool.num_workers.load(std::memory_order_relaxed) + 1;
    pool.max_active.store(num_sharing <= 1 ? INT_MAX : std::max(1, all / num_sharing), std::memory_order_relaxed);
}
