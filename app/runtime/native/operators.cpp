#include "operators.h"

#include "attention.h"

#include <dlfcn.h>

#include <mutex>

namespace transduce {
namespace {

// Returns the constant `index`, float (count,). Throws InvalidArgument.
const float* float_constant(const NodeInfo& info, int index, int64_t count) {
    Tensor values = info.constant(index);
    values.expect_shape({count});
    // ONNX Runtime does not check the types of variadic inputs.
    if (values.type != ElementType::float32) throw InvalidArgument("%s is not float", values.name);
    return values.as<float>();
}

}  // namespace

Linear linear_of(const NodeInfo& info, int index, int64_t inputs, int64_t outputs, bool has_bias,
                 ActivationRange range) {
    Tensor weights = info.constant(index);
    weights.expect_shape({inputs, outputs});
    bool is_int8 = weights.type == ElementType::int8;
    if (!is_int8 && weights.type != ElementType::float32)
        throw InvalidArgument("%s is neither int8 nor float", weights.name);
    if (weights.shape[0] < 1 || weights.shape[0] % LANES)
        throw InvalidArgument("%s has %lld inputs, which is no positive multiple of %d", weights.name,
                              static_cast<long long>(weights.shape[0]), LANES);
    const float* scales = float_constant(info, index + 1, is_int8 ? weights.shape[1] : 0);
    const float* bias = has_bias ? float_constant(info, index + 2, weights.shape[1]) : nullptr;
    return Linear({weights.data, is_int8, false, int(weights.shape[0]), int(weights.shape[1]), scales, bias, range});
}

Norm norm_of(const NodeInfo& info, int index, int64_t width) {
    const float *gamma = float_constant(info, index, width), *beta = float_constant(info, index + 1, width);
    return Norm(gamma, beta, int(width), info.number("epsilon"));
}

BlockInput::BlockInput(const KernelCall& call, int64_t width) {
    Tensor first = call.input(0), second = call.input(1);
    first.expect_shape({-1, width});
    n = first.shape[0];
    second.expect_shape({n, width});
    residual = first.as<float>();
    x = second.as<float>();
}

const int32_t* indices_of(const KernelCall& call, int index, int64_t n, int64_t low, int64_t high) {
    Tensor indices = call.input(index);
    indices.expect_shape({n});
    expect_in_range(indices.name, indices.as<int32_t>(), n, low, high);
    return indices.as<int32_t>();
}

void link_products(const std::vector<Linear*>& linears, bool is_ring) {
    for (size_t i = 0; i + 1 < linears.size(); ++i) linears[i]->set_next(*linears[i + 1]);
    if (is_ring) linears.back()->set_next(*linears.front());
}

AttentionWeights::AttentionWeights(const NodeInfo& info, int index, int projections)
    : num_heads(int(info.integer("num_heads"))) {
    in = linear_of(info, index, -1, -1, true, ActivationRange::symmetric);
    int d = in.inputs();
    if (in.outputs() != projections * d)
        throw InvalidArgument("%s has %d outputs, not %d", info.constant(index).name, in.outputs(), projections * d);
    if (num_heads < 1 || d % num_heads || d / num_heads % LANES || d / num_heads > MAX_HEAD_DIM) {
        throw InvalidArgument(
            "num_heads is %d, which does not divide %d columns into heads of a multiple of %d columns, at most %d",
            num_heads, d, LANES, MAX_HEAD_DIM);
    }
    head_dim = d / num_heads;
    out = linear_of(info, index + 3, d, d, true, ActivationRange::symmetric);
    norm = norm_of(info, index + 6, d);
}

namespace {

// Keeps the library loaded until the process ends: worker threads run its code.
void keep_loaded() {
    Dl_info own;
    if (dladdr(reinterpret_cast<void*>(keep_loaded), &own)) dlopen(own.dli_fname, RTLD_NOW | RTLD_NODELETE);
}

OrtStatus* make_domain(const OrtApi* api, OrtDomain** domain) {
    OrtStatus* status = call<OrtStatus*>(api, Function::create_custom_op_domain, "transduce", domain);
    for (auto add : {register_feed_forward, register_step_attention, register_step_ssru, register_encoder,
                     register_vocabulary, register_decoder, register_gpu_attention}) {
        if (!status) status = add(api, *domain);
    }
    return status;
}

}  // namespace
}  // namespace transduce

// Called by ONNX Runtime when the library is registered with a session's options.
extern "C" __attribute__((visibility("default"))) transduce::OrtStatus* RegisterCustomOps(
    transduce::OrtSessionOptions* options, const transduce::OrtApiBase* base) {
    using namespace transduce;
    // Several threads may make sessions at once.
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    // One domain for all sessions of the process. It must outlive them.
    static OrtDomain* domain = nullptr;
    const OrtApi* api = base->get_api(API_VERSION);
    if (!domain) {
        keep_loaded();
        OrtDomain* created = nullptr;
        if (OrtStatus* status = make_domain(api, &created)) return status;
        domain = created;
    }
    return call<OrtStatus*>(api, Function::add_custom_op_domain, options, domain);
}
