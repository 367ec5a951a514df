// Products of rows in eight bits by the processor's tile registers (AMX-INT8), where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace transduce {

// Rows of a tile, and inputs that one instruction takes of each.
constexpr int MATRIX_ROWS = 16, MATRIX_DEPTH = 64;

// Whether they are used: the processor and the system have them, and nobody has forbidden it.
bool has_matrix_tiles();

// How rows are cut into tiles of one height, the last of which may begin inside the one before.
struct RowTiles {
    int64_t rows;
    int tiles, height;

    explicit RowTiles(int64_t rows)
        : rows(rows),
          tiles(int((rows + MATRIX_ROWS - 1) / MATRIX_ROWS)),
          height(int((rows + tiles - 1) / tiles)) {}

    // A tile's first row.
    int64_t first(int tile) const { return tile + 1 < tiles ? int64_t(tile) * height : rows - height; }
};

// Set the calling thread's tile registers up for tiles of 1 to MATRIX_ROWS rows, unless they are: this takes as long as
// some of the products.
void set_up_matrix_tiles(int height);

// Whoever set them up gives them back before the thread does anything else but such products, or sleeps: then their
// state is not part of a switch of threads.
void release_matrix_tiles();

// Gives back at its end what was set up meanwhile.
struct MatrixTilesReleased {
    MatrixTilesReleased() = default;
    ~MatrixTilesReleased() { release_matrix_tiles(); }
    MatrixTilesReleased(const MatrixTilesReleased&) = delete;
    MatrixTilesReleased& operator=(const MatrixTilesReleased&) = delete;
};

// One packed panel of `inputs` inputs, a multiple of MATRIX_DEPTH, and the (64,) sums that its columns start from.
// next: the panel that is used afterwards, or nullptr.
struct MatrixPanel {
    const char* weights;
    int inputs;
    const int32_t* starts;
    const char* next;
};

// to (height, 64) = starts + x weights, of as many rows as tiles are set up for. x: uint8, `stride` bytes from row to row.
// The very integers that the vector instructions give. Of more rows: tile_products.h.
void matrix_sums(const uint8_t* x, size_t stride, const MatrixPanel& panel, int32_t* to);

}  // namespace transduce
