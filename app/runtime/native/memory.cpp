#include "memory.h"

#include <sys/mman.h>

#include <new>

namespace transduce {
namespace {

constexpr size_t HUGE_PAGE = 2 << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

thread_local Block scratch;

}  // namespace

Block::Block(size_t bytes) : bytes_(round_up(bytes ? bytes : 1, 4096)) {
    bool is_large = bytes_ >= HUGE_PAGE / 2;
    if (is_large) bytes_ = round_up(bytes_, HUGE_PAGE);
    size_t reserved = is_large ? bytes_ + HUGE_PAGE : bytes_;
    void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    data_ = start;
    if (!is_large) return;
    char* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(start), HUGE_PAGE));
    size_t before = aligned - static_cast<char*>(start);
    if (before) munmap(start, before);
    if (reserved - before > bytes_) munmap(aligned + bytes_, reserved - before - bytes_);
    madvise(aligned, bytes_, MADV_HUGEPAGE);
    data_ = aligned;
}

Block::~Block() {
    if (data_) munmap(data_, bytes_);
}

Scratch::Scratch(size_t bytes) {
    if (scratch.bytes() < bytes) {
        scratch = Block();
        scratch = Block(bytes + bytes / 2);
    }
    next_ = scratch.as<char>();
}

}  // namespace transduce
