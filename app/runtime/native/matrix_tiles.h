// Set-up of the processor's tile registers (AMX-INT8) and division of rows into tiles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace transduce {

// Rows of a tile, and inputs of each row that one instruction multiplies.
constexpr int MATRIX_ROWS = 16, MATRIX_DEPTH = 64;

// Returns whether tile registers are used: the library is built for AVX-512, processor and system have them, and
// transduce_allow_matrix_tiles allows them.
bool has_matrix_tiles();

// Divides rows into tiles of equal height. The last tile may overlap the one before it.
struct RowTiles {
    int64_t rows;
    int tiles, height;

    explicit RowTiles(int64_t rows)
        : rows(rows), tiles(int((rows + MATRIX_ROWS - 1) / MATRIX_ROWS)), height(int((rows + tiles - 1) / tiles)) {}

    // Returns a tile's first row.
    int64_t first(int tile) const { return tile + 1 < tiles ? int64_t(tile) * height : rows - height; }
};

// Configures the calling thread's tile registers for tiles of `height` rows, 1 to MATRIX_ROWS. Does nothing if they are
// configured for that height already, because a configuration takes as long as some of the products.
void set_up_matrix_tiles(int height);

// Releases the calling thread's tile registers. Call it before the thread sleeps or does other work. While the
// registers are in use, the system saves their state with every context switch.
void release_matrix_tiles();

// Releases the tile registers at the end of its lifetime.
struct MatrixTilesGuard {
    MatrixTilesGuard() = default;
    ~MatrixTilesGuard() { release_matrix_tiles(); }
    MatrixTilesGuard(const MatrixTilesGuard&) = delete;
    MatrixTilesGuard& operator=(const MatrixTilesGuard&) = delete;
};

}  // namespace transduce
