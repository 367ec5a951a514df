#include "shortlists.h"

#include <new>

namespace transduce {

void Shortlists::set(int64_t slot, const int32_t* ids, int64_t count) {
    std::unique_ptr<Shortlist>& list = lists_[slot];
    if (!list) {
        if (!count) return;
        list = std::make_unique<Shortlist>();
    }
    list->is_prepared = false;
    list->ids.assign(ids, ids + count);
}

}  // namespace transduce

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Returns Shortlists in which each slot has the whole vocabulary; nullptr if memory runs out.
EXPORTED void* transduce_new_shortlists(int64_t num_slots) {
    try {
        return new transduce::Shortlists(num_slots);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

EXPORTED void transduce_delete_shortlists(void* shortlists) { delete static_cast<transduce::Shortlists*>(shortlists); }

// Sets the list of each of `num` slots, all in range. ids: all lists, one after another. counts: (num,); 0 stands for
// the whole vocabulary. Returns false if memory runs out; the slots then have undefined lists.
EXPORTED int32_t transduce_set_shortlists(void* shortlists, int64_t num, const int64_t* slots, const int64_t* counts,
                                          const int32_t* ids) {
    try {
        for (int64_t i = 0; i < num; ids += counts[i++]) {
            static_cast<transduce::Shortlists*>(shortlists)->set(slots[i], ids, counts[i]);
        }
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}
