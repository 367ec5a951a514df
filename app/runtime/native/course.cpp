#include "course.h"

#include <algorithm>

namespace transduce {
namespace {

thread_local Given given_here;

}  // namespace

Given Given::take() {
    Given given = given_here;
    given_here = {};
    return given;
}

bool Course::takes(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (step >= end_) return false;
    if (step < num_begun_) return true;
    // It rings until the call is over.
    bool is_heard = step > 0 && step >= given_.num_unheard && given_.bell;
    if (is_heard && __atomic_load_n(given_.bell, __ATOMIC_RELAXED)) return false;
    num_begun_ = step + 1;
    return true;
}

void Course::note_end(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (given_.num_after_end < end_ - step) end_ = std::min(end_, std::max(num_begun_, step + 1 + given_.num_after_end));
}

void Course::take_in_parts() {
    if (given_.num_after_end < end_) end_ = std::min(end_, given_.num_after_end + 1);
}

}  // namespace transduce

// What the next call of the decoder on this thread is given, as `Given`; outcomes null: nothing. All of it must stay until
// that is over.
extern "C" __attribute__((visibility("default"))) void transduce_give(void* const* blocks, int64_t count,
                                                                      int64_t num_steps, int64_t num_after_end,
                                                                      const int32_t* bell, int64_t num_unheard,
                                                                      int64_t* outcomes) {
    transduce::given_here = {blocks, count, num_steps, num_after_end, bell, num_unheard, outcomes};
}
