// The shortlist of each slot: the subwords that the rows of the slot choose among. A runner owns its slots' lists.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "listed_columns.h"

namespace transduce {

// ids: ascending; empty stands for the whole vocabulary. columns: the output columns of the ids. is_prepared: whether
// `columns` is set, which is only so if all ids are in range.
struct Shortlist {
    std::vector<int32_t> ids;
    ListedColumns columns;
    bool is_prepared = false;
};

// The lists are set between the calls of a decoder, and read during them. The first call that needs a list checks it
// and sets its columns (CandidatesBlock::prepare).
class Shortlists {
public:
    explicit Shortlists(int64_t num_slots) : lists_(num_slots) {}
    int64_t num_slots() const { return int64_t(lists_.size()); }
    // ids: (count,), ascending; count 0 stands for the whole vocabulary. Throws std::bad_alloc.
    void set(int64_t slot, const int32_t* ids, int64_t count);
    bool has(int64_t slot) const { return lists_[slot] && !lists_[slot]->ids.empty(); }
    // Requires has(slot).
    Shortlist& operator[](int64_t slot) const { return *lists_[slot]; }

private:
    // nullptr until the slot's first list.
    std::vector<std::unique_ptr<Shortlist>> lists_;
};

}  // namespace transduce
