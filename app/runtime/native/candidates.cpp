#include "candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "simd.h"

namespace transduce {
namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// The largest of each BLOCK_IDS logits into blocks.
void block_maxima(const float* logits, int64_t vocab_size, float* blocks) {
    const __m512 lowest = _mm512_set1_ps(LOWEST);
    for (int64_t begin = 0; begin < vocab_size; begin += BLOCK_IDS) {
        __m512 largest = lowest;
        for (int64_t i = begin; i < std::min(begin + BLOCK_IDS, vocab_size); i += LANES) {
            largest = max16(largest, _mm512_mask_loadu_ps(lowest, first_lanes(vocab_size - i), logits + i));
        }
        blocks[begin / BLOCK_IDS] = _mm512_reduce_max_ps(largest);
    }
}

// The sum of e^(logit - largest).
float sum_of_exponentials(const float* logits, int64_t vocab_size, float largest) {
    const __m512 bound = _mm512_set1_ps(largest), lowest = _mm512_set1_ps(LOWEST);
    __m512 even = _mm512_setzero_ps(), odd = even;
    int64_t i = 0;
    for (; i + 2 * LANES <= vocab_size; i += 2 * LANES) {
        even = _mm512_add_ps(even, exp16(_mm512_sub_ps(load16(logits + i), bound)));
        odd = _mm512_add_ps(odd, exp16(_mm512_sub_ps(load16(logits + i + LANES), bound)));
    }
    for (; i < vocab_size; i += LANES) {
        __m512 values = _mm512_mask_loadu_ps(lowest, first_lanes(vocab_size - i), logits + i);
        even = _mm512_add_ps(even, exp16(_mm512_sub_ps(values, bound)));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

// The k best so far, in order. Ids are offered ascending, so an equal one that comes later stands behind.
struct Best {
    float* values;
    int64_t* ids;
    int64_t k;
    int64_t count = 0;

    bool takes(float value) const { return count < k || value > values[k - 1]; }
    void offer(float value, int64_t id) {
        if (!takes(value)) return;
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && values[at - 1] < value; --at) {
            values[at] = values[at - 1];
            ids[at] = ids[at - 1];
        }
        values[at] = value;
        ids[at] = id;
    }
};

}  // namespace

void choose(float* logits, int64_t vocab_size, int64_t k, bool is_wanted, float* log_probabilities, int64_t* ids,
            float* work) {
    int64_t num_blocks = num_block_floats(vocab_size) / 2;
    float *blocks = work, *sorted = work + num_blocks;
    block_maxima(logits, vocab_size, blocks);
    float largest = *std::max_element(blocks, blocks + num_blocks);
    float log_sum = std::log(sum_of_exponentials(logits, vocab_size, largest));
    const __m512 bound = _mm512_set1_ps(largest), logs = _mm512_set1_ps(log_sum);
    auto log_softmax = [&](__m512 values) { return _mm512_sub_ps(_mm512_sub_ps(values, bound), logs); };
    if (is_wanted) {
        for (int64_t i = 0; i < vocab_size; i += LANES) {
            __mmask16 lanes = first_lanes(vocab_size - i);
            _mm512_mask_storeu_ps(logits + i, lanes, log_softmax(_mm512_maskz_loadu_ps(lanes, logits + i)));
        }
    }
    if (std::isnan(log_sum)) {
        for (int64_t i = 0; i < k; ++i) {
            log_probabilities[i] = std::numeric_limits<float>::quiet_NaN();
            ids[i] = i;
        }
        return;
    }
    // At least k ids reach the k-th largest of the blocks' maxima. Ranked are log-probabilities, which may be equal
    // where logits are not.
    float threshold = LOWEST;
    if (k == 1) {
        threshold = (largest - largest) - log_sum;
    } else if (k <= num_blocks) {
        std::copy(blocks, blocks + num_blocks, sorted);
        std::nth_element(sorted, sorted + (k - 1), sorted + num_blocks, std::greater<float>());
        threshold = (sorted[k - 1] - largest) - log_sum;
    }
    Best best{log_probabilities, ids, k};
    for (int64_t block = 0; block < num_blocks; ++block) {
        float highest = (blocks[block] - largest) - log_sum;
        if (highest < threshold || !best.takes(highest)) continue;
        int64_t end = std::min((block + 1) * BLOCK_IDS, vocab_size);
        for (int64_t i = block * BLOCK_IDS; i < end; i += LANES) {
            __mmask16 lanes = first_lanes(vocab_size - i);
            __m512 values = _mm512_maskz_loadu_ps(lanes, logits + i);
            if (!is_wanted) values = log_softmax(values);
            unsigned found = _mm512_mask_cmp_ps_mask(lanes, values, _mm512_set1_ps(threshold), _CMP_GE_OQ);
            if (!found) continue;
            alignas(64) float each[LANES];
            _mm512_store_ps(each, values);
            for (; found; found &= found - 1) best.offer(each[__builtin_ctz(found)], i + __builtin_ctz(found));
        }
    }
}

}  // namespace transduce
