// Scaled dot-product attention of one query over the columns of a cache ("Attention Is All You Need", section 3.2.1).
// The scale is in the query already.
#pragma once

#include <cstdint>

#include "simd.h"

namespace transduce {

constexpr int MAX_HEAD_DIM = 128;

// Floats between the scores of one head and the next, for a number of columns.
constexpr int64_t num_scores(int64_t num_columns) { return (num_columns + LANES - 1) / LANES * LANES; }

// Keys and values of some heads side by side: (count, num_heads * head_dim), `stride` elements from column to column.
// next: the keys that will be attended to afterwards, which are asked for on the way, or nullptr.
template <class Element>
struct Columns {
    const Element* keys;
    const Element* values;
    int64_t stride;
    int64_t count;
    const Element* next = nullptr;
};

// Some heads of one query, side by side: (num_heads, head_dim). head_dim: a multiple of 16, at most MAX_HEAD_DIM.
struct Query {
    const float* values;
    int num_heads;
    int head_dim;
};

// to (num_heads, head_dim) = softmax(q keys^T) values over exactly the columns given, at least one. A head's result
// does not depend on which others are asked for.
//
// scores: (num_heads, num_scores(count) or more, given as scores_each); holds each head's attention weights (count,)
// in the end, times the sum that stands in sums (num_heads,).
template <class Element>
void attend(const Query& query, const Columns<Element>& columns, float* scores, int64_t scores_each, float* sums,
            float* to);

// Queries that `attend_sentence` takes together.
constexpr int QUERIES_TOGETHER = 4;

// One head of one sentence to itself: to (num_queries, head_dim), to_stride floats from row to row,
// = softmax(queries keys^T) values. queries (num_queries, head_dim), keys and values (count, head_dim), each one block.
// A query's result does not depend on the others. scores: (QUERIES_TOGETHER, num_scores(count) or more).
struct SentenceHead {
    const float* queries;
    const float* keys;
    const float* values;
    int64_t num_queries;
    int64_t count;
    int head_dim;
};
void attend_sentence(const SentenceHead& head, float* scores, int64_t scores_each, float* to, int64_t to_stride);

}  // namespace transduce
