// Linear: the weights of a product, packed for the processor, int8 or float. multiply.h computes x W + b with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "matrix_tiles.h"
#include "memory.h"
#include "simd.h"
#include "thread_pool.h"
#include "tile_products.h"

namespace transduce {

// Columns of W in a panel, the unit of packed memory.
constexpr int PANEL = 64;
// Rows of a tile, vectors of 16 columns in a panel, and how many of these vectors a tile has at once. Beside the 6 x 4
// sums (AVX-512) the registers hold four weights and one input; beside 6 x 1 sums (AVX2 and Arm), one weight and one
// input.
constexpr int TILE_ROWS = 6, VECTORS = PANEL / LANES, VECTORS_AT_ONCE = NUM_VECTORS / 8;
// Bytes of a panel's packed weights for one step, which multiplies four 8-bit inputs or one float.
constexpr size_t STEP_BYTES = PANEL * 4;
// The maximum number of rows of a chunk, a multiple of TILE_ROWS and MATRIX_ROWS. Without tile registers, a chunk keeps
// BLOCK_ROWS * PANEL sums on the stack.
constexpr int BLOCK_ROWS = 192;
// Inputs of one pass with tile registers: a group of tiles of rows is multiplied with these before the next inputs. If
// larger, the group's rows are evicted from the L1 cache.
constexpr int DEPTH_BLOCK = 512;
// The minimum number of rows for tile registers. With fewer rows, vector instructions are as fast.
constexpr int64_t MIN_MATRIX_ROWS = 5;

// The range in which activations are quantized to 8 bits: symmetric around 128, or from 0 if none is negative.
enum class ActivationRange { symmetric, non_negative };

// Rows to multiply, `stride` numbers from row to row. For int8 weights: Quantized (rows, inputs) and the rows' largest
// magnitudes. For float weights: float, and absmax is null.
struct Activations {
    const void* values;
    size_t stride;
    const float* absmax;
};

// Inputs [begin, begin + count) of vectors [first, last) of a panel.
struct InputRun {
    int begin, count, first = 0, last = VECTORS;
};

// The memory that a tile prefetches: `lines` cache lines in each step, but at most VECTORS_AT_ONCE, `stride` bytes from
// step to step. It begins at `from`. If lines is VECTORS, it continues at `next` from step `turn` on; -1: never. lines
// 0: nothing.
struct TilePrefetch {
    const char* from = nullptr;
    int lines = 0;
    size_t stride = 0;
    int turn = -1;
    const char* next = nullptr;
};

// The graph's constants of a Linear. weights: row-major (inputs, outputs), or (outputs, inputs) if is_transposed.
// scales: (outputs,), read only if is_int8. bias: (outputs,) or nullptr.
struct LinearSource {
    const void* weights;
    bool is_int8;
    bool is_transposed;
    int inputs, outputs;
    const float* scales;
    const float* bias;
    ActivationRange range;
};

// Turns the sums of 16 columns into products: adds the bias, and for int8 weights first multiplies by the column's
// scale and the row's largest magnitude.
struct Epilogue {
    bool is_int8;
    Floats scale, bias;

    // Returns 16 products of one row. sums: int32 or float.
    Floats operator()(const int32_t* sums, float absmax) const {
        if (!is_int8) return add16(load16(reinterpret_cast<const float*>(sums)), bias);
        return of_int8(load16(sums), absmax);
    }
    Floats of_int8(Integers sums, float absmax) const {
        Floats float_sums = floats_of(sums);
        return fma16(mul16(float_sums, all16(absmax)), scale, bias);
    }
};

// What the products with one column need beside its weights: the scale (of int8 weights), the bias, and what is added
// to the sums (Linear::initial_sums).
struct ColumnTerms {
    float scale, bias;
    int32_t initial_sum;
};

// W and b of x W + b.
class Linear {
public:
    Linear() = default;
    // Packs the weights. source.inputs must be a multiple of 16. Throws std::bad_alloc.
    explicit Linear(const LinearSource& source);

    int inputs() const { return inputs_; }
    int outputs() const { return outputs_; }
    bool is_int8() const { return is_int8_; }
    ActivationRange range() const { return range_; }
    // Returns SMALL_PAIRS if all pairs of the int8 weights are small, else `any`.
    Pairs pairs() const { return pairs_; }
    int num_panels() const { return (outputs_ + PANEL - 1) / PANEL; }
    size_t panel_bytes() const { return size_t(inputs_) * PANEL * (is_int8_ ? 1 : 4); }
    // Returns whether n rows are multiplied by tile registers.
    bool uses_matrix_tiles(int64_t n) const {
        return HAS_TILE_PRODUCTS && group_ > 1 && n >= MIN_MATRIX_ROWS && has_matrix_tiles();
    }
    // The maximum and the minimum number of rows that one thread takes through a whole block by itself
    // (`num_row_blocks`). More rows would be evicted from the thread's cache. With fewer rows the threads share each
    // product, so that each thread reads only a part of the weights (docs/native-kernels.md).
    int64_t max_own_rows() const { return uses_matrix_tiles(BLOCK_ROWS) ? 96 : is_int8_ ? 36 : 66; }
    int64_t min_own_rows() const { return uses_matrix_tiles(BLOCK_ROWS) ? 12 : is_int8_ ? 16 : 32; }
    // Returns the rough cost of n rows on one thread.
    int64_t nanoseconds(int64_t n) const;
    // Returns the rough cost of one of many rows.
    int64_t row_nanoseconds() const { return nanoseconds(1024) / 1024; }

    // Returns the number of inputs of one pass over `tiles` tiles of rows.
    int depth_block(int tiles) const;
    // Returns how many vectors of columns a tile of rows is multiplied with before the next tile.
    int vectors_of_run(int tiles) const { return is_int8_ || tiles == 1 ? VECTORS : VECTORS_AT_ONCE; }

    // Writes the sums of rows [begin, begin + count), count <= TILE_ROWS, over `run`, by vector instructions. to:
    // (count, PANEL), int32 for int8 weights, else float. For int8 weights `run` must be the whole panel. A run that
    // does not begin at input 0 adds to the sums in `to`.
    void sums(const Activations& x, int64_t begin, int count, int panel, const InputRun& run,
              const TilePrefetch& prefetch, void* to) const;

    // Multiplies the rows from `begin` on with a panel by tile registers. next: the panel that is prefetched meanwhile,
    // or nullptr. sums: TileGroup::MAX_SUMS, in use until writer.store_rest() is called.
    template <class Writer>
    void multiply_tiles(const Activations& x, int64_t begin, const RowTiles& rows, int panel, const char* next,
                        int32_t* sums, Writer& writer) const;

    // Returns what is added to the sums of 16 columns: (STORED_INPUT_OFFSET - zero point) times the sum of a column's
    // weights, because an input q is stored as q - STORED_INPUT_OFFSET. 0 for float weights.
    Integers initial_sums(int panel, int vector) const {
        return load16(initial_sums_ + panel * PANEL + vector * LANES);
    }

    // Returns the epilogue of 16 columns.
    Epilogue epilogue(int panel, int vector) const {
        int column = panel * PANEL + vector * LANES;
        Floats bias = load16(bias_ + column);
        return {is_int8_, is_int8_ ? load16(scales_ + column) : bias, bias};
    }

    // Returns what the epilogue and the sums of one column need.
    ColumnTerms terms(int column) const {
        return {is_int8_ ? scales_[column] : 1, bias_[column], initial_sums_[column]};
    }

    // Returns what tile `tile` of `tiles` prefetches during a run of a panel: a part of the next run or of panel
    // `next`. A single tile prefetches the weights that it soon uses itself, and then panel `next`.
    TilePrefetch prefetch(int panel, const InputRun& run, const char* next, int tile, int tiles) const;

    const char* panel(int index) const { return packed_.as<char>() + index * panel_bytes(); }

    // Sets the product that follows this one. Threads that wait prefetch its weights.
    void set_next(const Linear& next);
    const Prefetch& next() const { return next_; }

private:
    template <class Weight>
    void pack(const LinearSource& source);

    int inputs_ = 0, outputs_ = 0;
    // Steps of a panel whose weights are stored together, vector by vector.
    int group_ = 1;
    bool is_int8_ = true;
    ActivationRange range_ = ActivationRange::symmetric;
    Pairs pairs_ = Pairs::any;
    Prefetch next_;
    Buffer packed_;
    // Holds scales_ (divided by the number of levels), bias_ and initial_sums_, each padded to whole panels.
    Buffer columns_;
    float* scales_ = nullptr;
    float* bias_ = nullptr;
    int32_t* initial_sums_ = nullptr;
};

}  // namespace transduce
