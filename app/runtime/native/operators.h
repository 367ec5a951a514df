// The operators of domain `transduce`, version 1. Each is a class: its names and types, what it keeps of its
// constants, and one call. Inputs and outputs stand in docs/native-kernels.md.
#pragma once

#include <type_traits>

#include "kernel.h"
#include "linear.h"
#include "rows.h"

namespace transduce {

// A Linear of the constants at `index` (weights (inputs, outputs)), the scales after them and, where has_bias,
// the bias after those; -1 for sizes that may be any. Throws InvalidArgument.
Linear linear_of(const NodeInfo& info, int index, int64_t inputs, int64_t outputs, bool has_bias, ActivationRange range);

// A Norm of the constants gamma and beta (width,) at `index` and the attribute epsilon. Throws InvalidArgument.
Norm norm_of(const NodeInfo& info, int index, int64_t width);

// residual and given (n, width), inputs 0 and 1 of every block.
struct BlockInput {
    const float* residual;
    const float* x;
    int64_t n;

    BlockInput(const float* residual, const float* x, int64_t n) : residual(residual), x(x), n(n) {}
    BlockInput(const KernelCall& call, int64_t width);
    // Rows [begin, begin + count).
    BlockInput rows(int64_t begin, int64_t count, int64_t width) const {
        BlockInput part = *this;
        part.residual += begin * width;
        part.x += begin * width;
        part.n = count;
        return part;
    }
};

// int32 (n,) whose values lie in [low, high). Throws InvalidArgument.
const int32_t* indices_of(const KernelCall& call, int index, int64_t n, int64_t low, int64_t high);

// What every kind of attention keeps: the projection before, W_O and the norm after.
struct AttentionWeights {
    int num_heads, head_dim;
    Linear in, out;
    Norm norm;

    // The constants from `index` on: w, s, b of the projection, with `projections` times d outputs, and of W_O, then
    // gamma and beta; the attributes num_heads and epsilon. Throws InvalidArgument.
    AttentionWeights(const NodeInfo& info, int index, int projections);
    int64_t d() const { return in.inputs(); }
};

// Tell each of some blocks' products which one comes after it; is_ring: after the last the first.
void link_products(const std::vector<Linear*>& linears, bool is_ring);

// Register every operator with a domain of the runtime. Returns its status.
OrtStatus* register_feed_forward(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_step_attention(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_encoder(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_vocabulary(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_decoder(const OrtApi* api, OrtDomain* domain);

// Whether the last of an operator's inputs stands for any number of them, of any types: it then has IS_VARIADIC.
template <class Operator, class = void>
constexpr bool is_variadic = false;
template <class Operator>
constexpr bool is_variadic<Operator, std::void_t<decltype(Operator::IS_VARIADIC)>> = true;

// OrtCustomOp over an operator's class.
template <class Operator>
struct CustomOp : OrtCustomOp {
    struct Kernel {
        const OrtApi* api;
        Operator op;
    };

    CustomOp() : OrtCustomOp{} {
        version = API_VERSION;
        get_name = [](const OrtCustomOp*) { return Operator::NAME; };
        get_execution_provider = [](const OrtCustomOp*) -> const char* { return nullptr; };
        get_num_inputs = [](const OrtCustomOp*) { return std::size(Operator::INPUT_TYPES); };
        get_input_type = [](const OrtCustomOp*, size_t index) { return Operator::INPUT_TYPES[index]; };
        get_num_outputs = [](const OrtCustomOp*) { return std::size(Operator::OUTPUT_TYPES); };
        get_output_type = [](const OrtCustomOp*, size_t index) { return Operator::OUTPUT_TYPES[index]; };
        get_input_characteristic = [](const OrtCustomOp*, size_t index) {
            bool is_last = index + 1 == std::size(Operator::INPUT_TYPES);
            return is_variadic<Operator> && is_last ? Characteristic::variadic : Characteristic::required;
        };
        get_variadic_input_min_arity = [](const OrtCustomOp*) { return 1; };
        get_variadic_input_homogeneity = [](const OrtCustomOp*) { return 0; };
        get_output_characteristic = [](const OrtCustomOp*, size_t) { return Characteristic::required; };
        get_input_memory = [](const OrtCustomOp*, size_t) { return 0; };
        destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
        create_kernel_v2 = create;
        compute_v2 = compute_kernel;
    }

    static OrtStatus* failure(const OrtApi* api, ErrorCode code, const char* message) {
        std::string text = std::string(Operator::NAME) + ": " + message;
        return call<OrtStatus*>(api, Function::create_status, code, text.c_str());
    }

    static OrtStatus* create(const OrtCustomOp*, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
        try {
            *kernel = new Kernel{api, Operator(NodeInfo(api, info, Operator::INPUT_NAMES, std::size(Operator::INPUT_NAMES)))};
        } catch (const InvalidArgument& error) {
            return failure(api, ErrorCode::invalid_argument, error.what());
        } catch (const std::exception& error) {
            return failure(api, ErrorCode::fail, error.what());
        }
        return nullptr;
    }

    static OrtStatus* compute_kernel(void* kernel, OrtKernelContext* context) {
        auto own = static_cast<Kernel*>(kernel);
        MatrixTilesReleased released;
        try {
            own->op.compute(KernelCall(own->api, context, Operator::INPUT_NAMES));
        } catch (const InvalidArgument& error) {
            return failure(own->api, ErrorCode::invalid_argument, error.what());
        } catch (const std::exception& error) {
            return failure(own->api, ErrorCode::fail, error.what());
        }
        return nullptr;
    }
};

template <class Operator>
OrtStatus* add_operator(const OrtApi* api, OrtDomain* domain) {
    // Outlives every session; without a destructor that could run before theirs.
    static auto* const registered = new CustomOp<Operator>();
    return call<OrtStatus*>(api, Function::domain_add, domain, static_cast<const OrtCustomOp*>(registered));
}

}  // namespace transduce
