#include "kernel.h"

#include <algorithm>

namespace transduce {

void Tensor::expect_shape(std::initializer_list<int64_t> expected) const {
    if (rank != int(expected.size())) throw InvalidArgument("%s has %d axes, not %d", name, rank, int(expected.size()));
    int axis = 0;
    for (int64_t size : expected) {
        if (size >= 0 && shape[axis] != size) {
            throw InvalidArgument("%s has %lld along axis %d, not %lld", name, static_cast<long long>(shape[axis]),
                                  axis, static_cast<long long>(size));
        }
        ++axis;
    }
}

Tensor tensor_of(const OrtApi* api, const OrtValue* value, const char* name) {
    Tensor tensor{name, nullptr, ElementType::any, 0, {}};
    OrtTensorInfo* info = nullptr;
    OrtStatus* status = call<OrtStatus*>(api, Function::get_tensor_type_and_shape, value, &info);
    if (status) {
        call<void>(api, Function::release_status, status);
        throw InvalidArgument("%s is not a tensor", name);
    }
    size_t rank = 0;
    // These calls fail only for null pointers.
    call<OrtStatus*>(api, Function::get_tensor_element_type, static_cast<const OrtTensorInfo*>(info), &tensor.type);
    call<OrtStatus*>(api, Function::get_dimensions_count, static_cast<const OrtTensorInfo*>(info), &rank);
    if (rank <= MAX_RANK) {
        call<OrtStatus*>(api, Function::get_dimensions, static_cast<const OrtTensorInfo*>(info),
                         static_cast<int64_t*>(tensor.shape), rank);
    }
    call<void>(api, Function::release_tensor_type_and_shape, info);
    if (rank > MAX_RANK) throw InvalidArgument("%s has %d axes, more than %d", name, int(rank), MAX_RANK);
    tensor.rank = int(rank);
    // Mutable also for inputs: a cache is an input that is written in place.
    call<OrtStatus*>(api, Function::get_tensor_mutable_data, const_cast<OrtValue*>(value), &tensor.data);
    return tensor;
}

void expect_in_range(const char* name, const int32_t* values, int64_t n, int64_t low, int64_t high) {
    for (int64_t i = 0; i < n; ++i) {
        if (values[i] >= low && values[i] < high) continue;
        throw InvalidArgument("%s holds %d, which is not in %lld..%lld", name, values[i], static_cast<long long>(low),
                              static_cast<long long>(high - 1));
    }
}

void NodeInfo::check(OrtStatus* status, const char* what) const {
    if (!status) return;
    call<void>(api_, Function::release_status, status);
    throw InvalidArgument("%s is missing or of another type", what);
}

Tensor NodeInfo::constant(int index) const {
    int is_constant = 0;
    const OrtValue* value = nullptr;
    const char* name = input_names_[std::min(index, num_names_ - 1)];
    check(call<OrtStatus*>(api_, Function::constant_input_tensor, info_, size_t(index), &is_constant, &value), name);
    if (!is_constant) throw InvalidArgument("%s is not a constant of the graph", name);
    return tensor_of(api_, value, name);
}

bool NodeInfo::has_constant(int index) const {
    int is_constant = 0;
    const OrtValue* value = nullptr;
    OrtStatus* status =
        call<OrtStatus*>(api_, Function::constant_input_tensor, info_, size_t(index), &is_constant, &value);
    if (status) call<void>(api_, Function::release_status, status);
    return !status && is_constant;
}

int64_t NodeInfo::integer(const char* name) const {
    int64_t value = 0;
    check(call<OrtStatus*>(api_, Function::attribute_int64, info_, name, &value), name);
    return value;
}

float NodeInfo::number(const char* name) const {
    float value = 0;
    check(call<OrtStatus*>(api_, Function::attribute_float, info_, name, &value), name);
    return value;
}

std::string NodeInfo::text(const char* name) const {
    char value[64] = {};
    size_t size = sizeof value;
    check(call<OrtStatus*>(api_, Function::attribute_string, info_, name, static_cast<char*>(value), &size), name);
    return value;
}

std::vector<int64_t> NodeInfo::integers(const char* name) const {
    size_t size = 0;
    auto none = static_cast<int64_t*>(nullptr);
    check(call<OrtStatus*>(api_, Function::attribute_array_int64, info_, name, none, &size), name);
    std::vector<int64_t> values(size);
    check(call<OrtStatus*>(api_, Function::attribute_array_int64, info_, name, values.data(), &size), name);
    return values;
}

Tensor KernelCall::input(int index) const {
    const OrtValue* value = nullptr;
    OrtStatus* status = call<OrtStatus*>(api_, Function::context_get_input,
                                         static_cast<const OrtKernelContext*>(context_), size_t(index), &value);
    if (status) call<void>(api_, Function::release_status, status);
    if (!value) throw InvalidArgument("%s is missing", input_names_[index]);
    return tensor_of(api_, value, input_names_[index]);
}

void* KernelCall::stream() const {
    void* stream = nullptr;
    // Fails only for null pointers.
    call<OrtStatus*>(api_, Function::context_get_gpu_stream, static_cast<const OrtKernelContext*>(context_), &stream);
    return stream;
}

void* KernelCall::output_data(int index, std::initializer_list<int64_t> shape) const {
    OrtValue* value = nullptr;
    void* data = nullptr;
    OrtStatus* status = call<OrtStatus*>(api_, Function::context_get_output, context_, size_t(index), shape.begin(),
                                         shape.size(), &value);
    if (status) {
        call<void>(api_, Function::release_status, status);
        throw InvalidArgument("output %d is bound to memory of another shape", index);
    }
    if (value) call<OrtStatus*>(api_, Function::get_tensor_mutable_data, value, &data);
    return data;
}

}  // namespace transduce
