// The most probable subwords of rows, found while the logits are made, a span of ids after the other.
#pragma once

#include <cstdint>

#include "linear.h"

namespace transduce {

constexpr int MAX_CANDIDATES = 64;

// No subword's id.
constexpr int64_t NO_ID = -1;

// Panels of the table whose logits are looked at together, soon after they were made; their ids.
constexpr int SPAN_PANELS = 8;
constexpr int64_t SPAN_IDS = SPAN_PANELS * PANEL;

constexpr int64_t num_spans(int64_t vocab_size) { return (vocab_size + SPAN_IDS - 1) / SPAN_IDS; }

// The largest logits so far of ids that stand alike, in 64 classes, and what at least k of them reach.
struct alignas(64) ClassMaxima {
    float largest[PANEL];
    float bound;

    ClassMaxima();
};

// What one span of a row's logits comes to, whatever was known of the row before but for `bound` and `hits`. By lanes:
// the largest logit, and the sum of e^(logit - it). At least k ids of the row reach bound. hits: a bit for each sixteen ids
// of which one may be among the row's k best.
struct alignas(64) LogitSpan {
    float maxima[LANES], sums[LANES];
    float bound;
    uint32_t hits;
};
static_assert(SPAN_IDS <= 32 * LANES, "hits has too few bits");

// How far below another one a logit may be whose log-probability is rounded to the same. most: no logit is larger or has
// a larger magnitude.
float rounding_slack(float most);

// Look at a span's logits (count,). classes: of the row's spans before, or as they are made. kept: where those with hits
// are copied to, (count,), or nullptr. next: logits that are looked at afterwards, asked for meanwhile.
LogitSpan scan_span(const float* logits, int64_t count, int64_t k, float slack, ClassMaxima& class_maxima, float* hits_out, const float* next);

// The k largest log-probabilities of one row, descending, of equal ones the smaller id first, without `excluded_id`.
//
// spans: (num_spans(vocab_size),). logits: (vocab_size,), those with hits, or all where `wants_distributions`: then overwritten by
// the natural log-softmax. k <= min(MAX_CANDIDATES, vocab_size). A row that holds NaN gives NaN and the ids 0..k-1. Where `excluded_id` is an id, the spans
// were looked at for k + 1 <= MAX_CANDIDATES, and it stands last with negative infinity if the vocabulary has too few others.
void select_top_k(const LogitSpan* spans, float* logits, int64_t vocab_size, int64_t k, bool wants_distributions, int64_t excluded_id,
            float* log_probabilities, int64_t* ids);

}  // namespace transduce
