// Top-k log-probabilities of rows of logits. Logits are scanned in spans of ids, each soon after it was computed.
#pragma once

#include <cstdint>

#include "linear.h"

namespace transduce {

constexpr int MAX_CANDIDATES = 64;

// Stands for no id.
constexpr int64_t NO_ID = -1;

// Panels (of 64 ids each) of the embedding table whose logits are scanned together, and the number of their ids. If
// larger, the logits of many rows are evicted from the cache before they are scanned.
constexpr int SPAN_PANELS = 8;
constexpr int64_t SPAN_IDS = SPAN_PANELS * PANEL;

constexpr int64_t num_spans(int64_t vocab_size) { return (vocab_size + SPAN_IDS - 1) / SPAN_IDS; }

// The largest logit so far of each of 64 classes of ids (id modulo 64), and a bound that the logits of at least k ids
// reach (k: of scan_span). A span that cannot have one of the k best logits does not change the largest logits.
struct alignas(64) ClassMaxima {
    float largest[PANEL];
    float bound;

    ClassMaxima();
};

// Summary of one span of a row's logits. For each of 16 lanes: the largest logit, and the sum of e^(logit - largest).
// The logits of at least k ids of the row reach `bound`. hits: one bit for each 16 ids; set if one of them may be among
// the row's k best. Only `bound` and `hits` depend on the row's earlier spans.
struct alignas(64) LogitSpan {
    float maxima[LANES], sums[LANES];
    float bound;
    uint32_t hits;
};
static_assert(SPAN_IDS <= 32 * LANES, "hits has too few bits");

// Returns a bound on the difference of two logits whose log-probabilities may be rounded to the same number.
// max_magnitude: no logit exceeds this magnitude.
float rounding_slack(float max_magnitude);

// Scans a span's logits (count,) for the row's k best. slack: of rounding_slack. class_maxima: of the row's earlier
// spans, or new. hits_out: (count,) receives, in their places, the groups of 16 logits with a hit; nullptr: nothing is
// written. next: the logits of the next call, which are prefetched.
LogitSpan scan_span(const float* logits, int64_t count, int64_t k, float slack, ClassMaxima& class_maxima,
                    float* hits_out, const float* next);

// Finds the k largest log-probabilities of one row, in descending order. Of equal ones the smaller id comes first.
//
// spans: (num_spans(vocab_size),). logits: (vocab_size,), valid where a span has hits. If wants_distributions, all
// logits must be valid and are replaced by the natural log-softmax. k <= min(MAX_CANDIDATES, vocab_size). A row with
// NaN or infinity, or with only negative infinity, gives NaN and the ids 0..k-1, also excluded_id. Otherwise
// excluded_id is left out, unless the vocabulary has fewer than k other ids: then it is last, with negative infinity.
// If excluded_id is not NO_ID, the spans must have been scanned for k + 1 <= MAX_CANDIDATES.
void select_top_k(const LogitSpan* spans, float* logits, int64_t vocab_size, int64_t k, bool wants_distributions,
                  int64_t excluded_id, float* log_probabilities, int64_t* ids);

}  // namespace transduce
