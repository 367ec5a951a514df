#include "rows.h"

#include <cmath>
#include <cstring>

namespace transduce {
namespace {

// Rough cost of a pass over 16 floats, in eighths of a nanosecond.
constexpr int64_t COST_OF_16 = 12;

int64_t row_cost(int width) { return width / LANES * COST_OF_16 / 8 + 10; }

// Returns the sum of values(i) over i = 0, 16, ..., width - 16. values(i): 16 floats.
template <class Values>
float sum_each(int width, Values&& values) {
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    int i = 0;
    for (; i + 4 * LANES <= width; i += 4 * LANES) {
        a = _mm512_add_ps(a, values(i));
        b = _mm512_add_ps(b, values(i + LANES));
        c = _mm512_add_ps(c, values(i + 2 * LANES));
        d = _mm512_add_ps(d, values(i + 3 * LANES));
    }
    for (; i < width; i += LANES) a = _mm512_add_ps(a, values(i));
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
}

}  // namespace

Norm::Norm(const float* gamma, const float* beta, int width, float epsilon)
    : memory(size_t(width) * 8), width(width), epsilon(epsilon) {
    std::copy(gamma, gamma + width, memory.as<float>());
    std::copy(beta, beta + width, memory.as<float>() + width);
}

float quantize_row(const float* x, int width, ActivationRange range, uint8_t* q) {
    __m512i largest = _mm512_setzero_si512(), other = largest;
    for (int i = 0; i < width; i += LANES) {
        std::swap(largest, other);
        largest = _mm512_max_epi32(largest, magnitude_bits(load16(x + i)));
    }
    int bits = _mm512_reduce_max_epi32(_mm512_max_epi32(largest, other));
    float absmax;
    std::memcpy(&absmax, &bits, 4);
    bool is_signed = range == ActivationRange::symmetric;
    __m512 factor = _mm512_set1_ps((is_signed ? 127.0f : 255.0f) / absmax);
    __m512i zero_point = _mm512_set1_epi32(is_signed ? 128 : 0);
    for (int i = 0; i < width; i += LANES) {
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(load16(x + i), factor));
        __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(whole, zero_point));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), bytes);
    }
    return absmax;
}

void normalize_row(const float* x, const Norm& norm, float* to) {
    int width = norm.width;
    float mean_of_row = sum_each(width, [&](int i) { return load16(x + i); }) / width;
    __m512 mean = _mm512_set1_ps(mean_of_row);
    float squares = sum_each(width, [&](int i) {
        __m512 d = _mm512_sub_ps(load16(x + i), mean);
        return _mm512_mul_ps(d, d);
    });
    __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(squares / width + norm.epsilon));
    for (int i = 0; i < width; i += LANES) {
        __m512 relative = _mm512_mul_ps(_mm512_sub_ps(load16(x + i), mean), factor);
        store16(to + i, _mm512_fmadd_ps(relative, load16(norm.gamma() + i), load16(norm.beta() + i)));
    }
}

void normalize_rows(const float* x, int64_t n, const Norm& norm, float* to) {
    int64_t width = norm.width;
    for_each_row(n, row_cost(width) * 2, [&](int64_t row) { normalize_row(x + row * width, norm, to + row * width); });
}

LinearInput::LinearInput(const Linear& linear, const float* x, int64_t n, Scratch& scratch, int64_t x_stride)
    : x_(x),
      n_(n),
      width_(linear.inputs()),
      x_stride_(x_stride ? x_stride : width_),
      stride_(linear.is_int8() ? stride_of(linear) : x_stride_),
      range_(linear.range()) {
    if (!linear.is_int8()) return;
    q_ = scratch.allocate<uint8_t>(n * stride_);
    absmax_ = scratch.allocate<float>(n);
}

void LinearInput::prepare_all() const {
    if (q_) for_each_row(n_, row_cost(width_), [&](int64_t row) { prepare(row); });
}

void add_and_normalize(const Linear& linear, const Activations& x, const float* residual, const Norm& norm, int64_t n,
                       float* total, float* normalised) {
    int64_t width = linear.outputs();
    multiply(linear, x, n, [=](int column, __mmask16) {
        return [=](int64_t row, __m512 product) {
            int64_t at = row * width + column;
            store16(total + at, _mm512_add_ps(load16(residual + at), product));
        };
    });
    normalize_rows(total, n, norm, normalised);
}

}  // namespace transduce
