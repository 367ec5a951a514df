// The binary layout of the part of ONNX Runtime's C interface that the operators use.
//
// The wheel brings no headers. OrtApi is a table of function pointers that grows only at its end, so the index of a
// function never changes. Source: include/onnxruntime/core/session/onnxruntime_c_api.h of version 16, which added
// CreateKernelV2 and KernelComputeV2. The functions below are of version 15 or older.
#pragma once

#include <cstddef>
#include <cstdint>

namespace transduce {

constexpr uint32_t API_VERSION = 16;

struct OrtStatus;
struct OrtValue;
struct OrtTensorInfo;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtDomain;

enum class ElementType : int { any = 0, float32 = 1, int8 = 3, int32 = 6, int64 = 7, float16 = 10 };

enum class ErrorCode : int { fail = 1, invalid_argument = 2 };

enum class Characteristic : int { required = 0, variadic = 2 };

struct OrtApi {
    void* functions[255];
};

struct OrtApiBase {
    const OrtApi* (*get_api)(uint32_t version);
    const char* (*get_version)();
};

// Indices into OrtApi::functions.
enum class Function : int {
    create_status = 0,
    get_error_message = 2,
    create_custom_op_domain = 26,
    domain_add = 27,
    add_custom_op_domain = 28,
    get_tensor_mutable_data = 51,
    get_tensor_element_type = 60,
    get_dimensions_count = 61,
    get_dimensions = 62,
    get_tensor_type_and_shape = 65,
    attribute_float = 85,
    attribute_int64 = 86,
    attribute_string = 87,
    context_get_input = 90,
    context_get_output = 91,
    release_status = 93,
    release_tensor_type_and_shape = 99,
    attribute_array_int64 = 163,
    context_get_gpu_stream = 193,
    constant_input_tensor = 249,
};

// Calls a function of the table. The caller is responsible for the types, because the table holds untyped pointers.
template <class Result, class... Arguments>
Result call(const OrtApi* api, Function function, Arguments... arguments) {
    using Pointer = Result (*)(Arguments...);
    return reinterpret_cast<Pointer>(api->functions[static_cast<int>(function)])(arguments...);
}

// OrtCustomOp of version 16. The order of the members is part of the interface.
struct OrtCustomOp {
    uint32_t version;
    void* (*create_kernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
    const char* (*get_name)(const OrtCustomOp*);
    const char* (*get_execution_provider)(const OrtCustomOp*);
    ElementType (*get_input_type)(const OrtCustomOp*, size_t index);
    size_t (*get_num_inputs)(const OrtCustomOp*);
    ElementType (*get_output_type)(const OrtCustomOp*, size_t index);
    size_t (*get_num_outputs)(const OrtCustomOp*);
    void (*compute)(void* kernel, OrtKernelContext*);
    void (*destroy)(void* kernel);
    Characteristic (*get_input_characteristic)(const OrtCustomOp*, size_t index);
    Characteristic (*get_output_characteristic)(const OrtCustomOp*, size_t index);
    int (*get_input_memory)(const OrtCustomOp*, size_t index);
    int (*get_variadic_input_min_arity)(const OrtCustomOp*);
    int (*get_variadic_input_homogeneity)(const OrtCustomOp*);
    int (*get_variadic_output_min_arity)(const OrtCustomOp*);
    int (*get_variadic_output_homogeneity)(const OrtCustomOp*);
    OrtStatus* (*create_kernel_v2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
    OrtStatus* (*compute_v2)(void* kernel, OrtKernelContext*);
};

}  // namespace transduce
