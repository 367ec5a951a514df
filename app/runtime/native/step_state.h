// What the rows of a decoder keep between steps: keys and values, or the state of SSRUs.
#pragma once

#include <limits>
#include <vector>

#include "copies.h"
#include "step_blocks.h"

namespace transduce {

// Keys and values of all layers, (2 L, rows, capacity, d): plane 2 i holds the keys of layer i, plane 2 i + 1 its
// values.
class CachePlanes {
public:
    CachePlanes(const KernelCall& call, int index, int64_t num_layers, int64_t d) : all_(call.input(index)), d_(d) {
        all_.expect_shape({2 * num_layers, -1, -1, d});
        if (all_.type != ElementType::float32 && all_.type != ElementType::float16) {
            throw InvalidArgument("%s is neither float nor float16", all_.name);
        }
    }
    int64_t rows() const { return all_.shape[1]; }
    int64_t capacity() const { return all_.shape[2]; }
    LayerCache layer(int64_t index) const {
        bool is_half = all_.type == ElementType::float16;
        int64_t bytes = rows() * capacity() * d_ * (is_half ? 2 : 4);
        char* keys = all_.as<char>() + 2 * index * bytes;
        return {keys, keys + bytes, is_half, rows(), capacity()};
    }
    // Copies the columns begin + first..begin + end - 1 of each copy. Changes first and end of the copies to bytes.
    void copy(std::vector<RowCopy>& copies, int64_t begin) const {
        int64_t column = d_ * (all_.type == ElementType::float16 ? 2 : 4), row = capacity() * column;
        for (RowCopy& copy : copies) {
            copy.first = (begin + copy.first) * column;
            copy.end = (begin + copy.end) * column;
        }
        copy_rows(all_.as<char>(), all_.shape[0], rows() * row, row, copies);
    }

private:
    Tensor all_;
    int64_t d_;
};

// The state of all layers' SSRUs, (rows, L, d).
class RecurrentStates {
public:
    RecurrentStates(const KernelCall& call, int index, int64_t num_layers, int64_t d)
        : all_(call.input(index)), d_(d), row_(num_layers * d) {
        all_.expect_shape({-1, num_layers, d});
        if (all_.type != ElementType::float32) throw InvalidArgument("%s is not float", all_.name);
    }
    int64_t rows() const { return all_.shape[0]; }
    // A state holds any number of positions.
    int64_t capacity() const { return std::numeric_limits<int64_t>::max(); }
    LayerState layer(int64_t index) const { return {all_.as<float>() + index * d_, row_}; }
    // Copies whole rows: the columns of the copies have no meaning for a state.
    void copy(std::vector<RowCopy>& copies, int64_t) const {
        int64_t row = row_ * int64_t(sizeof(float));
        for (RowCopy& copy : copies) {
            copy.first = 0;
            copy.end = row;
        }
        copy_rows(all_.as<char>(), 1, rows() * row, row, copies);
    }

private:
    Tensor all_;
    int64_t d_, row_;
};

}  // namespace transduce
