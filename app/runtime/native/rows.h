// What is done to each row by itself: putting it into eight bits, LayerNorm, residuals.
#pragma once

#include <cstdint>

#include "linear.h"
#include "memory.h"

namespace transduce {

// LayerNorm's parameters, gamma and beta (width,), kept by the kernel.
struct Norm {
    Buffer memory;
    int width = 0;
    float epsilon = 0;

    Norm() = default;
    Norm(const float* gamma, const float* beta, int width, float epsilon);
    const float* gamma() const { return memory.as<float>(); }
    const float* beta() const { return memory.as<float>() + width; }
};

// One row in eight bits: q = round_half_even(x * (127 / m)) + 128 with the magnitude m = max |x|, or, from 0,
// q = round_half_even(x * (255 / m)). Returns m. A row of zeros gets m = 0 and any q; m is NaN where an x is.
float quantize_row(const float* x, int width, ActivationRange range, uint8_t* q);

// (x - mean) / sqrt(variance + epsilon) * gamma + beta of one row. Ba et al. 2016, section 3.
void normalize_row(const float* x, const Norm& norm, float* to);

// That of n rows, by several threads where it is worth it.
void normalize_rows(const float* x, int64_t n, const Norm& norm, float* to);

// Call row(index) for each of n rows, by several threads where it is worth it. nanoseconds: what a row costs.
template <class Row>
void for_each_row(int64_t n, int64_t nanoseconds, Row&& row) {
    // About a microsecond a chunk, and never more chunks than a job may have.
    int64_t rows_per_chunk = std::max<int64_t>(1, 1000 / std::max<int64_t>(1, nanoseconds));
    rows_per_chunk = std::max(rows_per_chunk, (n + 63) / 64);
    parallel_for(int((n + rows_per_chunk - 1) / rows_per_chunk), n * nanoseconds, [&](int chunk, Direction) {
        int64_t end = std::min<int64_t>((chunk + 1) * rows_per_chunk, n);
        for (int64_t index = chunk * rows_per_chunk; index < end; ++index) row(index);
    });
}

// Runs, each a thread's own, that n rows are divided into; 0: one that may use all threads inside.
inline int64_t num_row_blocks(const Linear& linear, int64_t n) {
    int64_t threads = num_threads(), max_rows = linear.max_own_rows();
    if (runs_own_rows || n < linear.min_own_rows() * threads) return 0;
    // A thread's only run may be a tile longer: two are more tiles rows_per_chunk, and read the weights twice.
    int64_t max_single_run = max_rows + (linear.uses_matrix_tiles(max_rows) ? MATRIX_ROWS : 0);
    int64_t rounds = n <= max_single_run * threads ? 1 : (n + max_rows * threads - 1) / (max_rows * threads);
    return std::min<int64_t>(rounds * threads, MAX_CHUNKS);
}

// Call block(begin, count) for runs of n rows: one run, which may use all threads inside, or as many for each thread:
// then what stands between the block's products stays in that thread's cache, and nobody waits in between. linear: of
// the block. nanoseconds: what a row costs.
template <class Buffer>
void for_each_row_block(const Linear& linear, int64_t n, int64_t nanoseconds, Buffer&& block) {
    int64_t count = num_row_blocks(linear, n);
    if (!count) return block(0, n);
    parallel_for(int(count), n * nanoseconds, [&](int chunk, Direction) {
        int64_t begin = n * chunk / count, end = n * (chunk + 1) / count;
        runs_own_rows = true;
        block(begin, end - begin);
        runs_own_rows = false;
    });
}

// Rows (n, width) as a Linear takes them: in eight bits where its weights are, else as they are.
class LinearInput {
public:
    static size_t bytes(const Linear& linear, int64_t n) {
        return linear.is_int8() ? Scratch::padded_bytes<uint8_t>(n * stride_of(linear)) + Scratch::padded_bytes<float>(n) : 0;
    }

    LinearInput() = default;
    // x: (n, linear.inputs()), read by `prepare` or `prepare_all`; x_stride: from row to row, 0 where they stand side by side.
    LinearInput(const Linear& linear, const float* x, int64_t n, Scratch& scratch, int64_t x_stride = 0);

    // Prepare one row, from the thread that has just written it.
    void prepare(int64_t row) const {
        if (q_) absmax_[row] = quantize_row(x_ + row * x_stride_, width_, range_, q_ + row * stride_);
    }
    void prepare_all() const;
    Activations activations() const { return {q_ ? static_cast<const void*>(q_) : x_, stride_, absmax_}; }

private:
    // A cache line more than a row has, so that rows below one another do not share a set of the cache.
    static size_t stride_of(const Linear& linear) { return linear.inputs() + (linear.is_int8() ? 64 : 0); }

    const float* x_ = nullptr;
    int64_t n_ = 0;
    int width_ = 0;
    int64_t x_stride_ = 0;
    size_t stride_ = 0;
    ActivationRange range_ = ActivationRange::symmetric;
    uint8_t* q_ = nullptr;
    float* absmax_ = nullptr;
};

// What ends every block: total = residual + x W + b, normalised = LayerNorm(total), all (n, outputs).
void add_and_normalize(const Linear& linear, const Activations& x, const float* residual, const Norm& norm, int64_t n,
                       float* total, float* normalised);

}  // namespace transduce
