// Scaled dot-product attention over the columns of a cache ("Attention Is All You Need", section 3.2.1).
// The scale is in the query already.
#pragma once

#include <cstdint>

#include "simd.h"

namespace transduce {

constexpr int MAX_HEAD_DIM = 128;

// Floats between the scores of one head and the next, for a number of columns.
constexpr int64_t num_scores(int64_t num_columns) { return (num_columns + LANES - 1) / LANES * LANES; }

// Queries that are taken together at most, each column read once for all of them.
constexpr int MAX_QUERIES = 4;

// Some heads side by side of `count` queries, 1 to MAX_QUERIES: (count, num_heads, head_dim), `query_stride` floats from
// query to query. head_dim: a multiple of 16, at most MAX_HEAD_DIM.
struct Queries {
    const float* values;
    int64_t query_stride;
    int count;
    int num_heads;
    int head_dim;
};

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

// What attention leaves beside its result: of each head of a query the weights (count,), times their sum, `head_stride` floats
// from head to head, num_scores(count) or more; behind them the heads' sums (num_heads,). `query_stride` floats from query to
// query.
struct ScoreBuffer {
    float* values;
    int64_t head_stride;
    int64_t query_stride;

    float* sums(int query, int num_heads) const { return values + query * query_stride + num_heads * head_stride; }
};

// to (queries, num_heads, head_dim), to_stride floats from query to query, = softmax(q keys^T) values over exactly the
// columns given, at least one. A head's result does not depend on which others are asked for, nor on the other queries.
template <class Element>
void attend(const Queries& queries, const Columns<Element>& columns, const ScoreBuffer& weights, float* to,
            int64_t to_stride);

// One head of one sentence to itself: to (num_queries, head_dim), to_stride floats from row to row,
// = softmax(queries keys^T) values. queries (num_queries, head_dim), keys and values (count, head_dim), each one block.
// A query's result does not depend on the others. scores: (MAX_QUERIES, num_scores(count) or more).
struct SentenceHead {
    const float* queries;
    const float* keys;
    const float* values;
    int64_t num_queries;
    int64_t count;
    int head_dim;
};
void attend_sentence(const SentenceHead& head, float* scores, int64_t score_stride, float* to, int64_t to_stride);

}  // namespace transduce
