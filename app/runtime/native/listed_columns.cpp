#include "listed_columns.h"

#include <algorithm>
#include <type_traits>

#include "hints.h"

namespace transduce {
namespace {

// Columns, and the maximum number of rows, that are multiplied at once: as many as the registers hold sums for.
constexpr int COLUMNS = 4, MAX_ROWS = NUM_VECTORS == 32 ? 4 : 1;

// WIDTH inputs and as many weights of a column are multiplied at once, and added to a vector of 16 sums.
template <Pairs PAIRS>
struct Int8 {
    using Input = Quantized;
    using Weight = int8_t;
    using Number = int32_t;
    using Sums = Integers;
    static constexpr int WIDTH = LANES * INT8_DEPTH;
    static Sums zero() { return all16(0); }
    static Sums add(Sums sums, const Input* x, const Weight* w) { return add_column_products16<PAIRS>(sums, x, w); }
};

struct Float {
    using Input = float;
    using Weight = float;
    using Number = float;
    using Sums = Floats;
    static constexpr int WIDTH = LANES;
    static Sums zero() { return zero16(); }
    static Sums add(Sums sums, const Input* x, const Weight* w) { return fma16(load16(x), load16(w), sums); }
};

// Writes the sums of R rows and some columns. x: `stride` inputs from row to row. ahead: columns whose weights are
// prefetched. to: 16 numbers from row to row.
template <class Kind, int R>
void column_sums(const typename Kind::Input* x, size_t stride, const typename Kind::Weight* const (&columns)[COLUMNS],
                 const typename Kind::Weight* const (&ahead)[COLUMNS], int inputs, typename Kind::Number* to) {
    typename Kind::Sums sums[R][COLUMNS];
    for (auto& of_row : sums) {
        for (auto& sum : of_row) sum = Kind::zero();
    }
    int i = 0;
    for (; i + Kind::WIDTH <= inputs; i += Kind::WIDTH) {
#pragma GCC unroll 4
        for (int c = 0; c < COLUMNS; ++c) prefetch_l1(ahead[c] + i);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < COLUMNS; ++c) sums[r][c] = Kind::add(sums[r][c], x + r * stride + i, columns[c] + i);
        }
    }
    for (int r = 0; r < R; ++r) {
        typename Kind::Number* of_row = to + r * LANES;
        store_sums16(of_row, sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
        for (int rest = i; rest < inputs; ++rest) {
            for (int c = 0; c < COLUMNS; ++c) of_row[c] += x[r * stride + rest] * columns[c][rest];
        }
    }
}

}  // namespace

void ListedColumns::select(const Linear& whole, const void* table, const int32_t* ids, int64_t count) {
    whole_ = &whole;
    table_ = table;
    ids_ = ids;
    count_ = count;
    size_t padded = (count + LANES - 1) / LANES * LANES;
    scales_.resize(padded);
    biases_.resize(padded);
    initial_sums_.resize(padded);
    for (int64_t i = 0; i < count; ++i) {
        ColumnTerms terms = whole.terms(ids[i]);
        scales_[i] = terms.scale;
        biases_[i] = terms.bias;
        initial_sums_[i] = terms.initial_sum;
    }
}

template <class Kind>
void ListedColumns::multiply_kind(const Activations& x, int64_t n, int64_t first, int64_t count, float* to,
                                  int64_t stride) const {
    using Weight = typename Kind::Weight;
    int inputs = whole_->inputs();
    // Past the list's end the last column is repeated; the repetitions' products are not stored.
    auto column = [&](int64_t index) {
        return static_cast<const Weight*>(table_) + size_t(ids_[std::min(index, count_ - 1)]) * inputs;
    };
    auto multiply_rows = [&](auto rows, int64_t row, int64_t index, FirstLanes lanes) {
        constexpr int R = decltype(rows)::value;
        auto from = static_cast<const typename Kind::Input*>(x.values) + row * x.stride;
        alignas(64) typename Kind::Number sums[R * LANES];
        for (int vector = 0; vector < LANES; vector += COLUMNS) {
            const Weight *columns[COLUMNS], *ahead[COLUMNS];
            for (int c = 0; c < COLUMNS; ++c) {
                columns[c] = column(index + vector + c);
                ahead[c] = column(index + vector + c + LANES);
            }
            column_sums<Kind, R>(from, x.stride, columns, ahead, inputs, sums + vector);
        }
        Floats bias = load16(&biases_[index]), scale = load16(&scales_[index]);
        Integers initial_sums = load16(&initial_sums_[index]);
        for (int r = 0; r < R; ++r) {
            Floats products;
            if constexpr (!std::is_same_v<Kind, Float>) {
                Epilogue epilogue{true, scale, bias};
                products = epilogue.of_int8(add16(load16(sums + r * LANES), initial_sums), x.absmax[row + r]);
            } else {
                products = add16(load16(sums + r * LANES), bias);
            }
            store16(to + (row + r) * stride + index - first, products, lanes);
        }
    };
    for (int64_t index = first; index < first + count; index += LANES) {
        FirstLanes lanes = first_lanes(first + count - index);
        int64_t row = 0;
        for (; row + MAX_ROWS <= n; row += MAX_ROWS) {
            multiply_rows(std::integral_constant<int, MAX_ROWS>(), row, index, lanes);
        }
        for (; row < n; ++row) multiply_rows(std::integral_constant<int, 1>(), row, index, lanes);
    }
}

void ListedColumns::multiply(const Activations& x, int64_t n, int64_t first, int64_t count, float* to,
                             int64_t stride) const {
    if (!whole_->is_int8()) multiply_kind<Float>(x, n, first, count, to, stride);
    else if (whole_->pairs() == Pairs::any) multiply_kind<Int8<Pairs::any>>(x, n, first, count, to, stride);
    else multiply_kind<Int8<SMALL_PAIRS>>(x, n, first, count, to, stride);
}

}  // namespace transduce
