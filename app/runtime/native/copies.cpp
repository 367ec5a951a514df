#include "copies.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "thread_pool.h"

namespace transduce {
namespace {

// Rough rate at which one thread copies, in bytes per nanosecond.
constexpr int64_t BYTES_PER_NS = 6;

// One copy, in bytes from the beginning of a plane. A source row that is also a target row is copied to a staging
// buffer first.
struct Move {
    int64_t from, to, bytes;
    int64_t staged;  // offset in the staging buffer; -1: not staged
};

}  // namespace

void copy_rows(char* values, int64_t num_planes, int64_t plane_bytes, int64_t row_bytes,
               const std::vector<RowCopy>& copies) {
    if (copies.empty()) return;
    std::vector<bool> is_target(plane_bytes / row_bytes);
    for (const RowCopy& copy : copies) is_target[copy.target] = true;
    std::vector<Move> all;
    all.reserve(copies.size());
    int64_t staged = 0, total = 0;
    for (const RowCopy& copy : copies) {
        bool needs_staging = is_target[copy.source];
        int64_t bytes = copy.end - copy.first;
        if (bytes == 0) continue;
        all.push_back({copy.source * row_bytes + copy.first, copy.target * row_bytes + copy.first, bytes,
                       needs_staging ? staged : -1});
        if (needs_staging) staged += bytes;
        total += bytes;
    }
    parallel_for(int(num_planes), num_planes * total / BYTES_PER_NS, [&](int chunk, Direction) {
        static thread_local std::vector<char> memory;
        if (memory.size() < size_t(staged)) memory.resize(staged);
        char* plane = values + chunk * plane_bytes;
        for (const Move& move : all) {
            if (move.staged >= 0) std::memcpy(memory.data() + move.staged, plane + move.from, move.bytes);
        }
        for (const Move& move : all) {
            std::memcpy(plane + move.to, move.staged >= 0 ? memory.data() + move.staged : plane + move.from,
                        move.bytes);
        }
    });
}

}  // namespace transduce

// copy_rows for Python. moves: (4, count) source rows, target rows (each at most once), first and end bytes of the
// copied ranges. Returns 0 if all rows are copied. Returns 1 if a row does not exist, or 2 if a range exceeds a row:
// nothing is copied then. Returns 3 if memory runs out: the target rows hold undefined values then.
extern "C" __attribute__((visibility("default"))) int32_t transduce_copy_rows(char* values, int64_t num_planes,
                                                                              int64_t plane_bytes, int64_t row_bytes,
                                                                              const int64_t* moves, int64_t count) {
    const int64_t *sources = moves, *targets = moves + count, *firsts = targets + count, *ends = firsts + count;
    int64_t num_rows = plane_bytes / row_bytes;
    try {
        std::vector<transduce::RowCopy> copies;
        copies.reserve(count);
        for (int64_t i = 0; i < count; ++i) {
            if (std::min(sources[i], targets[i]) < 0 || std::max(sources[i], targets[i]) >= num_rows) return 1;
            if (firsts[i] < 0 || ends[i] < firsts[i] || ends[i] > row_bytes) return 2;
            copies.push_back({sources[i], targets[i], firsts[i], ends[i]});
        }
        transduce::copy_rows(values, num_planes, plane_bytes, row_bytes, copies);
    } catch (const std::bad_alloc&) {
        return 3;
    }
    return 0;
}
