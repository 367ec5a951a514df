#include "rows.h"

#include <cmath>
#include <cstring>

namespace transduce {
namespace {

// Rough cost of a pass over 16 floats, in eighths of a nanosecond.
constexpr int64_t COST_OF_16 = 12;

// Nanoseconds of a pass over a row, 10 of them fixed.
int64_t row_cost(int width) { return width / LANES * COST_OF_16 / 8 + 10; }

// Returns the sum of values(i) over i = 0, 16, ..., width - 16. values(i): 16 floats.
template <class Values>
float sum_each(int width, Values&& values) {
    Floats a = zero16(), b = a, c = a, d = a;
    int i = 0;
    for (; i + 4 * LANES <= width; i += 4 * LANES) {
        a = add16(a, values(i));
        b = add16(b, values(i + LANES));
        c = add16(c, values(i + 2 * LANES));
        d = add16(d, values(i + 3 * LANES));
    }
    for (; i < width; i += LANES) a = add16(a, values(i));
    return sum16(add16(add16(a, b), add16(c, d)));
}

}  // namespace

Norm::Norm(const float* gamma, const float* beta, int width, float epsilon)
    : memory(size_t(width) * 8), width(width), epsilon(epsilon) {
    std::copy(gamma, gamma + width, memory.as<float>());
    std::copy(beta, beta + width, memory.as<float>() + width);
}

float quantize_row(const float* x, int width, ActivationRange range, Quantized* q) {
    // Two accumulators take turns, so that a maximum need not wait for the one before.
    Integers largest = all16(0), other = largest;
    for (int i = 0; i < width; i += LANES) {
        std::swap(largest, other);
        largest = max16(largest, magnitude_bits(load16(x + i)));
    }
    int bits = largest16(max16(largest, other));
    float absmax;
    std::memcpy(&absmax, &bits, 4);
    bool is_signed = range == ActivationRange::symmetric;
    Floats factor = all16((is_signed ? 127.0f : 255.0f) / absmax);
    Integers zero_point = all16(is_signed ? 128 : 0);
    for (int i = 0; i < width; i += LANES) {
        Integers rounded = integers_of(mul16(load16(x + i), factor));
        store16(q + i, add16(rounded, zero_point));
    }
    return absmax;
}

void normalize_row(const float* x, const Norm& norm, float* to) {
    int width = norm.width;
    float mean_of_row = sum_each(width, [&](int i) { return load16(x + i); }) / width;
    Floats mean = all16(mean_of_row);
    float squares = sum_each(width, [&](int i) {
        Floats d = sub16(load16(x + i), mean);
        return mul16(d, d);
    });
    Floats factor = all16(1.0f / std::sqrt(squares / width + norm.epsilon));
    for (int i = 0; i < width; i += LANES) {
        Floats relative = mul16(sub16(load16(x + i), mean), factor);
        store16(to + i, fma16(relative, load16(norm.gamma() + i), load16(norm.beta() + i)));
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
    q_ = scratch.allocate<Quantized>(n * stride_);
    absmax_ = scratch.allocate<float>(n);
}

void LinearInput::prepare_all() const {
    if (q_) for_each_row(n_, row_cost(width_), [&](int64_t row) { prepare(row); });
}

void add_and_normalize(const Linear& linear, const Activations& x, const float* residual, const Norm& norm, int64_t n,
                       float* total, float* normalised) {
    int64_t width = linear.outputs();
    multiply(linear, x, n, [=](int column, FirstLanes) {
        return [=](int64_t row, Floats product) {
            int64_t at = row * width + column;
            store16(total + at, add16(load16(residual + at), product));
        };
    });
    normalize_rows(total, n, norm, normalised);
}

}  // namespace transduce
