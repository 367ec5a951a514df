// The vectors of simd.h on 64-bit Arm processors with dot products: 16 numbers are four registers. Every function
// rounds and adds in the order of simd_avx512.h, so the results have the same bits.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace transduce {

// Four registers of four numbers.
template <class Register>
struct Quad {
    Register a, b, c, d;
};
using Floats = Quad<float32x4_t>;
using Integers = Quad<int32x4_t>;
// The result of a comparison: all bits of a lane are set, or none.
using Lanes = Quad<uint32x4_t>;
// The first `count` lanes, 0 to 16.
struct FirstLanes {
    int32_t count;
};

// How many vectors of 16 numbers the registers hold.
constexpr int NUM_VECTORS = 8;
// Whether products may use tile registers, if the processor has them.
constexpr bool HAS_TILE_PRODUCTS = false;

// Calls function(register...) for the first registers of all vectors, then for the second ones, and so on.
template <class Function, class... Registers>
[[gnu::always_inline]]
inline auto each(Function function, const Quad<Registers>&... v) {
    return Quad<decltype(function(v.a...))>{function(v.a...), function(v.b...), function(v.c...), function(v.d...)};
}

inline Floats all16(float value) {
    float32x4_t four = vdupq_n_f32(value);
    return {four, four, four, four};
}
inline Integers all16(int32_t value) {
    int32x4_t four = vdupq_n_s32(value);
    return {four, four, four, four};
}
inline Floats zero16() { return all16(0.0f); }

// Returns the lanes 0..count-1.
inline FirstLanes first_lanes(int64_t count) { return {int32_t(count >= 16 ? 16 : count <= 0 ? 0 : count)}; }
inline Lanes lanes_of(FirstLanes lanes) {
    constexpr int32_t INDEX[] = {0, 1, 2, 3};
    int32x4_t index = vld1q_s32(INDEX);
    auto are_before = [=](int32_t count) { return vcltq_s32(index, vdupq_n_s32(count)); };
    return {are_before(lanes.count), are_before(lanes.count - 4), are_before(lanes.count - 8),
            are_before(lanes.count - 12)};
}

inline Floats load16(const float* from) {
    return {vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)};
}
inline float32x4_t load4(const Half* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from))));
}
inline Floats load16(const Half* from) { return {load4(from), load4(from + 4), load4(from + 8), load4(from + 12)}; }
inline Integers load16(const int32_t* from) {
    return {vld1q_s32(from), vld1q_s32(from + 4), vld1q_s32(from + 8), vld1q_s32(from + 12)};
}
inline Integers load16(const int8_t* from) {
    int8x16_t bytes = vld1q_s8(from);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
// Reads the first `count` numbers. The other numbers of the result are those of `others`.
inline float32x4_t load4(const float* from, int32_t count, float32x4_t others) {
    if (count >= 4) return vld1q_f32(from);
    if (count > 0) others = vld1q_lane_f32(from, others, 0);
    if (count > 1) others = vld1q_lane_f32(from + 1, others, 1);
    if (count > 2) others = vld1q_lane_f32(from + 2, others, 2);
    return others;
}
// Reads these lanes. The other lanes are those of `others`.
inline Floats load16(const float* from, FirstLanes lanes, Floats others) {
    if (lanes.count == 16) return load16(from);
    return {load4(from, lanes.count, others.a), load4(from + 4, lanes.count - 4, others.b),
            load4(from + 8, lanes.count - 8, others.c), load4(from + 12, lanes.count - 12, others.d)};
}
// Reads these lanes. The other lanes are 0.
inline Floats load16(const float* from, FirstLanes lanes) { return load16(from, lanes, zero16()); }

inline void store16(float* to, Floats values) {
    vst1q_f32(to, values.a);
    vst1q_f32(to + 4, values.b);
    vst1q_f32(to + 8, values.c);
    vst1q_f32(to + 12, values.d);
}
// Stores the first `count` numbers.
inline void store4(float* to, float32x4_t values, int32_t count) {
    if (count >= 4) return vst1q_f32(to, values);
    if (count > 0) vst1q_lane_f32(to, values, 0);
    if (count > 1) vst1q_lane_f32(to + 1, values, 1);
    if (count > 2) vst1q_lane_f32(to + 2, values, 2);
}
inline void store16(float* to, Floats values, FirstLanes lanes) {
    if (lanes.count == 16) return store16(to, values);
    store4(to, values.a, lanes.count);
    store4(to + 4, values.b, lanes.count - 4);
    store4(to + 8, values.c, lanes.count - 8);
    store4(to + 12, values.d, lanes.count - 12);
}
inline void store4(Half* to, float32x4_t values) {
    vst1_u16(reinterpret_cast<uint16_t*>(to), vreinterpret_u16_f16(vcvt_f16_f32(values)));
}
inline void store16(Half* to, Floats values) {
    store4(to, values.a);
    store4(to + 4, values.b);
    store4(to + 8, values.c);
    store4(to + 12, values.d);
}
inline void store16(int32_t* to, Integers values) {
    vst1q_s32(to, values.a);
    vst1q_s32(to + 4, values.b);
    vst1q_s32(to + 8, values.c);
    vst1q_s32(to + 12, values.d);
}

inline Floats add16(Floats a, Floats b) {
    return each([](auto a, auto b) { return vaddq_f32(a, b); }, a, b);
}
inline Integers add16(Integers a, Integers b) {
    return each([](auto a, auto b) { return vaddq_s32(a, b); }, a, b);
}
inline Floats sub16(Floats a, Floats b) {
    return each([](auto a, auto b) { return vsubq_f32(a, b); }, a, b);
}
inline Floats mul16(Floats a, Floats b) {
    return each([](auto a, auto b) { return vmulq_f32(a, b); }, a, b);
}
inline Floats div16(Floats a, Floats b) {
    return each([](auto a, auto b) { return vdivq_f32(a, b); }, a, b);
}
// fma16 returns a b + c, and fnma16 returns c - a b. Each is rounded once.
inline Floats fma16(Floats a, Floats b, Floats c) {
    return each([](auto a, auto b, auto c) { return vfmaq_f32(c, a, b); }, a, b, c);
}
inline Floats fnma16(Floats a, Floats b, Floats c) {
    return each([](auto a, auto b, auto c) { return vfmsq_f32(c, a, b); }, a, b, c);
}
// The larger or smaller number of each lane; `b` if either is NaN. (The instructions for this return NaN.)
inline float32x4_t larger4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline float32x4_t smaller4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
// The larger or smaller number of each lane; the number of `values` if either is NaN.
inline Floats max16(Floats bound, Floats values) { return each(larger4, bound, values); }
inline Floats min16(Floats bound, Floats values) { return each(smaller4, bound, values); }
inline Integers max16(Integers a, Integers b) {
    return each([](auto a, auto b) { return vmaxq_s32(a, b); }, a, b);
}

inline Floats floats_of(Integers values) {
    return each([](auto four) { return vcvtq_f32_s32(four); }, values);
}
// Rounds half to even.
inline Integers integers_of(Floats values) {
    return each([](auto four) { return vcvtnq_s32_f32(four); }, values);
}
inline Floats round16(Floats values) {
    return each([](auto four) { return vrndnq_f32(four); }, values);
}
inline Floats floor16(Floats values) {
    return each([](auto four) { return vrndmq_f32(four); }, values);
}
// Smaller exponents are replaced by this one. 2^-250 rounds to 0. 2^-125, by which scale_by_power16 multiplies twice,
// is still a normal float.
constexpr float LOWEST_EXPONENT = -250;
// Returns values - floor(values), rounded down, for values of at least LOWEST_EXPONENT.
inline Floats fraction16(Floats values) {
    auto fraction = [](float32x4_t x) {
        float32x4_t floor = vrndmq_f32(x), nearest = vsubq_f32(x, floor);
        // In lanes whose difference has been rounded up, is_above has all bits set, which is -1. Adding -1 to the
        // difference's bits gives the float below.
        uint32x4_t is_above = vcltq_f32(x, vaddq_f32(nearest, floor));
        return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(nearest), is_above));
    };
    return each(fraction, max16(all16(LOWEST_EXPONENT), values));
}
// values 2^floor(exponents), for exponents up to 128 and values from 0.5 to 2. Multiplies by two powers, each with half
// of the exponent, because 2^exponent itself may be no normal float.
inline Floats scale_by_power16(Floats values, Floats exponents) {
    auto scaled = [](float32x4_t x, int32x4_t power) {
        const int32x4_t bias = vdupq_n_s32(127);
        int32x4_t half = vshrq_n_s32(power, 1), rest = vsubq_s32(power, half);
        float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
        float32x4_t second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
        return vmulq_f32(vmulq_f32(x, first), second);
    };
    return each(scaled, values, integers_of(floor16(max16(all16(LOWEST_EXPONENT), exponents))));
}

// Reinterprets the bits as the other type.
inline Integers bits16(Floats values) {
    return each([](auto four) { return vreinterpretq_s32_f32(four); }, values);
}
inline Floats floats_of_bits(Integers values) {
    return each([](auto four) { return vreinterpretq_f32_s32(four); }, values);
}
inline Integers and16(Integers a, Integers b) {
    return each([](auto a, auto b) { return vandq_s32(a, b); }, a, b);
}
inline Integers or16(Integers a, Integers b) {
    return each([](auto a, auto b) { return vorrq_s32(a, b); }, a, b);
}

inline Lanes is_below16(Floats a, Floats b) {
    return each([](auto a, auto b) { return vcltq_f32(a, b); }, a, b);
}
inline Lanes is_above16(Floats a, Floats b) { return is_below16(b, a); }
inline Lanes is_below16(Integers a, Integers b) {
    return each([](auto a, auto b) { return vcltq_s32(a, b); }, a, b);
}
// Whether a >= b in any lane, or a lane of either is NaN.
inline bool is_any_not_below16(Floats a, Floats b) {
    Lanes lanes = is_below16(a, b);
    return vminvq_u32(vandq_u32(vandq_u32(lanes.a, lanes.b), vandq_u32(lanes.c, lanes.d))) == 0;
}
// Returns a mask: bit i is set if lane i is one of `lanes` and a >= b in it.
inline unsigned bits_at_least16(FirstLanes lanes, Floats a, Floats b) {
    constexpr uint32_t BITS[] = {1, 2, 4, 8};
    uint32x4_t bits = vld1q_u32(BITS);
    Lanes four_bits = each([=](auto a, auto b) { return vandq_u32(vcgeq_f32(a, b), bits); }, a, b);
    uint32x4_t low = vorrq_u32(four_bits.a, vshlq_n_u32(four_bits.b, 4));
    uint32x4_t high = vorrq_u32(vshlq_n_u32(four_bits.c, 8), vshlq_n_u32(four_bits.d, 12));
    return vaddvq_u32(vorrq_u32(low, high)) & ((1u << lanes.count) - 1);
}
// Returns `yes` in these lanes and `no` in the others.
inline Floats select16(Lanes lanes, Floats yes, Floats no) {
    return each([](auto lanes, auto yes, auto no) { return vbslq_f32(lanes, yes, no); }, lanes, yes, no);
}
// Returns `values` in these lanes and 0 in the others.
inline Floats keep16(FirstLanes lanes, Floats values) { return select16(lanes_of(lanes), values, zero16()); }
// Adds 1 in these lanes.
inline Integers count16(Integers counts, Lanes lanes) {
    return each([](auto counts, auto lanes) { return vsubq_s32(counts, vreinterpretq_s32_u32(lanes)); }, counts, lanes);
}

// Combines all lanes into one number: the two halves of the 16 lanes, then the two halves of the 8 results, and so on.
template <class Combine4>
[[gnu::always_inline]]
inline float reduced16(Floats values, Combine4&& combine) {
    float32x4_t four = combine(combine(values.d, values.b), combine(values.c, values.a));
    float32x4_t two = combine(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(combine(two, vrev64q_f32(two)), 0);
}
inline float sum16(Floats values) {
    return reduced16(values, [](auto a, auto b) { return vaddq_f32(a, b); });
}
inline float largest16(Floats values) { return reduced16(values, larger4); }
inline float least16(Floats values) { return reduced16(values, smaller4); }
inline int32_t largest16(Integers values) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(values.a, values.b), vmaxq_s32(values.c, values.d)));
}

// Stores four numbers: the sum of the lanes of each vector.
[[gnu::always_inline]]
inline void store_sums16(float* to, Floats a, Floats b, Floats c, Floats d) {
    // Lane i is the sum of four numbers of vector i: (0th + 2nd) + (1st + 3rd).
    auto sums = [](float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
        float32x4_t ab = vaddq_f32(vzip1q_f32(a, b), vzip2q_f32(a, b));
        float32x4_t cd = vaddq_f32(vzip1q_f32(c, d), vzip2q_f32(c, d));
        return vaddq_f32(vcombine_f32(vget_low_f32(ab), vget_low_f32(cd)),
                         vcombine_f32(vget_high_f32(ab), vget_high_f32(cd)));
    };
    Floats four = each(sums, a, b, c, d);
    vst1q_f32(to, vaddq_f32(vaddq_f32(four.a, four.c), vaddq_f32(four.b, four.d)));
}
[[gnu::always_inline]]
inline void store_sums16(int32_t* to, Integers a, Integers b, Integers c, Integers d) {
    auto sums = [](Integers v) { return vaddq_s32(vaddq_s32(v.a, v.b), vaddq_s32(v.c, v.d)); };
    vst1q_s32(to, vpaddq_s32(vpaddq_s32(sums(a), sums(b)), vpaddq_s32(sums(c), sums(d))));
}

// Products of int8: an instruction multiplies four inputs of a row with the weights of four columns. An input is an
// unsigned number of 8 bits, but the instruction takes int8, so STORED_INPUT_OFFSET is subtracted before an input is
// stored. SMALL_PAIRS: the functions for small pairs, or `any` if they are no faster.
using Quantized = int8_t;
using QuantizedWeights = Quad<int8x16_t>;
using QuantizedInputs = int8x16_t;
constexpr int STORED_INPUT_OFFSET = 128;
constexpr Pairs SMALL_PAIRS = Pairs::any;

// Stores the lowest eight bits of each number, less STORED_INPUT_OFFSET.
inline void store16(Quantized* to, Integers values) {
    int16x8_t low = vmovn_high_s32(vmovn_s32(values.a), values.b);
    int16x8_t high = vmovn_high_s32(vmovn_s32(values.c), values.d);
    vst1q_s8(to, veorq_s8(vmovn_high_s16(vmovn_s16(low), high), vdupq_n_s8(INT8_MIN)));
}
// Reads four weights of 16 columns, (16, 4).
inline QuantizedWeights load_weights16(const int8_t* from) {
    return {vld1q_s8(from), vld1q_s8(from + 16), vld1q_s8(from + 32), vld1q_s8(from + 48)};
}
// Reads four inputs of a row, and repeats them for all columns.
inline QuantizedInputs spread16(const Quantized* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
// Adds the products, exactly.
template <Pairs>
inline Integers add_products16(Integers sums, QuantizedInputs inputs, QuantizedWeights weights) {
    return each([=](auto sums, auto weights) { return vdotq_s32(sums, weights, inputs); }, sums, weights);
}
// Multiplies 64 inputs with as many weights of one column. Adds to each lane the products of four inputs.
template <Pairs>
inline Integers add_column_products16(Integers sums, const Quantized* inputs, const int8_t* weights) {
    return each([](auto sums, auto inputs, auto weights) { return vdotq_s32(sums, weights, inputs); }, sums,
                load_weights16(inputs), load_weights16(weights));
}

// Keeps the compiler from reading the inputs of several rows at once: there are too few registers for them.
inline void end_row() { asm volatile("" : : : "memory"); }

}  // namespace transduce
