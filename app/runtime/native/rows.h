// Operations on single rows (quantization to 8 bits, LayerNorm, residuals), and the division of rows among threads.
#pragma once

#include <cstdint>

#include "memory.h"
#include "multiply.h"

namespace transduce {

// LayerNorm's parameters gamma and beta (width,), copied.
struct Norm {
    Buffer memory;
    int width = 0;
    float epsilon = 0;

    Norm() = default;
    Norm(const float* gamma, const float* beta, int width, float epsilon);
    const float* gamma() const { return memory.as<float>(); }
    const float* beta() const { return memory.as<float>() + width; }
};

// Quantizes one row to 8 bits. With m = max |x|: q = round_half_even(x * (127 / m)) + 128 if the range is symmetric,
// else q = round_half_even(x * (255 / m)). Stores q - STORED_INPUT_OFFSET. Returns m. A row of zeros has m = 0 and
// undefined q. m is NaN if any x is.
float quantize_row(const float* x, int width, ActivationRange range, Quantized* q);

// LayerNorm of one row: (x - mean) / sqrt(variance + epsilon) * gamma + beta. Ba et al. 2016, section 3.
void normalize_row(const float* x, const Norm& norm, float* to);

// LayerNorm of n rows, by several threads if that is faster.
void normalize_rows(const float* x, int64_t n, const Norm& norm, float* to);

// Calls row(index) for each of n rows, by several threads if that is faster. nanoseconds: rough cost of a row.
template <class Row>
void for_each_row(int64_t n, int64_t nanoseconds, Row&& row) {
    // A chunk takes about a microsecond or more. There are at most 64 chunks.
    int64_t rows_per_chunk = std::max<int64_t>(1, 1000 / std::max<int64_t>(1, nanoseconds));
    rows_per_chunk = std::max(rows_per_chunk, (n + 63) / 64);
    parallel_for(int((n + rows_per_chunk - 1) / rows_per_chunk), n * nanoseconds, [&](int chunk, Direction) {
        int64_t end = std::min<int64_t>((chunk + 1) * rows_per_chunk, n);
        for (int64_t index = chunk * rows_per_chunk; index < end; ++index) row(index);
    });
}

// Returns the number of runs into which n rows are divided, each for one thread. Returns 0 if the rows stay one run:
// the threads share each product, or this thread already runs rows of its own.
inline int64_t num_row_blocks(const Linear& linear, int64_t n) {
    int64_t threads = num_threads(), max_rows = linear.max_own_rows();
    if (runs_own_rows || n < linear.min_own_rows() * threads) return 0;
    // If each thread has a single run, the run may be one tile longer, because two runs would have more tiles and read
    // the weights twice.
    int64_t max_single_run = max_rows + (linear.uses_matrix_tiles(max_rows) ? MATRIX_ROWS : 0);
    int64_t rounds = n <= max_single_run * threads ? 1 : (n + max_rows * threads - 1) / (max_rows * threads);
    return std::min<int64_t>(rounds * threads, MAX_CHUNKS);
}

// Divides n rows into runs and calls block(begin, count) for each run. Either there is one run whose products all
// threads share, or each thread takes runs of its own, in which nothing is divided again. The results between the
// block's products then stay in the thread's cache, and the thread waits for no other. linear: a product of the block,
// which decides the length of a run. nanoseconds: rough cost of a row.
template <class Block>
void for_each_row_block(const Linear& linear, int64_t n, int64_t nanoseconds, Block&& block) {
    int64_t count = num_row_blocks(linear, n);
    if (!count) return block(0, n);
    parallel_for(int(count), n * nanoseconds, [&](int chunk, Direction) {
        int64_t begin = n * chunk / count, end = n * (chunk + 1) / count;
        OwnRowsScope scope;
        block(begin, end - begin);
    });
}

// Rows (n, width) as input of a Linear: quantized to 8 bits if its weights are int8, else the floats themselves.
class LinearInput {
public:
    static size_t bytes(const Linear& linear, int64_t n) {
        return linear.is_int8()
                   ? Scratch::padded_bytes<Quantized>(n * stride_of(linear)) + Scratch::padded_bytes<float>(n)
                   : 0;
    }

    LinearInput() = default;
    // x: (n, linear.inputs()), read by `prepare` or `prepare_all` if the weights are int8, else by the product.
    // x_stride: floats from row to row; 0: linear.inputs().
    LinearInput(const Linear& linear, const float* x, int64_t n, Scratch& scratch, int64_t x_stride = 0);

    // Quantizes one row. Call it on the thread that has just written the row.
    void prepare(int64_t row) const {
        if (q_) absmax_[row] = quantize_row(x_ + row * x_stride_, width_, range_, q_ + row * stride_);
    }
    void prepare_all() const;
    Activations activations() const { return {q_ ? static_cast<const void*>(q_) : x_, stride_, absmax_}; }

private:
    // One cache line longer than a row, so that neighbouring rows do not fall into the same set of the cache.
    static size_t stride_of(const Linear& linear) {
        return linear.inputs() + (linear.is_int8() ? 64 / sizeof(Quantized) : 0);
    }

    const float* x_ = nullptr;
    int64_t n_ = 0;
    int width_ = 0;
    int64_t x_stride_ = 0;
    size_t stride_ = 0;
    ActivationRange range_ = ActivationRange::symmetric;
    Quantized* q_ = nullptr;
    float* absmax_ = nullptr;
};

// The end of an attention or feed-forward block: total = residual + x W + b, normalised = LayerNorm(total). x: (n,
// inputs). residual, total, normalised: (n, outputs).
void add_and_normalize(const Linear& linear, const Activations& x, const float* residual, const Norm& norm, int64_t n,
                       float* total, float* normalised);

}  // namespace transduce
