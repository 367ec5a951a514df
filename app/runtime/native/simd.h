// Functions of 16 floats. The result of a lane depends neither on its position nor on the other lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace transduce {

constexpr int LANES = 16;

// A number in IEEE half precision, like numpy's float16.
struct Half {
    uint16_t bits;
};

inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }

inline __m512 load16(const Half* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline void store16(float* to, __m512 values) { _mm512_storeu_ps(to, values); }

inline void store16(Half* to, __m512 values) {
    __m256i halves = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

// Returns the mask of lanes 0..count-1.
inline __mmask16 first_lanes(int64_t count) {
    return count >= LANES ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

// Returns the maximum of each lane; NaN if `values` is NaN there.
inline __m512 max16(__m512 bound, __m512 values) { return _mm512_max_ps(bound, values); }

// Returns the bits of |x| as integers. They have the order of the magnitudes, with NaN above all numbers.
inline __m512i magnitude_bits(__m512 values) {
    return _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(0x7fffffff));
}

// e^x within 2 units in the last place; 0 below -87.3. Reduction of Cody and Waite, polynomial of Cephes (expf).
inline __m512 exp16(__m512 x) {
    const __m512 lowest = _mm512_set1_ps(-87.33654f), highest = _mm512_set1_ps(88.72283f);
    __mmask16 is_zero = _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ);
    // NaN passes through min and max as their second operand.
    x = _mm512_min_ps(highest, _mm512_max_ps(lowest, x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), is_zero, _mm512_setzero_ps());
}

// e^x of x <= 0. The result is exactly 1 for 0, 0 far below 0, and NaN for NaN. The relative error is 2e-7, plus that
// of rounding x * log2(e). With t = x * log2(e), 2^t = 2^floor(t) * 2^(t - floor(t)). The second factor is the
// polynomial of least relative error on 0..1 that is 1 at 0.
inline __m512 exp16_below_0(__m512 x) {
    __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
    __m512 r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(1.86713e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.017031e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5799913e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.4016444e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931513e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, t);
}

// erf(x), absolute error below 2e-7. Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
inline __m512 erf16(__m512 x) {
    const __m512i sign_bit = _mm512_set1_epi32(INT32_MIN);
    __m512 a = _mm512_castsi512_ps(magnitude_bits(x));
    __m512 t =
        _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_set1_ps(0.3275911f), a, _mm512_set1_ps(1.0f)));
    __m512 p = _mm512_set1_ps(1.061405429f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.421413741f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.284496736f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.254829592f));
    __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(a, a)));
    __m512 magnitude = _mm512_fnmadd_ps(_mm512_mul_ps(p, t), e, _mm512_set1_ps(1.0f));
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), sign_bit);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude), sign));
}

}  // namespace transduce
