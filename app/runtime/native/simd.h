// Vectors of 16 numbers. The result of a lane depends neither on its position nor on the other lanes. simd_avx512.h,
// simd_avx2.h and simd_neon.h define the same types and functions for their processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace transduce {

constexpr int LANES = 16;

// A number in IEEE half precision, like numpy's float16.
struct Half {
    uint16_t bits;
};

// Inputs of a row that an int8 product multiplies with the weights of each column at once.
constexpr int INT8_DEPTH = 4;

// Two int8 weights of a column, those of inputs 2i and 2i + 1, are a pair. A pair is small if the magnitude of its sum is
// at most MAX_SMALL_PAIR. Multiplied with any two uint8, such a pair gives a sum that fits an int16: 255 * 128 < 2^15.
// `transduce export` writes small pairs only.
enum class Pairs { any, small };
constexpr int MAX_SMALL_PAIR = 128;

}  // namespace transduce

#ifdef __aarch64__
#include "simd_neon.h"
#elif defined(__AVX512VNNI__)
#include "simd_avx512.h"
#else
#include "simd_avx2.h"
#endif

namespace transduce {

// Returns the bits of |x| as integers. They have the order of the magnitudes, with NaN above all numbers.
inline Integers magnitude_bits(Floats values) { return and16(bits16(values), all16(0x7fffffff)); }

// e^x within 2 units in the last place; 0 below -87.3, and about the largest float above 88.7. NaN gives NaN. Reduction
// of Cody and Waite, polynomial of Cephes (expf).
inline Floats exp16(Floats x) {
    const Floats lowest = all16(-87.33654f), highest = all16(88.72283f);
    Lanes is_zero = is_below16(x, lowest);
    // NaN passes through min and max as their second operand.
    x = min16(highest, max16(lowest, x));
    Floats n = round16(mul16(x, all16(1.44269504f)));
    Floats r = fnma16(n, all16(0.693359375f), x);
    r = fnma16(n, all16(-2.12194440e-4f), r);
    Floats p = all16(1.9875691500e-4f);
    p = fma16(p, r, all16(1.3981999507e-3f));
    p = fma16(p, r, all16(8.3334519073e-3f));
    p = fma16(p, r, all16(4.1665795894e-2f));
    p = fma16(p, r, all16(1.6666665459e-1f));
    p = fma16(p, r, all16(5.0000001201e-1f));
    p = fma16(p, mul16(r, r), add16(r, all16(1.0f)));
    return select16(is_zero, zero16(), scale_by_power16(p, n));
}

// e^x of x <= 0. The result is exactly 1 for 0, 0 far below 0, and NaN for NaN. The relative error is 2e-7, plus that
// of rounding x * log2(e). With t = x * log2(e), 2^t = 2^floor(t) * 2^(t - floor(t)). The second factor is the
// polynomial of least relative error on 0..1 that is 1 at 0.
inline Floats exp16_below_0(Floats x) {
    Floats t = mul16(x, all16(1.44269504f));
    Floats r = fraction16(t);
    Floats p = all16(1.86713e-3f);
    p = fma16(p, r, all16(9.017031e-3f));
    p = fma16(p, r, all16(5.5799913e-2f));
    p = fma16(p, r, all16(2.4016444e-1f));
    p = fma16(p, r, all16(6.931513e-1f));
    p = fma16(p, r, all16(1.0f));
    return scale_by_power16(p, t);
}

// erf(x), absolute error below 2e-7. Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
inline Floats erf16(Floats x) {
    Floats a = floats_of_bits(magnitude_bits(x));
    Floats t = div16(all16(1.0f), fma16(all16(0.3275911f), a, all16(1.0f)));
    Floats p = all16(1.061405429f);
    p = fma16(p, t, all16(-1.453152027f));
    p = fma16(p, t, all16(1.421413741f));
    p = fma16(p, t, all16(-0.284496736f));
    p = fma16(p, t, all16(0.254829592f));
    Floats e = exp16(sub16(zero16(), mul16(a, a)));
    Floats magnitude = fnma16(mul16(p, t), e, all16(1.0f));
    Integers sign = and16(bits16(x), all16(INT32_MIN));
    return floats_of_bits(or16(bits16(magnitude), sign));
}

}  // namespace transduce
