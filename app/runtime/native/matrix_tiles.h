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

}  // namespace transduce
