// Products of rows with some columns of W. The columns' weights are read where they are, in a table of all columns, and
// not packed: many lists share the table in the processor's cache, and a new list copies no weights.
#pragma once

#include <cstdint>
#include <vector>

#include "linear.h"

namespace transduce {

// Some columns of a Linear.
class ListedColumns {
public:
    ListedColumns() = default;
    // Sets the columns. table: the weights that `whole` was packed from, row-major (outputs, inputs). ids: (count,),
    // count >= 1, in 0..outputs-1. `whole`, the table and the ids must live as long as the products. Throws
    // std::bad_alloc.
    void select(const Linear& whole, const void* table, const int32_t* ids, int64_t count);

    // Writes the products of rows 0..n-1 of x with columns [first, first + count) of the list. first: a multiple of
    // LANES. to: `stride` floats from row to row. The result for a row and a column depends on nothing else. For int8
    // weights it has the same bits as the product with all columns (multiply.h). For float weights the inputs are
    // added in another order.
    void multiply(const Activations& x, int64_t n, int64_t first, int64_t count, float* to, int64_t stride) const;

private:
    template <class Kind>
    void multiply_kind(const Activations& x, int64_t n, int64_t first, int64_t count, float* to, int64_t stride) const;

    const Linear* whole_ = nullptr;
    const void* table_ = nullptr;
    const int32_t* ids_ = nullptr;
    int64_t count_ = 0;
    // The epilogues' numbers of the columns, padded to whole vectors.
    std::vector<float> scales_, biases_;
    std::vector<int32_t> initial_sums_;
};

}  // namespace transduce
