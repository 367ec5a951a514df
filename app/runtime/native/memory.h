// Large aligned memory: buffers for weights, and scratch memory for calls.
#pragma once

#include <cstddef>
#include <memory>

namespace transduce {

// Zeroed memory, aligned to a cache line, in a region of huge pages if the system has them. Buffers that are made one
// after another are adjacent, because a model reads its weights in that order. Copies of a Buffer share its memory, and
// the last of them gives its pages back to the system. Throws std::bad_alloc.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes);

    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_.get());
    }

private:
    std::shared_ptr<char> data_;
};

// The two nested levels of scratch memory of one call. step: of a whole encoder or decoder. block: of one block inside.
enum class ScratchLevel { block, step };

// The calling thread's scratch memory, valid until the thread's next Scratch of the same level. A thread has at most
// one of each level at a time. The memory is kept for later calls.
class Scratch {
public:
    // bytes: the sum of padded_bytes of all allocations. Throws std::bad_alloc.
    explicit Scratch(size_t bytes, ScratchLevel level = ScratchLevel::block);

    template <class T>
    T* allocate(size_t count) {
        T* memory = reinterpret_cast<T*>(next_);
        next_ += padded_bytes<T>(count);
        return memory;
    }

    // Returns the bytes that `allocate` uses.
    template <class T>
    static constexpr size_t padded_bytes(size_t count) {
        return (count * sizeof(T) + 127) / 64 * 64;
    }

private:
    char* next_;
};

}  // namespace transduce
