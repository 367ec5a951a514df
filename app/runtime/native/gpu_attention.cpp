// The operator RowAttention for ONNX Runtime's CUDA provider: attention of one query for each row of a decoder step.
// Launches the kernel attend_rows of app/runtime/cuda/attention.cu, which Python compiles for the GPU at hand and sets.
#include <array>
#include <atomic>

#include "operators.h"

// The tests' build sets it to nullptr, ONNX Runtime's CPU provider, to run the kernel on a CPU.
#ifndef TRANSDUCE_ATTENTION_PROVIDER
#define TRANSDUCE_ATTENTION_PROVIDER "CUDAExecutionProvider"
#endif

namespace transduce {
namespace {

// Threads of a block: MAX_THREADS of attention.cu.
constexpr unsigned NUM_THREADS = 128;
// Half-precision numbers that the kernel reads at once, and the maximum of them in a head.
constexpr int VECTOR = 8, MAX_WIDTH = 128;

// cuLaunchKernel of CUDA's driver: function, grid, block, bytes of shared memory, stream, arguments, further options.
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**);

// Set by transduce_set_gpu_attention.
std::atomic<Launch> launch_kernel{nullptr};
std::atomic<void*> attend_rows{nullptr};

// Inputs:
// - projected (rows, width) or (rows, 3 * width): the product of the rows with W_Q, or with W_Q, W_K and W_V, without
//   its bias. If it is 3 * width wide, each row's key and value are first written to column last_columns of the caches
// - bias: of the product, as wide as `projected`
// - keys, values (rows, num_heads, capacity, head_dim): the caches, written in place
// - last_columns (rows,) int32: each row attends to the columns up to this one
//
// Outputs: heads (rows, width), and present_keys and present_values, which must be bound to the memory of the caches.
class RowAttention {
public:
    static constexpr const char* NAME = "RowAttention";
    static constexpr const char* PROVIDER = TRANSDUCE_ATTENTION_PROVIDER;
    static constexpr const char* INPUT_NAMES[] = {"projected", "bias", "keys", "values", "last_columns"};
    static constexpr ElementType INPUT_TYPES[] = {ElementType::float16, ElementType::float16, ElementType::float16,
                                                  ElementType::float16, ElementType::int32};
    static constexpr ElementType OUTPUT_TYPES[] = {ElementType::float16, ElementType::float16, ElementType::float16};

    explicit RowAttention(const NodeInfo&) {}

    // Throws InvalidArgument.
    void compute(const KernelCall& call) const {
        Tensor keys = call.input(2), values = call.input(3);
        keys.expect_shape({-1, -1, -1, -1});
        const int64_t rows = keys.shape[0], num_heads = keys.shape[1], capacity = keys.shape[2];
        const int64_t head_dim = keys.shape[3], width = num_heads * head_dim;
        values.expect_shape({rows, num_heads, capacity, head_dim});
        if (head_dim % VECTOR || head_dim > MAX_WIDTH)
            throw InvalidArgument("head_dim is %d; it must be a multiple of %d, at most %d", int(head_dim), VECTOR,
                                  MAX_WIDTH);
        Tensor projected = call.input(0), bias = call.input(1), last_columns = call.input(4);
        projected.expect_shape({rows, -1});
        int appends = projected.shape[1] == 3 * width;
        projected.expect_shape({rows, appends ? 3 * width : width});
        bias.expect_shape({projected.shape[1]});
        last_columns.expect_shape({rows});
        void* heads = call.output<void>(0, {rows, width});
        for (int i = 0; i < 2; ++i) {
            const Tensor& cache = i ? values : keys;
            if (call.output<void>(1 + i, {rows, num_heads, capacity, head_dim}) != cache.data)
                throw InvalidArgument("output present_%s is not bound to the memory of input %s", cache.name,
                                      cache.name);
        }
        launch(call.stream(), unsigned(num_heads), unsigned(rows), projected.data, bias.data, keys.data, values.data,
               last_columns.data, heads, int(head_dim), int(capacity), appends);
    }

private:
    // Enqueues the kernel with these arguments, in its order. Throws InvalidArgument.
    template <class... Arguments>
    static void launch(void* stream, unsigned num_heads, unsigned rows, Arguments... arguments) {
        Launch run = launch_kernel.load();
        if (!run) throw InvalidArgument("the GPU's kernel is not set");
        std::array<void*, sizeof...(arguments)> addresses{&arguments...};
        if (int code =
                run(attend_rows.load(), num_heads, rows, 1, NUM_THREADS, 1, 1, 0, stream, addresses.data(), nullptr))
            throw InvalidArgument("the GPU's kernel could not be run: CUDA driver error %d", code);
    }
};

}  // namespace

OrtStatus* register_gpu_attention(const OrtApi* api, OrtDomain* domain) {
    return add_operator<RowAttention>(api, domain);
}

}  // namespace transduce

// Sets the kernel that RowAttention launches in all sessions of the process. launch: cuLaunchKernel. function: of type
// CUfunction.
extern "C" __attribute__((visibility("default"))) void transduce_set_gpu_attention(void* launch, void* function) {
    transduce::attend_rows = function;
    transduce::launch_kernel = reinterpret_cast<transduce::Launch>(launch);
}
