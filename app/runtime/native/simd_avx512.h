// The vectors of simd.h on processors with AVX-512 VNNI: 16 numbers are one register.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transduce {

using Floats = __m512;
using Integers = __m512i;
// Lanes: the result of a comparison, a bit for each lane. FirstLanes: the lanes 0..n-1, for a partial load or store.
using Lanes = __mmask16;
using FirstLanes = __mmask16;

// How many vectors of 16 numbers the registers hold.
constexpr int NUM_VECTORS = 32;
// Whether products may use tile registers, if the processor has them.
constexpr bool HAS_TILE_PRODUCTS = true;

inline Floats zero16() { return _mm512_setzero_ps(); }
inline Floats all16(float value) { return _mm512_set1_ps(value); }
inline Integers all16(int32_t value) { return _mm512_set1_epi32(value); }

// Returns the lanes 0..count-1.
inline FirstLanes first_lanes(int64_t count) {
    return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

inline Floats load16(const float* from) { return _mm512_loadu_ps(from); }
inline Floats load16(const Half* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Integers load16(const int32_t* from) { return _mm512_loadu_si512(from); }
inline Integers load16(const int8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// Reads some lanes. The other lanes of the result are those of the argument `others`.
inline Floats load16(const float* from, FirstLanes lanes, Floats others) {
    return _mm512_mask_loadu_ps(others, lanes, from);
}
// Reads some lanes; the others are 0.
inline Floats load16(const float* from, FirstLanes lanes) { return _mm512_maskz_loadu_ps(lanes, from); }

inline void store16(float* to, Floats values) { _mm512_storeu_ps(to, values); }
inline void store16(float* to, Floats values, FirstLanes lanes) { _mm512_mask_storeu_ps(to, lanes, values); }
inline void store16(Half* to, Floats values) {
    __m256i halves = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}
inline void store16(int32_t* to, Integers values) { _mm512_storeu_si512(to, values); }

inline Floats add16(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Integers add16(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
inline Floats sub16(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul16(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div16(Floats a, Floats b) { return _mm512_div_ps(a, b); }
// fma16 returns a b + c, and fnma16 returns c - a b. Each is rounded once.
inline Floats fma16(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats fnma16(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
// The larger or smaller number of each lane. If either is NaN, the number of `values`.
inline Floats max16(Floats bound, Floats values) { return _mm512_max_ps(bound, values); }
inline Floats min16(Floats bound, Floats values) { return _mm512_min_ps(bound, values); }
inline Integers max16(Integers a, Integers b) { return _mm512_max_epi32(a, b); }

inline Floats floats_of(Integers values) { return _mm512_cvtepi32_ps(values); }
// Rounds half to even.
inline Integers integers_of(Floats values) { return _mm512_cvtps_epi32(values); }
inline Floats round16(Floats values) {
    return _mm512_roundscale_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// values - floor(values), rounded down.
inline Floats fraction16(Floats values) { return _mm512_reduce_ps(values, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
// values 2^floor(exponents), for exponents up to 128 and values from 0.5 to 2.
inline Floats scale_by_power16(Floats values, Floats exponents) { return _mm512_scalef_ps(values, exponents); }

// The same bits as the other kind of number.
inline Integers bits16(Floats values) { return _mm512_castps_si512(values); }
inline Floats floats_of_bits(Integers values) { return _mm512_castsi512_ps(values); }
inline Integers and16(Integers a, Integers b) { return _mm512_and_si512(a, b); }
inline Integers or16(Integers a, Integers b) { return _mm512_or_si512(a, b); }

inline Lanes is_below16(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Lanes is_above16(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Lanes is_below16(Integers a, Integers b) { return _mm512_cmplt_epi32_mask(a, b); }
// Whether a >= b in any lane, or a lane of either is NaN.
inline bool is_any_not_below16(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ) != 0; }
// Returns a mask: bit i is set if lane i is one of `lanes` and a >= b in it.
inline unsigned bits_at_least16(FirstLanes lanes, Floats a, Floats b) {
    return _mm512_mask_cmp_ps_mask(lanes, a, b, _CMP_GE_OQ);
}
// Returns `yes` in these lanes and `no` in the others.
inline Floats select16(Lanes lanes, Floats yes, Floats no) { return _mm512_mask_mov_ps(no, lanes, yes); }
// Returns `values` in these lanes and 0 in the others.
inline Floats keep16(FirstLanes lanes, Floats values) { return _mm512_maskz_mov_ps(lanes, values); }
// Adds 1 in these lanes.
inline Integers count16(Integers counts, Lanes lanes) {
    return _mm512_mask_add_epi32(counts, lanes, counts, _mm512_set1_epi32(1));
}

inline float sum16(Floats values) { return _mm512_reduce_add_ps(values); }
inline float largest16(Floats values) { return _mm512_reduce_max_ps(values); }
inline float least16(Floats values) { return _mm512_reduce_min_ps(values); }
inline int32_t largest16(Integers values) { return _mm512_reduce_max_epi32(values); }

// Stores four numbers: the sum of the lanes of each vector.
[[gnu::always_inline]]
inline void store_sums16(float* to, Floats a, Floats b, Floats c, Floats d) {
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
[[gnu::always_inline]]
inline void store_sums16(int32_t* to, Integers a, Integers b, Integers c, Integers d) {
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(abcd), _mm512_extracti32x8_epi32(abcd, 1));
    __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), sums);
}

// Products of int8: a row's inputs are uint8, and an instruction multiplies four of them with the weights of 16
// columns. STORED_INPUT_OFFSET: what is subtracted from an unsigned input before it is stored. SMALL_PAIRS: the
// functions for small pairs, or `any` if they are no faster.
using Quantized = uint8_t;
using QuantizedWeights = __m512i;
using QuantizedInputs = __m512i;
constexpr int STORED_INPUT_OFFSET = 0;
constexpr Pairs SMALL_PAIRS = Pairs::any;

// Stores the lowest eight bits of each number.
inline void store16(Quantized* to, Integers values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(values));
}
// Reads four weights of 16 columns, (16, 4).
inline QuantizedWeights load_weights16(const int8_t* from) { return _mm512_loadu_si512(from); }
// Reads four inputs of a row, and repeats them for all columns.
inline QuantizedInputs spread16(const Quantized* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return _mm512_set1_epi32(four);
}
// Adds the products, exactly.
template <Pairs>
inline Integers add_products16(Integers sums, QuantizedInputs inputs, QuantizedWeights weights) {
    return _mm512_dpbusd_epi32(sums, inputs, weights);
}
// Multiplies 64 inputs with as many weights of one column. Adds to each lane the products of four inputs.
template <Pairs>
inline Integers add_column_products16(Integers sums, const Quantized* inputs, const int8_t* weights) {
    return add_products16<Pairs::any>(sums, _mm512_loadu_si512(inputs), load_weights16(weights));
}

// Does nothing: the compiled code reads the inputs of one row at a time even without a barrier (simd_neon.h needs one).
inline void end_row() {}

}  // namespace transduce
