// The vectors of simd.h on processors with AVX2, FMA and F16C: 16 numbers are two registers. Every function rounds and
// adds in the order of simd_avx512.h, so the results have the same bits. Processors with AVX-VNNI have other products
// of int8.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace transduce {

struct Floats {
    __m256 low, high;
};
struct Integers {
    __m256i low, high;
};
// The result of a comparison: all bits of a lane are set, or none.
struct Lanes {
    __m256i low, high;
};
// The first `count` lanes, 0 to 16.
struct FirstLanes {
    int32_t count;
};

// How many vectors of 16 numbers the registers hold.
constexpr int NUM_VECTORS = 8;
// Whether products may use tile registers, if the processor has them.
constexpr bool HAS_TILE_PRODUCTS = false;

inline Floats zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats all16(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Integers all16(int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }

// Returns the lanes 0..count-1.
inline FirstLanes first_lanes(int64_t count) { return {int32_t(count >= 16 ? 16 : count <= 0 ? 0 : count)}; }
inline Lanes lanes_of(FirstLanes lanes) {
    __m256i count = _mm256_set1_epi32(lanes.count);
    return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

inline Floats load16(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline __m256 load8(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline Floats load16(const Half* from) { return {load8(from), load8(from + 8)}; }
inline Integers load16(const int32_t* from) {
    auto at = reinterpret_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
inline Integers load16(const int8_t* from) {
    auto at = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(at)),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8)))};
}
// Returns `yes` in these lanes and `no` in the others.
inline Floats select16(Lanes lanes, Floats yes, Floats no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_castsi256_ps(lanes.low)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_castsi256_ps(lanes.high))};
}
// Reads some lanes; the others are 0.
inline Floats load16(const float* from, FirstLanes lanes) {
    if (lanes.count == 16) return load16(from);
    Lanes all = lanes_of(lanes);
    return {_mm256_maskload_ps(from, all.low), _mm256_maskload_ps(from + 8, all.high)};
}
// Reads some lanes. The other lanes of the result are those of the argument `others`.
inline Floats load16(const float* from, FirstLanes lanes, Floats others) {
    if (lanes.count == 16) return load16(from);
    return select16(lanes_of(lanes), load16(from, lanes), others);
}

inline void store16(float* to, Floats values) {
    _mm256_storeu_ps(to, values.low);
    _mm256_storeu_ps(to + 8, values.high);
}
// A whole vector is stored without a mask: some processors take 20 times as long with one.
inline void store16(float* to, Floats values, FirstLanes lanes) {
    if (lanes.count == 16) return store16(to, values);
    Lanes all = lanes_of(lanes);
    _mm256_maskstore_ps(to, all.low, values.low);
    _mm256_maskstore_ps(to + 8, all.high, values.high);
}
inline void store16(Half* to, Floats values) {
    constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    auto at = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(at, _mm256_cvtps_ph(values.low, NEAREST));
    _mm_storeu_si128(at + 1, _mm256_cvtps_ph(values.high, NEAREST));
}
inline void store16(int32_t* to, Integers values) {
    auto at = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(at, values.low);
    _mm256_storeu_si256(at + 1, values.high);
}

inline Floats add16(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Integers add16(Integers a, Integers b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Floats sub16(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats mul16(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats div16(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
// fma16 returns a b + c, and fnma16 returns c - a b. Each is rounded once.
inline Floats fma16(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats fnma16(Floats a, Floats b, Floats c) {
    return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
// The larger or smaller number of each lane. If either is NaN, the number of `values`.
inline Floats max16(Floats bound, Floats values) {
    return {_mm256_max_ps(bound.low, values.low), _mm256_max_ps(bound.high, values.high)};
}
inline Floats min16(Floats bound, Floats values) {
    return {_mm256_min_ps(bound.low, values.low), _mm256_min_ps(bound.high, values.high)};
}
inline Integers max16(Integers a, Integers b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}

inline Floats floats_of(Integers values) { return {_mm256_cvtepi32_ps(values.low), _mm256_cvtepi32_ps(values.high)}; }
// Rounds half to even.
inline Integers integers_of(Floats values) { return {_mm256_cvtps_epi32(values.low), _mm256_cvtps_epi32(values.high)}; }
inline Floats round16(Floats values) {
    constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(values.low, NEAREST), _mm256_round_ps(values.high, NEAREST)};
}
inline Floats floor16(Floats values) { return {_mm256_floor_ps(values.low), _mm256_floor_ps(values.high)}; }
// Smaller exponents are replaced by this one. 2^-250 rounds to 0. 2^-125, by which scale_by_power16 multiplies twice,
// is still a normal float.
constexpr float LOWEST_EXPONENT = -250;
// values - floor(values), rounded down, for values of at least LOWEST_EXPONENT. For a whole number the result is +0; in
// simd_avx512.h it is -0.
inline Floats fraction16(Floats values) {
    auto fraction = [](__m256 x) {
        __m256 floor = _mm256_floor_ps(x), nearest = _mm256_sub_ps(x, floor);
        // In lanes whose difference has been rounded up, is_above has all bits set, which is -1. Adding -1 to the
        // difference's bits gives the float below.
        __m256 is_above = _mm256_cmp_ps(x, _mm256_add_ps(nearest, floor), _CMP_LT_OQ);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(nearest), _mm256_castps_si256(is_above)));
    };
    Floats bounded = max16(all16(LOWEST_EXPONENT), values);
    return {fraction(bounded.low), fraction(bounded.high)};
}
// values 2^floor(exponents), for exponents up to 128 and values from 0.5 to 2. Multiplies by two powers, each with half
// of the exponent, because 2^exponent itself may be no normal float.
inline Floats scale_by_power16(Floats values, Floats exponents) {
    Integers powers = integers_of(floor16(max16(all16(LOWEST_EXPONENT), exponents)));
    auto scaled = [](__m256 x, __m256i power) {
        const __m256i bias = _mm256_set1_epi32(127);
        __m256i half = _mm256_srai_epi32(power, 1), rest = _mm256_sub_epi32(power, half);
        __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
        __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
        return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
    };
    return {scaled(values.low, powers.low), scaled(values.high, powers.high)};
}

// The same bits as the other kind of number.
inline Integers bits16(Floats values) { return {_mm256_castps_si256(values.low), _mm256_castps_si256(values.high)}; }
inline Floats floats_of_bits(Integers values) {
    return {_mm256_castsi256_ps(values.low), _mm256_castsi256_ps(values.high)};
}
inline Integers and16(Integers a, Integers b) {
    return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline Integers or16(Integers a, Integers b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

template <int PREDICATE>
inline Lanes compare16(Floats a, Floats b) {
    return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, PREDICATE)),
            _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, PREDICATE))};
}
inline unsigned mask_of(Lanes lanes) {
    auto low = unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(lanes.low)));
    return low | unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(lanes.high))) << 8;
}
inline Lanes is_below16(Floats a, Floats b) { return compare16<_CMP_LT_OQ>(a, b); }
inline Lanes is_above16(Floats a, Floats b) { return compare16<_CMP_GT_OQ>(a, b); }
inline Lanes is_below16(Integers a, Integers b) {
    return {_mm256_cmpgt_epi32(b.low, a.low), _mm256_cmpgt_epi32(b.high, a.high)};
}
// Whether a >= b in any lane, or a lane of either is NaN.
inline bool is_any_not_below16(Floats a, Floats b) {
    Lanes lanes = compare16<_CMP_NLT_UQ>(a, b);
    return _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(lanes.low, lanes.high))) != 0;
}
// Returns a mask: bit i is set if lane i is one of `lanes` and a >= b in it.
inline unsigned bits_at_least16(FirstLanes lanes, Floats a, Floats b) {
    return mask_of(compare16<_CMP_GE_OQ>(a, b)) & ((1u << lanes.count) - 1);
}
// Returns `values` in these lanes and 0 in the others.
inline Floats keep16(FirstLanes lanes, Floats values) {
    Lanes all = lanes_of(lanes);
    return floats_of_bits(and16(bits16(values), {all.low, all.high}));
}
// Adds 1 in these lanes.
inline Integers count16(Integers counts, Lanes lanes) {
    return {_mm256_sub_epi32(counts.low, lanes.low), _mm256_sub_epi32(counts.high, lanes.high)};
}

// Combines 16 numbers into one: the halves of 16, of 8, of 4, then of 2 numbers. The caller has combined the halves of
// 16; `both` is the result.
template <class Combine4>
inline float reduced16(__m256 both, Combine4&& combine) {
    __m128 four = combine(_mm256_extractf128_ps(both, 1), _mm256_castps256_ps128(both));
    __m128 two = combine(four, _mm_shuffle_ps(four, four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtss_f32(combine(two, _mm_shuffle_ps(two, two, _MM_SHUFFLE(2, 3, 0, 1))));
}
inline float sum16(Floats values) {
    return reduced16(_mm256_add_ps(values.low, values.high), [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
inline float largest16(Floats values) {
    return reduced16(_mm256_max_ps(values.high, values.low), [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
inline float least16(Floats values) {
    return reduced16(_mm256_min_ps(values.high, values.low), [](__m128 a, __m128 b) { return _mm_min_ps(a, b); });
}
inline int32_t largest16(Integers values) {
    __m256i both = _mm256_max_epi32(values.low, values.high);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, _MM_SHUFFLE(2, 3, 0, 1))));
}

// Stores four numbers: the sum of the lanes of each vector.
[[gnu::always_inline]]
inline void store_sums16(float* to, Floats a, Floats b, Floats c, Floats d) {
    auto sums = [](__m256 a, __m256 b, __m256 c, __m256 d) {
        __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    };
    __m256 half = _mm256_add_ps(sums(a.low, b.low, c.low, d.low), sums(a.high, b.high, c.high, d.high));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
[[gnu::always_inline]]
inline void store_sums16(int32_t* to, Integers a, Integers b, Integers c, Integers d) {
    auto sums = [](__m256i a, __m256i b, __m256i c, __m256i d) {
        __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    };
    __m256i half = _mm256_add_epi32(sums(a.low, b.low, c.low, d.low), sums(a.high, b.high, c.high, d.high));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), four);
}

// Products of int8, as in simd_avx512.h.
using Quantized = uint8_t;
using QuantizedWeights = Integers;
using QuantizedInputs = __m256i;
constexpr int STORED_INPUT_OFFSET = 0;
#if defined(__AVXVNNI__) || defined(EMULATES_AVXVNNI)
constexpr Pairs SMALL_PAIRS = Pairs::any;
#else
constexpr Pairs SMALL_PAIRS = Pairs::small;
#endif

// Stores the lowest eight bits of each number.
inline void store16(Quantized* to, Integers values) {
    Integers bytes = and16(values, all16(255));
    __m256i packed = _mm256_packs_epi32(bytes.low, bytes.high);
    packed = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
    __m128i first = _mm256_castsi256_si128(packed), last = _mm256_extracti128_si256(packed, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(first, last));
}
// Reads four weights of 16 columns, (16, 4).
inline QuantizedWeights load_weights16(const int8_t* from) { return load16(reinterpret_cast<const int32_t*>(from)); }
// Reads four inputs of a row, and repeats them for all columns.
inline QuantizedInputs spread16(const Quantized* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return _mm256_set1_epi32(four);
}
// Adds the products of four inputs with the weights of eight columns, exactly.
template <Pairs PAIRS>
inline __m256i add_products8(__m256i sums, __m256i inputs, __m256i weights) {
#if defined(EMULATES_AVXVNNI)
    // What the instruction of AVX-VNNI does, for tests on processors without it.
    alignas(32) int32_t sum[8];
    alignas(32) uint8_t input[32];
    alignas(32) int8_t weight[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(sum), sums);
    _mm256_store_si256(reinterpret_cast<__m256i*>(input), inputs);
    _mm256_store_si256(reinterpret_cast<__m256i*>(weight), weights);
    for (int i = 0; i < 32; ++i) sum[i / 4] += input[i] * weight[i];
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(sum));
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, inputs, weights);
#else
    if constexpr (PAIRS == Pairs::small) {
        // The first instruction saturates its sums of pairs at 16 bits. Those of small pairs fit.
        __m256i pairs = _mm256_maddubs_epi16(inputs, weights);
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    } else {
        // Bytes 1 and 3 of each four, then bytes 0 and 2, as 16 bits.
        __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(inputs, 8), _mm256_srai_epi16(weights, 8));
        __m256i even = _mm256_madd_epi16(_mm256_and_si256(inputs, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8));
        sums = _mm256_add_epi32(_mm256_add_epi32(sums, odd), even);
    }
    // Without this line the compiler first adds the products of several calls, and has too few registers for them.
    asm("" : "+x"(sums));
    return sums;
#endif
}
template <Pairs PAIRS>
inline Integers add_products16(Integers sums, QuantizedInputs inputs, QuantizedWeights weights) {
    return {add_products8<PAIRS>(sums.low, inputs, weights.low), add_products8<PAIRS>(sums.high, inputs, weights.high)};
}
// Multiplies 64 inputs with as many weights of one column. Adds to each lane the products of four inputs.
template <Pairs PAIRS>
inline Integers add_column_products16(Integers sums, const Quantized* inputs, const int8_t* weights) {
    Integers x = load16(reinterpret_cast<const int32_t*>(inputs)), w = load_weights16(weights);
    return {add_products8<PAIRS>(sums.low, x.low, w.low), add_products8<PAIRS>(sums.high, x.high, w.high)};
}

// Does nothing: the compiled code reads the inputs of one row at a time even without a barrier (simd_neon.h needs one).
inline void end_row() {}

}  // namespace transduce
