#include "candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd.h"

namespace transduce {
namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();
constexpr int VECTORS = PANEL / LANES;

// Returns 16 of `count` logits from `at` on, negative infinity past the end.
__m512 load_some(const float* logits, int64_t at, int64_t count) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(LOWEST), first_lanes(count - at), logits + at);
}

// Calls visit(vector, at, logits) for each 16 logits. vector: at / LANES % VECTORS.
template <class Visit>
inline void each_vector(const float* logits, int64_t count, Visit&& visit) {
    int64_t at = 0;
    for (; at + PANEL <= count; at += PANEL) {
        visit(0, at, load16(logits + at));
        visit(1, at + LANES, load16(logits + at + LANES));
        visit(2, at + 2 * LANES, load16(logits + at + 2 * LANES));
        visit(3, at + 3 * LANES, load16(logits + at + 3 * LANES));
    }
    for (int vector = 0; at < count; at += LANES, ++vector) visit(vector, at, load_some(logits, at, count));
}

// Returns the maxima with negative infinity replaced by the lowest number, so that a difference is never NaN.
__m512 finite(__m512 maxima) { return max16(_mm512_set1_ps(std::numeric_limits<float>::lowest()), maxima); }

// Returns the k-th largest number of G vectors, k <= 16 G. It is the smallest number that fewer than k numbers exceed.
template <int G>
float kth_largest(const __m512* vectors, int64_t k) {
    const __m512i one = _mm512_set1_epi32(1);
    alignas(64) float each[G * LANES];
    __m512i above[G];
    for (int i = 0; i < G; ++i) {
        _mm512_store_ps(each + i * LANES, vectors[i]);
        above[i] = _mm512_setzero_si512();
    }
    for (float value : each) {
        __m512 other = _mm512_set1_ps(value);
        for (int i = 0; i < G; ++i) {
            __mmask16 lanes = _mm512_cmp_ps_mask(other, vectors[i], _CMP_GT_OQ);
            above[i] = _mm512_mask_add_epi32(above[i], lanes, above[i], one);
        }
    }
    const __m512 highest = _mm512_set1_ps(-LOWEST);
    __m512 least = highest;
    for (int i = 0; i < G; ++i) {
        __mmask16 lanes = _mm512_cmplt_epi32_mask(above[i], _mm512_set1_epi32(int(k)));
        least = _mm512_min_ps(least, _mm512_mask_mov_ps(highest, lanes, vectors[i]));
    }
    return _mm512_reduce_min_ps(least);
}

// Returns a number that at least k ids reach. It is close to the k-th largest logit, since about 2 k classes are
// compared.
float bound_of(const __m512* largest, int64_t k) {
    __m512 halves[] = {max16(largest[0], largest[2]), max16(largest[1], largest[3])};
    __m512 all = max16(halves[0], halves[1]);
    if (k == 1) return _mm512_reduce_max_ps(all);
    if (k <= LANES / 2) return kth_largest<1>(&all, k);
    if (k <= LANES + 1) return kth_largest<2>(halves, k);
    return kth_largest<4>(largest, k);
}

// Returns bound_of over all spans of a row.
float bound_of_spans(const LogitSpan* spans, int64_t count, int64_t k) {
    constexpr int GROUPS = 2 * MAX_CANDIDATES / LANES;
    __m512 largest[GROUPS];
    std::fill(largest, largest + GROUPS, _mm512_set1_ps(LOWEST));
    for (int64_t i = 0; i < count; ++i) {
        largest[i % GROUPS] = max16(largest[i % GROUPS], load16(spans[i].maxima));
    }
    return kth_largest<GROUPS>(largest, k);
}

// The k best so far, in descending order. Ids are offered in ascending order, so of equal values the smaller id comes
// first.
struct TopKList {
    float* values;
    int64_t* ids;
    int64_t k;
    int64_t count = 0;

    void offer(float value, int64_t id) {
        if (count == k && !(value > values[k - 1])) return;
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

ClassMaxima::ClassMaxima() : bound(LOWEST) { std::fill(largest, largest + PANEL, LOWEST); }

// A log-softmax subtracts twice. With m the largest magnitude and log(V) < 32, the results have magnitudes up to 2 m
// and 2 m + log(V). Each is rounded by at most 2^-24 of itself. Two equal results may differ by one last place before
// rounding. All of these together are less than 2^-22 of 2 m + 32, and the factor leaves a margin of 4.
float rounding_slack(float max_magnitude) { return (2 * max_magnitude + 32) * 0x1p-20f; }

LogitSpan scan_span(const float* logits, int64_t count, int64_t k, float slack, ClassMaxima& class_maxima,
                    float* hits_out, const float* next) {
    LogitSpan span;
    __m512 largest[VECTORS];
    std::fill(largest, largest + VECTORS, _mm512_set1_ps(LOWEST));
    each_vector(logits, count,
                [&](int vector, int64_t, __m512 values) { largest[vector] = max16(largest[vector], values); });
    __m512 maxima = max16(max16(largest[0], largest[1]), max16(largest[2], largest[3]));
    __m512 top = finite(maxima), even = _mm512_setzero_ps(), odd = even;
    each_vector(logits, count, [&](int vector, int64_t at, __m512 values) {
        _mm_prefetch(next + at, _MM_HINT_T0);
        __m512& sum = vector % 2 ? odd : even;
        sum = _mm512_add_ps(sum, exp16_below_0(_mm512_sub_ps(values, top)));
    });
    _mm512_store_ps(span.maxima, maxima);
    _mm512_store_ps(span.sums, _mm512_add_ps(even, odd));
    span.bound = class_maxima.bound;
    span.hits = 0;
    // If the limit is NaN, every group is a hit.
    __m512 limit = _mm512_set1_ps(span.bound - slack);
    if (!_mm512_cmp_ps_mask(maxima, limit, _CMP_NLT_UQ)) return span;
    for (int vector = 0; vector < VECTORS; ++vector) {
        largest[vector] = max16(load16(class_maxima.largest + vector * LANES), largest[vector]);
        store16(class_maxima.largest + vector * LANES, largest[vector]);
    }
    span.bound = class_maxima.bound = bound_of(largest, k);
    limit = _mm512_set1_ps(span.bound - slack);
    each_vector(logits, count, [&](int, int64_t at, __m512 values) {
        span.hits |= uint32_t(_mm512_cmp_ps_mask(values, limit, _CMP_NLT_UQ) != 0) << (at / LANES);
    });
    if (!hits_out) return span;
    for (uint32_t hits = span.hits; hits; hits &= hits - 1) {
        int64_t at = __builtin_ctz(hits) * LANES;
        _mm512_mask_storeu_ps(hits_out + at, first_lanes(count - at), load_some(logits, at, count));
    }
    return span;
}

void select_top_k(const LogitSpan* spans, float* logits, int64_t vocab_size, int64_t k, bool wants_distributions,
                  int64_t excluded_id, float* log_probabilities, int64_t* ids) {
    int64_t num_ranked = k + (excluded_id != NO_ID);
    int64_t count = num_spans(vocab_size);
    __m512 maxima = load16(spans[0].maxima);
    float bound = spans[0].bound;
    for (int64_t i = 1; i < count; ++i) {
        maxima = max16(maxima, load16(spans[i].maxima));
        bound = std::max(bound, spans[i].bound);
    }
    float largest = _mm512_reduce_max_ps(maxima);
    __m512 top = finite(maxima), sums = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; ++i) {
        __m512 scale = exp16_below_0(_mm512_sub_ps(finite(load16(spans[i].maxima)), top));
        sums = _mm512_fmadd_ps(load16(spans[i].sums), scale, sums);
    }
    // If all logits are negative infinity, the sums are 0 and the scale is infinite: the result is NaN.
    sums = _mm512_mul_ps(sums, exp16_below_0(_mm512_sub_ps(top, _mm512_set1_ps(largest))));
    float log_sum = std::log(_mm512_reduce_add_ps(sums));
    const __m512 subtracted = _mm512_set1_ps(largest), logs = _mm512_set1_ps(log_sum);
    auto log_softmax = [&](__m512 values) { return _mm512_sub_ps(_mm512_sub_ps(values, subtracted), logs); };
    if (wants_distributions) {
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
    bound = std::max(bound, num_ranked <= LANES / 2 ? kth_largest<1>(&maxima, num_ranked)
                                                    : bound_of_spans(spans, count, num_ranked));
    // Log-probabilities are ranked: they may be equal where logits are not.
    const __m512 threshold = _mm512_set1_ps((bound - largest) - log_sum);
    TopKList best{log_probabilities, ids, k};
    for (int64_t i = 0; i < count; ++i) {
        for (uint32_t hits = spans[i].hits; hits; hits &= hits - 1) {
            int64_t at = i * SPAN_IDS + __builtin_ctz(hits) * LANES;
            __mmask16 lanes = first_lanes(vocab_size - at);
            __m512 values = _mm512_maskz_loadu_ps(lanes, logits + at);
            if (!wants_distributions) values = log_softmax(values);
            unsigned found = _mm512_mask_cmp_ps_mask(lanes, values, threshold, _CMP_GE_OQ);
            if (!found) continue;
            alignas(64) float each[LANES];
            _mm512_store_ps(each, values);
            for (; found; found &= found - 1) {
                int64_t id = at + __builtin_ctz(found);
                if (id != excluded_id) best.offer(each[__builtin_ctz(found)], id);
            }
        }
    }
    if (best.count < k) best.offer(LOWEST, excluded_id);
}

}  // namespace transduce
