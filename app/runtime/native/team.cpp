#include "team.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>

#include "matrix_tiles.h"

namespace transduce {
namespace {

// A job below this is done before a helper has seen it.
constexpr int64_t LEAST_SHARED_NS = 1500;
// Waking a sleeping thread takes a system call here and some microseconds there.
constexpr int64_t LEAST_WAKING_NS = 8000;
// A wait longer than this is for a thread that the kernel has put aside: give it this core.
constexpr int64_t YIELD_AFTER_NS = 20000;
// Chunks that are taken at once last no longer than this.
constexpr int64_t MOST_TOGETHER_NS = 10000;
constexpr int MAX_HELPERS = 255;
constexpr int SPINS_A_LOOK = 32;
// Lines that are asked for between two looks for a job.
constexpr uint32_t LINES_A_LOOK = 4, LINE = 64;

int64_t now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// The job's number and its chunks [front, back) that nobody has taken, in one word: whoever swaps it has the
// chunk, and a thread that still looks at an older job never succeeds.
struct Ticket {
    uint32_t job;
    uint16_t front, back;

    explicit Ticket(uint64_t word) : job(word >> 32), front(word >> 16), back(word) {}
    Ticket(uint32_t job, uint16_t front, uint16_t back) : job(job), front(front), back(back) {}
    uint64_t word() const { return uint64_t(job) << 32 | uint64_t(front) << 16 | back; }
};

// Without destructors: helpers may still look at it while the process ends.
struct alignas(64) Team {
    alignas(64) std::atomic<uint64_t> ticket{0};
    alignas(64) Work work{nullptr};
    void* context{nullptr};
    // Chunks that a thread takes at once at most.
    std::atomic<int> most_together{1};
    // Coming, word by word: memory that is asked for in vain harms nothing.
    std::atomic<const char*> coming_up{nullptr}, coming_down{nullptr};
    std::atomic<uint32_t> coming_piece{1}, coming_bytes{0};
    alignas(64) std::atomic<int> num_done{0};
    alignas(64) std::atomic<bool> is_taken{false};
    alignas(64) std::atomic<int> num_sleeping{0};
    std::atomic<uint32_t> wakes{0};
    std::atomic<int> num_wanted{0};
    // Threads that may work on a job now, the caller among them; the other helpers sleep.
    std::atomic<int> share{INT_MAX};
    std::atomic<int> num_alive{0};
    std::atomic<int64_t> spin_ns{150000};
};

Team team;

// Takes some chunks from one end, fewer the fewer are left. Returns how many; *chunk is the first of them.
int take(Direction direction, int* chunk) {
    uint64_t word = team.ticket.load(std::memory_order_acquire);
    for (;;) {
        Ticket ticket(word);
        if (ticket.front >= ticket.back) return 0;
        // Read before the swap: once it succeeds, they are of the job that the word was of.
        int most = team.most_together.load(std::memory_order_relaxed);
        int count = std::clamp((ticket.back - ticket.front) / (2 * num_threads()), 1, most);
        if (direction == Direction::up) {
            *chunk = ticket.front;
            ticket.front = uint16_t(ticket.front + count);
        } else {
            ticket.back = uint16_t(ticket.back - count);
            *chunk = ticket.back + count - 1;
        }
        if (team.ticket.compare_exchange_weak(word, ticket.word(), std::memory_order_acq_rel)) return count;
    }
}

// Returns how many chunks this thread has done.
int work_off(Direction direction) {
    Chunks chunks(direction);
    // Read once a chunk is taken: then they stay this job's until it is done.
    if (chunks.has_more()) team.work(team.context, chunks);
    return chunks.num_taken();
}

bool may_help(int index) { return index < num_threads() - 1; }

bool has_chunks() {
    Ticket ticket(team.ticket.load(std::memory_order_seq_cst));
    return ticket.front < ticket.back;
}

void sleep_until_woken(int index) {
    team.num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    uint32_t seen = team.wakes.load(std::memory_order_seq_cst);
    bool has_work = has_chunks() && may_help(index);
    if (!has_work && index < team.num_wanted.load(std::memory_order_seq_cst)) {
        syscall(SYS_futex, &team.wakes, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    team.num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void wake() {
    team.wakes.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &team.wakes, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Memory that comes, as a thread that waits for it asks for it, bit by bit.
class Asking {
public:
    explicit Asking(Direction direction) : direction_(direction) {}
    // Asks for some lines, or, where all have been asked for, only lets some time pass.
    void wait() {
        const auto& coming = direction_ == Direction::up ? team.coming_up : team.coming_down;
        const char* from = coming.load(std::memory_order_relaxed);
        if (from != from_) {
            from_ = from;
            pieces_ = at_ = 0;
        }
        if (pieces_ + at_ >= team.coming_bytes.load(std::memory_order_relaxed)) return _mm_pause();
        from += static_cast<int>(direction_) * int64_t(pieces_) + at_;
        for (uint32_t i = 0; i < LINES_A_LOOK; ++i) _mm_prefetch(from + i * LINE, _MM_HINT_T1);
        at_ += LINES_A_LOOK * LINE;
        uint32_t piece = team.coming_piece.load(std::memory_order_relaxed);
        if (at_ < piece) return;
        pieces_ += piece;
        at_ = 0;
    }

private:
    Direction direction_;
    const char* from_ = nullptr;
    // Bytes of the pieces before, and of this one.
    uint32_t pieces_ = 0, at_ = 0;
};

void* help(void* argument) {
    int index = static_cast<int>(reinterpret_cast<intptr_t>(argument));
    int64_t last = now_ns();
    Asking asking(Direction::down);
    while (index < team.num_wanted.load(std::memory_order_relaxed)) {
        for (int i = 0; i < SPINS_A_LOOK && !has_chunks(); ++i) asking.wait();
        bool is_idle = !may_help(index);
        int count = is_idle ? 0 : work_off(Direction::down);
        if (count) {
            team.num_done.fetch_add(count, std::memory_order_release);
            last = now_ns();
        } else if (is_idle || now_ns() - last > team.spin_ns.load(std::memory_order_relaxed)) {
            release_matrix_tiles();
            sleep_until_woken(index);
            last = now_ns();
        }
    }
    release_matrix_tiles();
    team.num_alive.fetch_sub(1);
    return nullptr;
}

bool start_helper(int index) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    bool has_started = pthread_create(&thread, nullptr, help, reinterpret_cast<void*>(intptr_t(index))) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (has_started) pthread_detach(thread);
    return has_started;
}

void work_alone(Work work, void* context, int num_chunks) {
    Chunks chunks(num_chunks);
    work(context, chunks);
}

void wait_for(int count) {
    int64_t since = 0;
    Asking asking(Direction::up);
    for (int i = 1; team.num_done.load(std::memory_order_acquire) != count; ++i) {
        asking.wait();
        if (i % SPINS_A_LOOK) continue;
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
    Ticket ticket(team.ticket.load(std::memory_order_relaxed));
    return ticket.front < ticket.back;
}

int num_threads() {
    return std::min(team.num_wanted.load(std::memory_order_relaxed) + 1, team.share.load(std::memory_order_relaxed));
}

void run_job(Work work, void* context, int num_chunks, int64_t nanoseconds, const Coming& coming) {
    bool is_shared = num_chunks > 1 && num_chunks <= MAX_CHUNKS && nanoseconds >= LEAST_SHARED_NS &&
                     num_threads() > 1;
    if (!is_shared || team.is_taken.exchange(true, std::memory_order_acquire)) {
        return work_alone(work, context, num_chunks);
    }
    team.work = work;
    team.context = context;
    if (coming.bytes) {
        team.coming_up.store(coming.up, std::memory_order_relaxed);
        team.coming_down.store(coming.down, std::memory_order_relaxed);
        team.coming_piece.store(coming.piece, std::memory_order_relaxed);
        team.coming_bytes.store(coming.bytes, std::memory_order_relaxed);
    }
    int64_t most = MOST_TOGETHER_NS * num_chunks / nanoseconds;
    team.most_together.store(int(std::clamp<int64_t>(most, 1, MAX_CHUNKS)), std::memory_order_relaxed);
    team.num_done.store(0, std::memory_order_relaxed);
    Ticket last(team.ticket.load(std::memory_order_relaxed));
    team.ticket.store(Ticket(last.job + 1, 0, num_chunks).word(), std::memory_order_seq_cst);
    int num_awake = team.num_wanted.load(std::memory_order_relaxed) - team.num_sleeping.load(std::memory_order_seq_cst);
    if (nanoseconds >= LEAST_WAKING_NS && num_awake < num_threads() - 1) wake();
    wait_for(num_chunks - work_off(Direction::up));
    team.is_taken.store(false, std::memory_order_release);
}

}  // namespace transduce

// How many threads work on a job: the caller and num_threads - 1 helpers. Returns how many there are then,
// which is less where the system gives no more threads. Not to be called from two threads at once.
extern "C" __attribute__((visibility("default"))) int transduce_set_num_threads(int num_threads) {
    using namespace transduce;
    int wanted = num_threads < 1 ? 0 : num_threads - 1 > MAX_HELPERS ? MAX_HELPERS : num_threads - 1;
    int before = team.num_wanted.exchange(wanted);
    wake();
    while (before > wanted && team.num_alive.load() > wanted) sched_yield();
    for (int index = before; index < wanted; ++index) {
        team.num_alive.fetch_add(1);
        if (start_helper(index)) continue;
        team.num_alive.fetch_sub(1);
        team.num_wanted.store(index);
        return index + 1;
    }
    return wanted + 1;
}

// How long a helper looks for the next job before it sleeps.
extern "C" __attribute__((visibility("default"))) void transduce_set_spin_us(int microseconds) {
    transduce::team.spin_ns.store(int64_t(microseconds < 0 ? 0 : microseconds) * 1000);
}

// Have this part of the threads work on jobs from the next one on: 1/num_sharing of them, at least one. Not to be
// called while a job is under way.
extern "C" __attribute__((visibility("default"))) void transduce_share_threads(int num_sharing) {
    using namespace transduce;
    int all = team.num_wanted.load(std::memory_order_relaxed) + 1;
    team.share.store(num_sharing <= 1 ? INT_MAX : std::max(1, all / num_sharing), std::memory_order_relaxed);
}
