// Time that encoder and decoder spend in each kind of block, summed over the threads that take rows through blocks. A
// thread that only shares a product of a block is not counted. In ONNX Runtime's profile a whole stack is one operator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace transduce {

enum class Stack : int { encoder, decoder };
constexpr int NUM_STACKS = 2;

// self_attention: also an SSRU in its place.
enum class BlockKind : int { embedding, self_attention, cross_attention, feed_forward, cross_cache, candidates };
constexpr int NUM_BLOCK_KINDS = 6;

inline std::atomic<int64_t> block_nanoseconds_spent[NUM_STACKS][NUM_BLOCK_KINDS];

// Measures the blocks that one thread runs, one after another. The first one begins with the object.
class BlockTimer {
public:
    explicit BlockTimer(Stack stack) : spent_(block_nanoseconds_spent[static_cast<int>(stack)]) {}

    // Adds the time since the last call, or since the construction, to this kind of block.
    void add(BlockKind kind) {
        auto now = std::chrono::steady_clock::now();
        int64_t passed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
        spent_[static_cast<int>(kind)].fetch_add(passed, std::memory_order_relaxed);
        last_ = now;
    }

private:
    std::atomic<int64_t>* spent_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace transduce
