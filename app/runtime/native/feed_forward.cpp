// The feed-forward block of "Attention Is All You Need", section 3.3, with residual and LayerNorm.
#include "step_blocks.h"

namespace transduce {
namespace {

Activation activation_of(const std::string& name) {
    if (name == "relu") return Activation::relu;
    if (name == "gelu") return Activation::gelu;
    if (name == "silu") return Activation::silu;
    throw InvalidArgument("activation is none of relu, gelu, silu");
}

Floats activate(Activation activation, Floats x) {
    const Floats zero = zero16(), one = all16(1.0f);
    if (activation == Activation::relu) return max16(zero, x);
    // x sigmoid(x).
    if (activation == Activation::silu) return div16(x, add16(one, exp16(sub16(zero, x))));
    // x Phi(x), Hendrycks and Gimpel 2016.
    Floats erf = erf16(mul16(x, all16(0.70710678f)));
    return mul16(mul16(x, all16(0.5f)), add16(one, erf));
}

class FeedForward {
public:
    static constexpr const char* NAME = "FeedForward";
    static constexpr const char* INPUT_NAMES[] = {"residual", "x",   "w_1", "s_1",   "b_1",
                                                  "w_2",      "s_2", "b_2", "gamma", "beta"};
    static constexpr ElementType INPUT_TYPES[] = {
        ElementType::float32, ElementType::float32, ElementType::any,     ElementType::float32, ElementType::float32,
        ElementType::any,     ElementType::float32, ElementType::float32, ElementType::float32, ElementType::float32};
    static constexpr ElementType OUTPUT_TYPES[] = {ElementType::float32, ElementType::float32};

    explicit FeedForward(const NodeInfo& info) : block_(info, 2) {}

    void compute(const KernelCall& call) const {
        BlockInput input(call, block_.d());
        block_.run(input, {call.output<float>(0, {input.n, block_.d()}), call.output<float>(1, {input.n, block_.d()})});
    }

private:
    FeedForwardBlock block_;
};

}  // namespace

FeedForwardBlock::FeedForwardBlock(const NodeInfo& info, int index)
    : activation_(activation_of(info.text("activation"))) {
    inner_ = linear_of(info, index, -1, -1, true, ActivationRange::symmetric);
    ActivationRange range =
        activation_ == Activation::relu ? ActivationRange::non_negative : ActivationRange::symmetric;
    outer_ = linear_of(info, index + 3, inner_.outputs(), inner_.inputs(), true, range);
    norm_ = norm_of(info, index + 6, inner_.inputs());
}

void FeedForwardBlock::run(const BlockInput& input, const BlockOutput& output) const {
    for_each_row_block(inner_, input.n, row_nanoseconds(),
                       [&](int64_t begin, int64_t n) { run_rows(input.rows(begin, n, d()), output.rows(begin, d())); });
}

void FeedForwardBlock::run_rows(const BlockInput& input, const BlockOutput& output) const {
    // Floats from row to row. One cache line longer than a row, so that neighbouring rows do not fall into the same set
    // of the cache.
    int64_t stride = inner_.outputs() + LANES, n = input.n;
    Scratch scratch(LinearInput::bytes(inner_, n) + Scratch::padded_bytes<float>(n * stride) +
                    LinearInput::bytes(outer_, n));
    LinearInput x(inner_, input.x, n, scratch);
    x.prepare_all();
    auto hidden = scratch.allocate<float>(n * stride);
    auto fill = [&](auto activated) {
        multiply(inner_, x.activations(), n, [=](int column, FirstLanes) {
            float* to = hidden + column;
            return [=](int64_t row, Floats product) { store16(to + row * stride, activated(product)); };
        });
    };
    // `fill` is instantiated separately for ReLU, so that its loop has no branch or call for each vector.
    if (activation_ == Activation::relu) fill([](Floats x) { return max16(zero16(), x); });
    else fill([activation = activation_](Floats x) { return activate(activation, x); });
    LinearInput h(outer_, hidden, n, scratch, stride);
    h.prepare_all();
    add_and_normalize(outer_, h.activations(), input.residual, norm_, n, output.total, output.normalised);
}

OrtStatus* register_feed_forward(const OrtApi* api, OrtDomain* domain) {
    return add_operator<FeedForward>(api, domain);
}

}  // namespace transduce
