#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace transduce {

// One anonymous mapping. The system provides its pages when they are first written.
struct Region {
    char* start;
    size_t bytes;
    size_t used = 0;

    explicit Region(size_t min_bytes);
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() { munmap(start, bytes); }
};

namespace {

constexpr size_t LINE = 64;
constexpr size_t HUGE_PAGE = 2 << 20;
constexpr size_t REGION_BYTES = 64 << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The region that the next Buffer is taken from. Locked, because several threads may make sessions at once.
std::mutex mutex;
std::weak_ptr<Region> current;

// Indexed by ScratchLevel.
thread_local std::unique_ptr<Region> scratch[2];

}  // namespace

Region::Region(size_t min_bytes) : bytes(round_up(min_bytes, HUGE_PAGE)) {
    size_t reserved = bytes + HUGE_PAGE;
    void* mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    start = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(mapped), HUGE_PAGE));
    size_t before = start - static_cast<char*>(mapped);
    if (before) munmap(mapped, before);
    if (before < HUGE_PAGE) munmap(start + bytes, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(start, bytes, MADV_HUGEPAGE);
#endif
}

Buffer::Buffer(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    bytes = round_up(bytes, LINE);
    region_ = current.lock();
    if (!region_ || region_->bytes - region_->used < bytes) {
        region_ = std::make_shared<Region>(std::max(bytes, REGION_BYTES));
        current = region_;
    }
    data_ = region_->start + region_->used;
    region_->used += bytes;
}

Scratch::Scratch(size_t bytes, ScratchLevel level) {
    std::unique_ptr<Region>& region = scratch[static_cast<int>(level)];
    if (!region || region->bytes < bytes) {
        region.reset();
        region = std::make_unique<Region>(bytes + bytes / 2);
    }
    next_ = region->start;
}

}  // namespace transduce
