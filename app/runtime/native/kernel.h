// An operator's access to ONNX Runtime: constants and attributes when the session is made, tensors in every call.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include "abi.h"

namespace transduce {

// Thrown for shapes and values that an operator does not accept. The message names the input and the limit.
class InvalidArgument : public std::exception {
public:
    explicit InvalidArgument(const char* message) { std::snprintf(message_, sizeof message_, "%s", message); }
    // format: of printf, with at least one value. A message that is longer than message_ is cut.
    template <class Value, class... Values>
    InvalidArgument(const char* format, Value value, Values... values) {
        std::snprintf(message_, sizeof message_, format, value, values...);
    }
    const char* what() const noexcept override { return message_; }

private:
    char message_[240];
};

constexpr int MAX_RANK = 4;

// A view of a tensor, whose memory ONNX Runtime owns.
struct Tensor {
    const char* name;
    void* data;
    ElementType type;
    int rank;
    int64_t shape[MAX_RANK];

    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }

    // Throws InvalidArgument unless the tensor has this shape; -1 stands for any size.
    void expect_shape(std::initializer_list<int64_t> shape) const;
};

// The node of one kernel, while the session is made.
class NodeInfo {
public:
    // input_names: (num_names,). The last name also stands for all further inputs.
    NodeInfo(const OrtApi* api, const OrtKernelInfo* info, const char* const* input_names, int num_names)
        : api_(api), info_(info), input_names_(input_names), num_names_(num_names) {}

    // Returns input `index`. Throws InvalidArgument unless it is a constant of the graph.
    Tensor constant(int index) const;
    // Returns whether there is an input `index` that is a constant of the graph.
    bool has_constant(int index) const;
    // Return an attribute. Throw InvalidArgument if it is missing or of another type, or is a text of 64 bytes or more.
    int64_t integer(const char* name) const;
    float number(const char* name) const;
    std::string text(const char* name) const;
    std::vector<int64_t> integers(const char* name) const;

private:
    void check(OrtStatus* status, const char* what) const;

    const OrtApi* api_;
    const OrtKernelInfo* info_;
    const char* const* input_names_;
    int num_names_;
};

// One call of a kernel.
class KernelCall {
public:
    KernelCall(const OrtApi* api, OrtKernelContext* context, const char* const* input_names)
        : api_(api), context_(context), input_names_(input_names) {}

    // Returns input `index`. Throws InvalidArgument if it is missing.
    Tensor input(int index) const;
    // Gives output `index` this shape, and returns its memory; nullptr if the graph does not have the output. Throws
    // InvalidArgument if memory of another shape is bound to the output.
    template <class T>
    T* output(int index, std::initializer_list<int64_t> shape) const {
        return static_cast<T*>(output_data(index, shape));
    }
    // Returns the stream on which ONNX Runtime enqueues a GPU's work; nullptr on a CPU.
    void* stream() const;

private:
    void* output_data(int index, std::initializer_list<int64_t> shape) const;

    const OrtApi* api_;
    OrtKernelContext* context_;
    const char* const* input_names_;
};

// Returns the tensor of a value. Throws InvalidArgument if it is no tensor or has more than MAX_RANK axes.
Tensor tensor_of(const OrtApi* api, const OrtValue* value, const char* name);

// Throws InvalidArgument unless low <= values[i] < high for all i < n.
void expect_in_range(const char* name, const int32_t* values, int64_t n, int64_t low, int64_t high);

}  // namespace transduce
