// The most probable subwords of a row.
#pragma once

#include <cstdint>

namespace transduce {

constexpr int MAX_CANDIDATES = 64;

// The k largest log-probabilities of one row, descending, of equal ones the smaller id first.
//
// logits: (vocab_size,), overwritten by the natural log-softmax where `is_wanted`. k <= min(MAX_CANDIDATES,
// vocab_size). A row that holds NaN gives NaN and the ids 0..k-1. work: room for num_block_floats(vocab_size).
void choose(float* logits, int64_t vocab_size, int64_t k, bool is_wanted, float* log_probabilities, int64_t* ids,
            float* work);

// Ids whose largest logit is found first, so that few are looked at again.
constexpr int64_t BLOCK_IDS = 64;

constexpr int64_t num_block_floats(int64_t vocab_size) { return (vocab_size + BLOCK_IDS - 1) / BLOCK_IDS * 2; }

}  // namespace transduce
