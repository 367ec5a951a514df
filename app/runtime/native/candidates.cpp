#include "candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hints.h"
#include "simd.h"

namespace transduce {
namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// Returns 16 of `count` logits from `at` on, negative infinity past the end.
Floats load_some(const float* logits, int64_t at, int64_t count) {
    return load16(logits + at, first_lanes(count - at), all16(LOWEST));
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

// Returns the maxima with negative infinity replaced by the lowest number: negative infinity minus itself would be NaN.
Floats finite(Floats maxima) { return max16(all16(std::numeric_limits<float>::lowest()), maxima); }

// Returns the k-th largest number of G vectors, k <= 16 G. It is the smallest number that fewer than k numbers exceed.
template <int G>
float kth_largest(const Floats* vectors, int64_t k) {
    alignas(64) float each[G * LANES];
    Integers above[G];
    for (int i = 0; i < G; ++i) {
        store16(each + i * LANES, vectors[i]);
        above[i] = all16(0);
    }
    for (float value : each) {
        Floats other = all16(value);
        for (int i = 0; i < G; ++i) above[i] = count16(above[i], is_above16(other, vectors[i]));
    }
    const Floats highest = all16(-LOWEST);
    Floats least = highest;
    for (int i = 0; i < G; ++i) {
        Lanes is_in = is_below16(above[i], all16(int32_t(k)));
        least = min16(least, select16(is_in, vectors[i], highest));
    }
    return least16(least);
}

// Returns a number that the logits of at least k ids reach: the k-th largest of the maxima of 16, 32 or 64 classes of
// ids. It is close to the k-th largest logit, since there are about 2 k classes for usual k.
float bound_of(const Floats* largest, int64_t k) {
    Floats halves[] = {max16(largest[0], largest[2]), max16(largest[1], largest[3])};
    Floats all = max16(halves[0], halves[1]);
    if (k == 1) return largest16(all);
    if (k <= LANES / 2) return kth_largest<1>(&all, k);
    if (k <= LANES + 1) return kth_largest<2>(halves, k);
    return kth_largest<4>(largest, k);
}

// As bound_of, over all spans of a row, by 128 classes of ids.
float bound_of_spans(const LogitSpan* spans, int64_t count, int64_t k) {
    constexpr int GROUPS = 2 * MAX_CANDIDATES / LANES;
    Floats largest[GROUPS];
    std::fill(largest, largest + GROUPS, all16(LOWEST));
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
// and 2 m + log(V). The first result of each logit is rounded by at most 2^-24 of 2 m. If two second results are
// equal, they differ by at most one unit in the last place before they are rounded: 2^-23 of 2 m + 32. Together this is
// less than 2^-22 of 2 m + 32. The returned slack is four times as large.
float rounding_slack(float max_magnitude) { return (2 * max_magnitude + 32) * 0x1p-20f; }

LogitSpan scan_span(const float* logits, int64_t count, int64_t k, float slack, ClassMaxima& class_maxima,
                    float* hits_out, const float* next) {
    LogitSpan span;
    Floats largest[VECTORS];
    std::fill(largest, largest + VECTORS, all16(LOWEST));
    each_vector(logits, count,
                [&](int vector, int64_t, Floats values) { largest[vector] = max16(largest[vector], values); });
    Floats maxima = max16(max16(largest[0], largest[1]), max16(largest[2], largest[3]));
    Floats top = finite(maxima), even = zero16(), odd = even;
    each_vector(logits, count, [&](int vector, int64_t at, Floats values) {
        prefetch_l1(next + at);
        Floats& sum = vector % 2 ? odd : even;
        sum = add16(sum, exp16_below_0(sub16(values, top)));
    });
    store16(span.maxima, maxima);
    store16(span.sums, add16(even, odd));
    span.bound = class_maxima.bound;
    span.hits = 0;
    // If the limit is NaN, every group is a hit.
    Floats limit = all16(span.bound - slack);
    if (!is_any_not_below16(maxima, limit)) return span;
    for (int vector = 0; vector < VECTORS; ++vector) {
        largest[vector] = max16(load16(class_maxima.largest + vector * LANES), largest[vector]);
        store16(class_maxima.largest + vector * LANES, largest[vector]);
    }
    span.bound = class_maxima.bound = bound_of(largest, k);
    limit = all16(span.bound - slack);
    each_vector(logits, count, [&](int, int64_t at, Floats values) {
        span.hits |= uint32_t(is_any_not_below16(values, limit)) << (at / LANES);
    });
    if (!hits_out) return span;
    for (uint32_t hits = span.hits; hits; hits &= hits - 1) {
        int64_t at = __builtin_ctz(hits) * LANES;
        store16(hits_out + at, load_some(logits, at, count), first_lanes(count - at));
    }
    return span;
}

void select_top_k(const LogitSpan* spans, float* logits, int64_t vocab_size, int64_t k, bool wants_distributions,
                  int64_t excluded_id, float* log_probabilities, int64_t* ids) {
    int64_t num_ranked = k + (excluded_id != NO_ID);
    int64_t count = num_spans(vocab_size);
    Floats maxima = load16(spans[0].maxima);
    float bound = spans[0].bound;
    for (int64_t i = 1; i < count; ++i) {
        maxima = max16(maxima, load16(spans[i].maxima));
        bound = std::max(bound, spans[i].bound);
    }
    float largest = largest16(maxima);
    Floats top = finite(maxima), sums = zero16();
    for (int64_t i = 0; i < count; ++i) {
        Floats scale = exp16_below_0(sub16(finite(load16(spans[i].maxima)), top));
        sums = fma16(load16(spans[i].sums), scale, sums);
    }
    // If all logits are negative infinity, the sums are 0 and the factor is infinite: the product is NaN.
    sums = mul16(sums, exp16_below_0(sub16(top, all16(largest))));
    float log_sum = std::log(sum16(sums));
    const Floats subtracted = all16(largest), logs = all16(log_sum);
    auto log_softmax = [&](Floats values) { return sub16(sub16(values, subtracted), logs); };
    if (wants_distributions) {
        for (int64_t i = 0; i < vocab_size; i += LANES) {
            FirstLanes lanes = first_lanes(vocab_size - i);
            store16(logits + i, log_softmax(load16(logits + i, lanes)), lanes);
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
    const Floats threshold = all16((bound - largest) - log_sum);
    TopKList best{log_probabilities, ids, k};
    for (int64_t i = 0; i < count; ++i) {
        for (uint32_t hits = spans[i].hits; hits; hits &= hits - 1) {
            int64_t at = i * SPAN_IDS + __builtin_ctz(hits) * LANES;
            FirstLanes lanes = first_lanes(vocab_size - at);
            Floats values = load16(logits + at, lanes);
            if (!wants_distributions) values = log_softmax(values);
            unsigned bits = bits_at_least16(lanes, values, threshold);
            if (!bits) continue;
            alignas(64) float each[LANES];
            store16(each, values);
            for (; bits; bits &= bits - 1) {
                int64_t id = at + __builtin_ctz(bits);
                if (id != excluded_id) best.offer(each[__builtin_ctz(bits)], id);
            }
        }
    }
    if (best.count < k) best.offer(LOWEST, excluded_id);
}

}  // namespace transduce
