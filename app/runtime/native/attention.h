// Scaled dot-product attention of one query of one head over the columns of a cache ("Attention Is All You Need",
// section 3.2.1). The scale is in the query already.
#pragma once

#include <cstdint>

#include "simd.h"

namespace transduce {

// Floats that `attend` needs to work with for a number of columns.
constexpr int64_t num_scores(int64_t num_columns) { return (num_columns + LANES - 1) / LANES * LANES + LANES; }

// One head's columns: keys and values (columns, head_dim), `stride` elements from column to column.
template <class Element>
struct Columns {
    const Element* keys;
    const Element* values;
    int64_t stride;
    int64_t count;
};

// to (head_dim) = softmax(q keys^T) values over exactly the columns given, at least one. scores: room for
// num_scores(count); holds the attention weights (count,) in the end, times the sum that is returned.
// head_dim: a multiple of 16, at most 128.
template <class Element>
float attend(int head_dim, const float* q, const Columns<Element>& columns, float* scores, float* to);

constexpr int MAX_HEAD_DIM = 128;

}  // namespace transduce
