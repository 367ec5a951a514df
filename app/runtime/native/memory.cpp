#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace transduce {

// One anonymous mapping. The system provides its pages when they are first written. It is unmapped with the last of its
// buffers.
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

// Gives the pages back that are wholly within this memory. Another model's buffers may still need the region.
void release_pages(char* start, size_t bytes) {
    static const size_t page = size_t(sysconf(_SC_PAGESIZE));
    size_t first = round_up(reinterpret_cast<size_t>(start), page);
    size_t end = (reinterpret_cast<size_t>(start) + bytes) / page * page;
    if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

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
    std::shared_ptr<Region> region = current.lock();
    if (!region || region->bytes - region->used < bytes) {
        region = std::make_shared<Region>(std::max(bytes, REGION_BYTES));
        current = region;
    }
    data_ = std::shared_ptr<char>(region->start + region->used,
                                  [region, bytes](char* start) { release_pages(start, bytes); });
    region->used += bytes;
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
