#include "attention.h"

namespace transduce {
namespace {

// Columns whose dot products are taken together.
constexpr int TOGETHER = 4;

// The sums of four vectors.
inline __m128 sum_each(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// scores[c] = q . keys[c]. V: vectors of a head. Past the end the last column stands again.
template <int V, class Element>
inline void score(const float* q, const Columns<Element>& columns, float* scores) {
    __m512 query[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) query[v] = load16(q + v * LANES);
    for (int64_t begin = 0; begin < columns.count; begin += TOGETHER) {
        __m512 sums[TOGETHER];
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; ++i) {
            int64_t column = begin + i < columns.count ? begin + i : columns.count - 1;
            const Element* key = columns.keys + column * columns.stride;
            const Element* value = columns.values + column * columns.stride;
            _mm_prefetch(reinterpret_cast<const char*>(value), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(value + V * LANES - 1), _MM_HINT_T0);
            sums[i] = _mm512_mul_ps(query[0], load16(key));
#pragma GCC unroll 8
            for (int v = 1; v < V; ++v) sums[i] = _mm512_fmadd_ps(query[v], load16(key + v * LANES), sums[i]);
        }
        _mm_storeu_ps(scores + begin, sum_each(sums[0], sums[1], sums[2], sums[3]));
    }
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

template <int V, class Element>
float attend_vectors(const float* q, const Columns<Element>& columns, float* scores, float* to) {
    score<V>(q, columns, scores);
    float sum = exponentiate(scores, columns.count);
    __m512 sums[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[v] = _mm512_setzero_ps();
    for (int64_t column = 0; column < columns.count; ++column) {
        __m512 weight = _mm512_set1_ps(scores[column]);
        const Element* value = columns.values + column * columns.stride;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[v] = _mm512_fmadd_ps(weight, load16(value + v * LANES), sums[v]);
    }
    __m512 factor = _mm512_set1_ps(1.0f / sum);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store16(to + v * LANES, _mm512_mul_ps(sums[v], factor));
    return sum;
}

}  // namespace

template <class Element>
float attend(int head_dim, const float* q, const Columns<Element>& columns, float* scores, float* to) {
    using Attend = float (*)(const float*, const Columns<Element>&, float*, float*);
    static constexpr Attend BY_VECTORS[] = {attend_vectors<1, Element>, attend_vectors<2, Element>,
                                            attend_vectors<3, Element>, attend_vectors<4, Element>,
                                            attend_vectors<5, Element>, attend_vectors<6, Element>,
                                            attend_vectors<7, Element>, attend_vectors<8, Element>};
    return BY_VECTORS[head_dim / LANES - 1](q, columns, scores, to);
}

template float attend(int, const float*, const Columns<float>&, float*, float*);
template float attend(int, const float*, const Columns<Half>&, float*, float*);

}  // namespace transduce
