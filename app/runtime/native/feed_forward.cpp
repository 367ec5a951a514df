// Feed-forward block of "Attention Is All You Need", section 3.3, with what follows it: residual and LayerNorm.
#include "step_blocks.h"

namespace transduce {
namespace {

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

    explicit FeedForward(const Info& info) : block_(info, 2) {}

    void compute(const Call& call) const {
        Flow flow(call, block_.d());
        block_.run(flow, {call.output<float>(0, {flow.n, block_.d()}), call.output<float>(1, {flow.n, block_.d()})});
    }

private:
    FeedForwardBlock block_;
};

}  // namespace

FeedForwardBlock::FeedForwardBlock(const Info& info, int index) : activation_(activation_of(info.text("activation"))) {
    inner_ = linear_of(info, index, -1, -1, true, Levels::around_128);
    Levels levels = activation_ == Activation::relu ? Levels::from_0 : Levels::around_128;
    outer_ = linear_of(info, index + 3, inner_.outputs(), inner_.inputs(), true, levels);
    norm_ = norm_of(info, index + 6, inner_.inputs());
}

void FeedForwardBlock::run(const Flow& flow, const Made& made) const {
    each_block(inner_, flow.n, row_nanoseconds(),
               [&](int64_t begin, int64_t n) { run_rows(flow.rows(begin, n, d()), made.rows(begin, d())); });
}

void FeedForwardBlock::run_rows(const Flow& flow, const Made& made) const {
    // A cache line more than a row has, as in Prepared.
    int64_t stride = inner_.outputs() + LANES, n = flow.n;
    Scratch scratch(Prepared::bytes(inner_, n) + Scratch::piece<float>(n * stride) + Prepared::bytes(outer_, n));
    Prepared x(inner_, flow.given, n, scratch);
    x.put_all();
    auto hidden = scratch.take<float>(n * stride);
    auto fill = [&](auto activated) {
        multiply(inner_, x.activations(), n, [=](int column, __mmask16) {
            float* to = hidden + column;
            return [=](int64_t row, __m512 product) { store16(to + row * stride, activated(product)); };
        });
    };
    // By itself, so that nothing is asked or called for each of them.
    if (activation_ == Activation::relu) fill([](__m512 x) { return max16(_mm512_setzero_ps(), x); });
    else fill([activation = activation_](__m512 x) { return activate(activation, x); });
    Prepared h(outer_, hidden, n, scratch, stride);
    h.put_all();
    add_and_normalize(outer_, h.activations(), flow.residual, norm_, n, made.total, made.normalised);
}

OrtStatus* register_feed_forward(const OrtApi* api, OrtDomain* domain) {
    return add_operator<FeedForward>(api, domain);
}

}  // namespace transduce
