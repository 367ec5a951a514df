// Scaled dot-product attention ("Attention Is All You Need", section 3.2.1) over the columns of a cache, and of a
// sentence to itself. Queries are scaled already.
#pragma once

#include <cstdint>

#include "simd.h"

namespace transduce {

constexpr int MAX_HEAD_DIM = 128;

// Returns the number of floats that one head's scores of this many columns take, padded to whole vectors.
constexpr int64_t num_scores(int64_t num_columns) { return (num_columns + LANES - 1) / LANES * LANES; }

// The maximum number of queries that read each column together. If larger, the sums do not fit into the registers.
constexpr int MAX_QUERIES = 4;

// Queries of shape (count, num_heads, head_dim), query_stride floats from query to query. count: 1 to MAX_QUERIES.
// head_dim: a multiple of 16, at most MAX_HEAD_DIM.
struct Queries {
    const float* values;
    int64_t query_stride;
    int count;
    int num_heads;
    int head_dim;
};

// Keys and values of shape (count, num_heads * head_dim), `stride` elements from column to column.
// next: the keys of the next call, which are prefetched, or nullptr.
template <class Element>
struct Columns {
    const Element* keys;
    const Element* values;
    int64_t stride;
    int64_t count;
    const Element* next = nullptr;
};

// Memory to which attention writes e^(score - max) of each query, head and column, before division by the head's sum.
// It also receives these sums. Each query has the heads' values, head_stride >= num_scores(count) floats apart, then
// the sums (num_heads,). query_stride: floats from query to query.
struct ScoreBuffer {
    float* values;
    int64_t head_stride;
    int64_t query_stride;

    float* sums(int query, int num_heads) const { return values + query * query_stride + num_heads * head_stride; }
};

// Computes to = softmax(q keys^T) values over all columns, at least one. to: (queries, num_heads, head_dim), to_stride
// floats from query to query. The result of a head and query does not depend on the other heads and queries of the
// call.
template <class Element>
void attend(const Queries& queries, const Columns<Element>& columns, const ScoreBuffer& scores, float* to,
            int64_t to_stride);

// One head of one sentence. queries (num_queries, head_dim), keys and values (count, head_dim), all contiguous.
struct SentenceHead {
    const float* queries;
    const float* keys;
    const float* values;
    int64_t num_queries;
    int64_t count;
    int head_dim;
};

// Computes to = softmax(queries keys^T) values of one head. to: (num_queries, head_dim), to_stride floats from row to
// row. scores: scratch memory (MAX_QUERIES, score_stride), score_stride >= num_scores(count). A query's result does not
// depend on the other queries.
void attend_sentence(const SentenceHead& head, float* scores, int64_t score_stride, float* to, int64_t to_stride);

}  // namespace transduce
