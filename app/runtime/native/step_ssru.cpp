// The SSRU of a decoder step (Kim et al. 2019, section 3.1) with residual and LayerNorm.
#include <limits>
#include <numeric>
#include <vector>

#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;

// Rough cost, in ns, of 64 elements of a row's state and of its output.
constexpr int64_t NS_FOR_64 = 30;

Floats sigmoid(Floats x) {
    const Floats one = all16(1.0f);
    return div16(one, add16(one, exp16(sub16(zero16(), x))));
}

}  // namespace

SsruBlock::SsruBlock(const NodeInfo& info, int index) {
    in_ = linear_of(info, index, -1, -1, true, ActivationRange::symmetric);
    if (in_.outputs() != 2 * in_.inputs()) {
        throw InvalidArgument("the weights of an SSRU have %d columns, and must have %d, twice the number of inputs",
                              in_.outputs(), 2 * in_.inputs());
    }
    norm_ = norm_of(info, index + 3, in_.inputs());
}

int64_t SsruBlock::row_nanoseconds() const { return in_.row_nanoseconds() + d() * NS_FOR_64 / 64; }

void SsruBlock::run(const BlockInput& input, const LayerState& state, const int32_t* state_rows,
                    const int32_t* positions, const BlockOutput& output) const {
    for_each_row_block(in_, input.n, row_nanoseconds(), [&](int64_t begin, int64_t n) {
        run_rows(input.rows(begin, n, d()), state, state_rows + begin, positions + begin, output.rows(begin, d()));
    });
}

void SsruBlock::run_rows(const BlockInput& input, const LayerState& state, const int32_t* state_rows,
                         const int32_t* positions, const BlockOutput& output) const {
    // The stride is one cache line longer than a row, so that neighbouring rows do not fall into the same set of the
    // cache.
    int64_t d = this->d(), stride = 2 * d + LANES, n = input.n;
    Scratch scratch(LinearInput::bytes(in_, n) + Scratch::padded_bytes<float>(n * stride));
    LinearInput x(in_, input.x, n, scratch);
    x.prepare_all();
    auto products = scratch.allocate<float>(n * stride);
    multiply(in_, x.activations(), n, [=](int column, FirstLanes) {
        float* to = products + column;
        return [=](int64_t row, Floats product) { store16(to + row * stride, product); };
    });
    for_each_row(n, d * NS_FOR_64 / 64, [&](int64_t row) {
        const float *z = products + row * stride, *residual = input.residual + row * d;
        float *c = state.values + state_rows[row] * state.stride, *total = output.total + row * d;
        bool is_first = positions[row] == 0;
        for (int64_t i = 0; i < d; i += LANES) {
            Floats before = is_first ? zero16() : load16(c + i), new_value = load16(z + i);
            // f c + (1 - f) z = z + f (c - z)
            Floats after = fma16(sigmoid(load16(z + d + i)), sub16(before, new_value), new_value);
            store16(c + i, after);
            store16(total + i, add16(load16(residual + i), max16(zero16(), after)));
        }
        normalize_row(total, norm_, output.normalised + row * d);
    });
}

namespace {

class SsruStep {
public:
    static constexpr const char* NAME = "SsruStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "x", "positions", "state", "w",
                                                  "s",        "b", "gamma",     "beta"};
    static constexpr ElementType INPUT_TYPES[] = {
        FLOAT, FLOAT, ElementType::int32, FLOAT, ElementType::any, FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SsruStep(const NodeInfo& info) : block_(info, 4) {}

    void compute(const KernelCall& call) const {
        int64_t d = block_.d();
        BlockInput input(call, d);
        Tensor state = call.input(3);
        state.expect_shape({input.n, d});
        const int32_t* positions = indices_of(call, 2, input.n, 0, std::numeric_limits<int32_t>::max());
        std::vector<int32_t> rows(input.n);
        std::iota(rows.begin(), rows.end(), 0);
        block_.run(input, {state.as<float>(), d}, rows.data(), positions,
                   {call.output<float>(0, {input.n, d}), call.output<float>(1, {input.n, d})});
    }

private:
    SsruBlock block_;
};

}  // namespace

OrtStatus* register_step_ssru(const OrtApi* api, OrtDomain* domain) { return add_operator<SsruStep>(api, domain); }

}  // namespace transduce
