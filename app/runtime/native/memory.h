// Large aligned memory: weights, and what a call needs in between.
#pragma once

#include <cstddef>
#include <utility>

namespace transduce {

// Zeroed memory of its own, on huge pages where the system has them. Throws std::bad_alloc.
class Block {
public:
    Block() = default;
    explicit Block(size_t bytes);
    Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Block& operator=(Block&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Block();

    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    size_t bytes() const { return data_ ? bytes_ : 0; }

private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

// The calling thread's scratch memory for one call: taken in pieces, all given back with the object. One at a
// time in a thread.
class Scratch {
public:
    // bytes: the sum of what will be taken, each piece rounded up by `piece`.
    explicit Scratch(size_t bytes);

    template <class T>
    T* take(size_t count) {
        T* taken = reinterpret_cast<T*>(next_);
        next_ += piece<T>(count);
        return taken;
    }

    template <class T>
    static constexpr size_t piece(size_t count) {
        return (count * sizeof(T) + 127) / 64 * 64;
    }

private:
    char* next_;
};

}  // namespace transduce
