#include "attention.h"

#include <utility>

namespace transduce {
namespace {

// Columns whose dot products are taken together, and whose values are added together: all heads of some columns,
// then all heads of the next, so that a cache is read from its first byte to its last.
constexpr int TOGETHER = 4;
// Bytes ahead of the columns in use that are asked for.
constexpr size_t AHEAD = 4096;
constexpr size_t LINE = 64;

// The sums of four vectors.
inline __m128 sum_each(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Asks for columns line by line, AHEAD of where they are used, first those of one cache, then of another. In this
// order the processor's own prefetching follows; in the order of use, head by head, it does not.
class Stream {
public:
    // width, stride: bytes of a column that are wanted, and from column to column. second may be nullptr.
    Stream(const void* first, const void* second, int64_t count, size_t width, size_t stride)
        : at_(static_cast<const char*>(first)),
          then_(static_cast<const char*>(second)),
          lines_(width / LINE),
          gap_(stride - lines_ * LINE),
          line_(lines_),
          column_(count),
          count_(count) {
        for (size_t i = 0; i < AHEAD / LINE && at_; ++i) step();
    }
    void ask(int lines) {
        for (int i = 0; i < lines && at_; ++i) {
            _mm_prefetch(at_, _MM_HINT_T0);
            step();
        }
    }

private:
    void step() {
        at_ += LINE;
        if (--line_) return;
        at_ += gap_;
        line_ = lines_;
        if (--column_) return;
        at_ = std::exchange(then_, nullptr);
        column_ = count_;
    }

    const char* at_;
    const char* then_;
    size_t lines_, gap_, line_;
    int64_t column_, count_;
};

// scores[c] = q . keys[c] of one head for columns [begin, begin + TOGETHER); past the end the last one stands again.
template <int V, class Element>
inline void score(const float* q, const Element* keys, const Columns<Element>& columns, int64_t begin, float* scores) {
    __m512 sums[TOGETHER];
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; ++i) {
        int64_t column = begin + i < columns.count ? begin + i : columns.count - 1;
        const Element* key = keys + column * columns.stride;
        sums[i] = _mm512_mul_ps(load16(q), load16(key));
#pragma GCC unroll 8
        for (int v = 1; v < V; ++v) {
            sums[i] = _mm512_fmadd_ps(load16(q + v * LANES), load16(key + v * LANES), sums[i]);
        }
    }
    _mm_storeu_ps(scores + begin, sum_each(sums[0], sums[1], sums[2], sums[3]));
}

// scores -> e^(scores - max), 0 past the end. Returns their sum.
inline float exponentiate(float* scores, int64_t count) {
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 largest = lowest;
    for (int64_t c = 0; c < count; c += LANES) {
        largest = max16(largest, _mm512_mask_loadu_ps(lowest, first_lanes(count - c), scores + c));
    }
    __m512 bound = _mm512_set1_ps(_mm512_reduce_max_ps(largest)), sum = _mm512_setzero_ps();
    for (int64_t c = 0; c < count; c += LANES) {
        __mmask16 lanes = first_lanes(count - c);
        __m512 e = _mm512_maskz_mov_ps(lanes, exp16(_mm512_sub_ps(load16(scores + c), bound)));
        store16(scores + c, e);
        sum = _mm512_add_ps(sum, e);
    }
    return _mm512_reduce_add_ps(sum);
}

// to += weights[c] * values[c] of one head for columns [begin, end).
template <int V, class Element>
inline void add_values(const Element* values, int64_t stride, const float* weights, int64_t begin, int64_t end,
                       float* to) {
    __m512 sums[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[v] = begin ? load16(to + v * LANES) : _mm512_setzero_ps();
    for (int64_t column = begin; column < end; ++column) {
        __m512 weight = _mm512_set1_ps(weights[column]);
        const Element* value = values + column * stride;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[v] = _mm512_fmadd_ps(weight, load16(value + v * LANES), sums[v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store16(to + v * LANES, sums[v]);
}

template <int V, class Element>
void attend_vectors(const Query& query, const Columns<Element>& columns, float* scores, int64_t scores_each,
                    float* sums, float* to) {
    constexpr int dim = V * LANES;
    constexpr int lines = TOGETHER * dim * int(sizeof(Element)) / int(LINE);
    int64_t count = columns.count;
    size_t width = query.num_heads * dim * sizeof(Element), stride = columns.stride * sizeof(Element);
    Stream keys(columns.keys, columns.values, count, width, stride);
    for (int64_t begin = 0; begin < count; begin += TOGETHER) {
        for (int head = 0; head < query.num_heads; ++head) {
            keys.ask(lines);
            score<V>(query.values + head * dim, columns.keys + head * dim, columns, begin, scores + head * scores_each);
        }
    }
    for (int head = 0; head < query.num_heads; ++head) sums[head] = exponentiate(scores + head * scores_each, count);
    Stream values(columns.values, columns.next, count, width, stride);
    for (int64_t begin = 0; begin < count; begin += TOGETHER) {
        int64_t end = begin + TOGETHER < count ? begin + TOGETHER : count;
        for (int head = 0; head < query.num_heads; ++head) {
            values.ask(lines);
            add_values<V>(columns.values + head * dim, columns.stride, scores + head * scores_each, begin, end,
                          to + head * dim);
        }
    }
    for (int head = 0; head < query.num_heads; ++head) {
        __m512 factor = _mm512_set1_ps(1.0f / sums[head]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            float* own = to + head * dim + v * LANES;
            store16(own, _mm512_mul_ps(load16(own), factor));
        }
    }
}

// Q queries of a sentence. Each is reckoned in the same order whatever Q is.
template <int V, int Q>
void attend_queries(const SentenceHead& head, int64_t first, float* scores, int64_t scores_each, float* to,
                    int64_t to_stride) {
    constexpr int dim = V * LANES;
    const float* queries = head.queries + first * dim;
    for (int64_t begin = 0; begin < head.count; begin += TOGETHER) {
        __m512 sums[Q][TOGETHER];
        for (int v = 0; v < V; ++v) {
            __m512 key[TOGETHER];
#pragma GCC unroll 4
            for (int i = 0; i < TOGETHER; ++i) {
                int64_t column = begin + i < head.count ? begin + i : head.count - 1;
                key[i] = load16(head.keys + column * dim + v * LANES);
            }
#pragma GCC unroll 4
            for (int q = 0; q < Q; ++q) {
                __m512 query = load16(queries + q * dim + v * LANES);
#pragma GCC unroll 4
                for (int i = 0; i < TOGETHER; ++i) {
                    sums[q][i] = v ? _mm512_fmadd_ps(query, key[i], sums[q][i]) : _mm512_mul_ps(query, key[i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
            _mm_storeu_ps(scores + q * scores_each + begin, sum_each(sums[q][0], sums[q][1], sums[q][2], sums[q][3]));
        }
    }
    float factors[Q];
    for (int q = 0; q < Q; ++q) factors[q] = 1.0f / exponentiate(scores + q * scores_each, head.count);
    for (int v = 0; v < V; ++v) {
        __m512 sums[Q];
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) sums[q] = _mm512_setzero_ps();
        for (int64_t column = 0; column < head.count; ++column) {
            __m512 value = load16(head.values + column * dim + v * LANES);
#pragma GCC unroll 4
            for (int q = 0; q < Q; ++q) {
                sums[q] = _mm512_fmadd_ps(_mm512_set1_ps(scores[q * scores_each + column]), value, sums[q]);
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
            store16(to + (first + q) * to_stride + v * LANES, _mm512_mul_ps(sums[q], _mm512_set1_ps(factors[q])));
        }
    }
}

template <int V>
void attend_head(const SentenceHead& head, float* scores, int64_t scores_each, float* to, int64_t to_stride) {
    using Attend = void (*)(const SentenceHead&, int64_t, float*, int64_t, float*, int64_t);
    static constexpr Attend BY_QUERIES[] = {attend_queries<V, 1>, attend_queries<V, 2>, attend_queries<V, 3>,
                                            attend_queries<V, 4>};
    for (int64_t first = 0; first < head.num_queries; first += QUERIES_TOGETHER) {
        int64_t left = head.num_queries - first;
        int together = left < QUERIES_TOGETHER ? int(left) : QUERIES_TOGETHER;
        BY_QUERIES[together - 1](head, first, scores, scores_each, to, to_stride);
    }
}

}  // namespace

template <class Element>
void attend(const Query& query, const Columns<Element>& columns, float* scores, int64_t scores_each, float* sums,
            float* to) {
    using Attend = void (*)(const Query&, const Columns<Element>&, float*, int64_t, float*, float*);
    static constexpr Attend BY_VECTORS[] = {attend_vectors<1, Element>, attend_vectors<2, Element>,
                                            attend_vectors<3, Element>, attend_vectors<4, Element>,
                                            attend_vectors<5, Element>, attend_vectors<6, Element>,
                                            attend_vectors<7, Element>, attend_vectors<8, Element>};
    BY_VECTORS[query.head_dim / LANES - 1](query, columns, scores, scores_each, sums, to);
}

template void attend(const Query&, const Columns<float>&, float*, int64_t, float*, float*);
template void attend(const Query&, const Columns<Half>&, float*, int64_t, float*, float*);

void attend_sentence(const SentenceHead& head, float* scores, int64_t scores_each, float* to, int64_t to_stride) {
    using Attend = void (*)(const SentenceHead&, float*, int64_t, float*, int64_t);
    static constexpr Attend BY_VECTORS[] = {attend_head<1>, attend_head<2>, attend_head<3>, attend_head<4>,
                                            attend_head<5>, attend_head<6>, attend_head<7>, attend_head<8>};
    BY_VECTORS[head.head_dim / LANES - 1](head, scores, scores_each, to, to_stride);
}

}  // namespace transduce
