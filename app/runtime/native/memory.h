// Large aligned memory: weights, and what a call needs in between.
#pragma once

#include <cstddef>
#include <memory>

namespace transduce {

struct Region;

// Zeroed memory, aligned to a cache line, in a region of huge pages where the system has them. Blocks made one after
// another stand one after another: a model's weights are read in that order. Throws std::bad_alloc.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes);

    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_);
    }

private:
    // The region is given back with the last of its blocks.
    std::shared_ptr<Region> region_;
    char* data_ = nullptr;
};

// What scratch memory is for: one block of a Transformer, or several that follow one another and stand around it.
enum class ScratchLevel { block, step };

// The calling thread's scratch memory for one call: taken in pieces, all given back with the object. One at a
// time in a thread, for each extent.
class Scratch {
public:
    // bytes: the sum of the pieces that will be taken. Throws std::bad_alloc.
    explicit Scratch(size_t bytes, ScratchLevel level = ScratchLevel::block);

    template <class T>
    T* allocate(size_t count) {
        T* memory = reinterpret_cast<T*>(next_);
        next_ += padded_bytes<T>(count);
        return memory;
    }

    // Bytes that `allocate` needs.
    template <class T>
    static constexpr size_t padded_bytes(size_t count) {
        return (count * sizeof(T) + 127) / 64 * 64;
    }

private:
    char* next_;
};

}  // namespace transduce
