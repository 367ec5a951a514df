// Copies cache rows between steps, because each new hypothesis of a beam needs its parent's columns.
#pragma once

#include <cstdint>
#include <vector>

namespace transduce {

// Copies [first, end) of one row to another row, in every plane. copy_rows counts in bytes, and a Beam in columns.
struct RowCopy {
    int64_t source, target, first, end;
};

// Makes all copies as if at once: every copy reads the values from before the call. values: (num_planes, rows,
// row_bytes). Each row is a target at most once. Rows and bytes must be in range. Throws std::bad_alloc; rows are
// undefined then.
void copy_rows(char* values, int64_t num_planes, int64_t plane_bytes, int64_t row_bytes,
               const std::vector<RowCopy>& copies);

}  // namespace transduce
