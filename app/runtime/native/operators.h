// The code that all operators of domain `transduce`, version 1, share. It reads an operator's constants, and it
// registers the operator with ONNX Runtime. An operator is a class with its names and types, a constructor that reads
// the constants, and compute(). docs/native-kernels.md lists the inputs and outputs.
#pragma once

#include <cstdio>
#include <new>
#include <type_traits>

#include "kernel.h"
#include "linear.h"
#include "rows.h"

namespace transduce {

// Returns a Linear of the constants at `index`: weights (inputs, outputs), scales, and if has_bias the bias. -1 stands
// for any size. Throws InvalidArgument.
Linear linear_of(const NodeInfo& info, int index, int64_t inputs, int64_t outputs, bool has_bias,
                 ActivationRange range);

// Returns a Norm of the constants gamma and beta (width,) at `index` and the attribute epsilon. Throws InvalidArgument.
Norm norm_of(const NodeInfo& info, int index, int64_t width);

// Inputs 0 and 1 of each block that adds to a residual (attention, SSRU, feed-forward): residual and x, both (n,
// width).
struct BlockInput {
    const float* residual;
    const float* x;
    int64_t n;

    BlockInput(const float* residual, const float* x, int64_t n) : residual(residual), x(x), n(n) {}
    // Throws InvalidArgument.
    BlockInput(const KernelCall& call, int64_t width);
    // Returns rows [begin, begin + count).
    BlockInput rows(int64_t begin, int64_t count, int64_t width) const {
        BlockInput part = *this;
        part.residual += begin * width;
        part.x += begin * width;
        part.n = count;
        return part;
    }
};

// Returns input `index`, int32 (n,). Throws InvalidArgument unless it has this shape and its values are in [low, high).
const int32_t* indices_of(const KernelCall& call, int index, int64_t n, int64_t low, int64_t high);

// The weights of an attention block: the projection to queries (in self-attention also to keys and values), W_O, norm.
struct AttentionWeights {
    int num_heads, head_dim;
    Linear in, out;
    Norm norm;

    // Reads the constants from `index` on: w, s, b of the projection, which has `projections` * d outputs, w, s, b of
    // W_O, gamma, beta; and the attributes num_heads and epsilon. Throws InvalidArgument.
    AttentionWeights(const NodeInfo& info, int index, int projections);
    int64_t d() const { return in.inputs(); }
    // Returns the rough cost of one row in both products, when many rows are multiplied.
    int64_t row_nanoseconds() const { return in.row_nanoseconds() + out.row_nanoseconds(); }
};

// Throws InvalidArgument unless a block's rows are as wide as the embedding's. layer: the block's layer, from 0.
inline void expect_width(const char* block, int64_t layer, int64_t width, int64_t embedding_width) {
    if (width != embedding_width)
        throw InvalidArgument("the %s of layer %d is %d wide, not %d", block, int(layer), int(width),
                              int(embedding_width));
}

// Tells each product which product follows it, so that the weights of the following one are prefetched
// (`Linear::set_next`). is_ring: the first product follows the last one.
void link_products(const std::vector<Linear*>& linears, bool is_ring);

// Register the operators of one file with a domain. Return ONNX Runtime's status, which is nullptr for success.
OrtStatus* register_feed_forward(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_step_attention(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_step_ssru(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_encoder(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_vocabulary(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_decoder(const OrtApi* api, OrtDomain* domain);
OrtStatus* register_gpu_attention(const OrtApi* api, OrtDomain* domain);

// Whether an operator's last input stands for one or more inputs of any types. Such a class has a member IS_VARIADIC.
template <class Operator, class = void>
constexpr bool is_variadic = false;
template <class Operator>
constexpr bool is_variadic<Operator, std::void_t<decltype(Operator::IS_VARIADIC)>> = true;

// The provider of ONNX Runtime that runs an operator: the class's member PROVIDER. Without this member it is nullptr,
// which stands for the CPU provider.
template <class Operator, class = void>
constexpr const char* provider_of = nullptr;
template <class Operator>
constexpr const char* provider_of<Operator, std::void_t<decltype(Operator::PROVIDER)>> = Operator::PROVIDER;

// The OrtCustomOp of an operator class.
template <class Operator>
struct CustomOp : OrtCustomOp {
    struct Kernel {
        const OrtApi* api;
        Operator op;
    };

    CustomOp() : OrtCustomOp{} {
        version = API_VERSION;
        get_name = [](const OrtCustomOp*) { return Operator::NAME; };
        get_execution_provider = [](const OrtCustomOp*) { return provider_of<Operator>; };
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

    // Makes the message without an allocation, because memory may have run out.
    static OrtStatus* failure(const OrtApi* api, ErrorCode code, const char* message) noexcept {
        char text[320];
        std::snprintf(text, sizeof text, "%s: %s", Operator::NAME, message);
        return call<OrtStatus*>(api, Function::create_status, code, static_cast<const char*>(text));
    }

    // Calls body(). Returns its exception as a status, nullptr if it throws none.
    template <class Body>
    static OrtStatus* guarded(const OrtApi* api, Body&& body) noexcept {
        try {
            body();
        } catch (const InvalidArgument& error) {
            return failure(api, ErrorCode::invalid_argument, error.what());
        } catch (const std::bad_alloc&) {
            return failure(api, ErrorCode::fail, "out of memory");
        } catch (const std::exception& error) {
            return failure(api, ErrorCode::fail, error.what());
        } catch (...) {
            return failure(api, ErrorCode::fail, "unknown error");
        }
        return nullptr;
    }

    static OrtStatus* create(const OrtCustomOp*, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
        return guarded(api, [&] {
            *kernel =
                new Kernel{api, Operator(NodeInfo(api, info, Operator::INPUT_NAMES, std::size(Operator::INPUT_NAMES)))};
        });
    }

    static OrtStatus* compute_kernel(void* kernel, OrtKernelContext* context) {
        auto self = static_cast<Kernel*>(kernel);
        MatrixTilesGuard guard;
        return guarded(self->api, [&] { self->op.compute(KernelCall(self->api, context, Operator::INPUT_NAMES)); });
    }
};

template <class Operator>
OrtStatus* add_operator(const OrtApi* api, OrtDomain* domain) {
    // Never deleted, because it must outlive every session, even while the process ends.
    static auto* const custom_op = new (std::nothrow) CustomOp<Operator>();
    if (!custom_op) return call<OrtStatus*>(api, Function::create_status, ErrorCode::fail, "out of memory");
    return call<OrtStatus*>(api, Function::domain_add, domain, static_cast<const OrtCustomOp*>(custom_op));
}

}  // namespace transduce
