// Copies of cache rows between steps: a beam's hypotheses take their parents' columns.
#pragma once

#include <cstdint>
#include <vector>

namespace transduce {

// Bytes [first, end) of one row, to another, in every plane.
struct RowCopy {
    int64_t source, target, first, end;
};

// Make copies as if all at once, each target once. values: (num_planes, rows, row_bytes). Rows and bytes are there.
void copy_rows(char* values, int64_t num_planes, int64_t plane_bytes, int64_t row_bytes,
               const std::vector<RowCopy>& copies);

}  // namespace transduce
