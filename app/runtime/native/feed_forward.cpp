// Feed-forward block of "Attention Is All You Need", section 3.3, with what follows it: residual and LayerNorm.
#include "operators.h"

namespace transduce {
namespace {

enum class Activation { relu, gelu, silu };

Activation activation_of(const std::string& name) {
    if (name == "relu") return Activation::relu;
    if (name == "gelu") return Activation::gelu;
    if (name == "silu") return Activation::silu;
    throw Refused("activation is none of relu, gelu, silu");
}

__m512 activate(Activation activation, __m512 x) {
    const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1.0f);
    if (activation == Activation::relu) return max16(zero, x);
    // x sigmoid(x).
    if (activation == Activation::silu) return _mm512_div_ps(x, _mm512_add_ps(one, exp16(_mm512_sub_ps(zero, x))));
    // x Phi(x), Hendrycks and Gimpel 2016.
    __m512 erf = erf16(_mm512_mul_ps(x, _mm512_set1_ps(0.70710678f)));
    return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.5f)), _mm512_add_ps(one, erf));
}

class FeedForward {
public:
    static constexpr const char* NAME = "FeedForward";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "w_1", "s_1",   "b_1",
                                                  "w_2",      "s_2",   "b_2", "gamma", "beta"};
    static constexpr ElementType INPUT_TYPES[] = {
        ElementType::float32, ElementType::float32, ElementType::any,     ElementType::float32, ElementType::float32,
        ElementType::any,     ElementType::float32, ElementType::float32, ElementType::float32, ElementType::float32};
    static constexpr ElementType OUTPUT_TYPES[] = {ElementType::float32, ElementType::float32};

    explicit FeedForward(const Info& info) : activation_(activation_of(info.text("activation"))) {
        inner_ = linear_of(info, 2, -1, -1, true, Levels::around_128);
        Levels levels = activation_ == Activation::relu ? Levels::from_0 : Levels::around_128;
        outer_ = linear_of(info, 5, inner_.outputs(), inner_.inputs(), true, levels);
        norm_ = norm_of(info, 8, inner_.inputs());
    }

    void compute(const Call& call) const {
        int64_t d = inner_.inputs();
        Flow flow(call, d);
        auto total = call.output<float>(0, {flow.n, d}), normalised = call.output<float>(1, {flow.n, d});
        each_block(inner_, flow.n, inner_.row_nanoseconds() + outer_.row_nanoseconds(), [&](int64_t begin, int64_t n) {
            int64_t at = begin * d;
            block(flow.residual + at, flow.given + at, n, total + at, normalised + at);
        });
    }

private:
    void block(const float* residual, const float* given, int64_t n, float* total, float* normalised) const {
        int64_t f = inner_.outputs();
        Scratch scratch(Prepared::bytes(inner_, n) + Scratch::piece<float>(n * f) + Prepared::bytes(outer_, n));
        Prepared x(inner_, given, n, scratch);
        x.put_all();
        auto hidden = scratch.take<float>(n * f);
        Activation activation = activation_;
        multiply(inner_, x.activations(), n, [=](int64_t row, int column, __mmask16, __m512 product) {
            store16(hidden + row * f + column, activate(activation, product));
        });
        Prepared h(outer_, hidden, n, scratch);
        h.put_all();
        add_and_normalize(outer_, h.activations(), residual, norm_, n, total, normalised);
    }

    Activation activation_;
    Linear inner_, outer_;
    Norm norm_;
};

}  // namespace

OrtStatus* register_feed_forward(const OrtApi* api, OrtDomain* domain) {
    return add_operator<FeedForward>(api, domain);
}

}  // namespace transduce
