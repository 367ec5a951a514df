#include "step_budget.h"

#include <algorithm>

namespace transduce {
namespace {

thread_local DecodeArgs pending_args;

}  // namespace

DecodeArgs DecodeArgs::take() {
    DecodeArgs args = pending_args;
    pending_args = {};
    return args;
}

bool StepBudget::begin_step(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (step >= end_) return false;
    if (step < num_begun_) return true;
    // The flag stays set until the call is over, so all threads stop at the same step.
    bool reads_flag = step > 0 && step >= args_.min_steps && args_.wake_flag;
    if (reads_flag && __atomic_load_n(args_.wake_flag, __ATOMIC_RELAXED)) return false;
    num_begun_ = step + 1;
    return true;
}

void StepBudget::record_end(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (args_.max_steps_after_end >= end_ - step) return;  // the sum below could overflow
    end_ = std::min(end_, std::max(num_begun_, step + 1 + args_.max_steps_after_end));
}

void StepBudget::limit_for_serial_runs() {
    if (args_.max_steps_after_end < end_) end_ = std::min(end_, args_.max_steps_after_end + 1);
}

}  // namespace transduce

// Sets the DecodeArgs of the next decoder call on this thread. Everything that the pointers refer to must stay valid
// until that call is over.
extern "C" __attribute__((visibility("default"))) void transduce_set_decoder_args(
    void* const* beams, int64_t num_beams, int64_t max_steps, int64_t max_steps_after_end, const int32_t* wake_flag,
    int64_t min_steps, int64_t first_position, int64_t* outcomes, void* shortlists) {
    transduce::pending_args = {beams,
                               num_beams,
                               max_steps,
                               max_steps_after_end,
                               wake_flag,
                               min_steps,
                               first_position,
                               outcomes,
                               static_cast<transduce::Shortlists*>(shortlists)};
}
