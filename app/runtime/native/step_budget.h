// The arguments of a decoder call that are not inputs of the graph, and the decision how many steps the call takes. All
// threads of a call share the decision.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>

namespace transduce {

class Shortlists;

// Arguments of one decoder call beside the graph's inputs. Python sets them on the thread that makes the call.
struct DecodeArgs {
    // Beams that the operator advances (`Beam`), and how many there are.
    void* const* beams = nullptr;
    int64_t num_beams = 0;
    // Largest number of steps. A call also ends when a beam is BeamOutcome::undecided, so that Python continues it, or
    // when no row or beam is left.
    int64_t max_steps = std::numeric_limits<int64_t>::max();
    // Steps that may follow the earliest step in which a row or beam ends. Steps that other threads have begun by then
    // are taken, too. If the thread pool is busy, the calling thread computes each thread's share of the rows, one
    // share after the other. If a row of a later share then ends, the call does not become shorter: the earlier shares
    // have taken all steps.
    int64_t max_steps_after_end = std::numeric_limits<int64_t>::max();
    // The call ends early when *wake_flag is not 0. The first max(min_steps, 1) steps do not read the flag. Each later
    // step reads it before it begins. nullptr: no flag.
    const int32_t* wake_flag = nullptr;
    int64_t min_steps = 0;
    // Position at which a sentence's start token is decoded, in its first step. It is the number of positions that the
    // sentence's cache already has before that step.
    int64_t first_position = 0;
    // Receives the number of steps taken, then for each beam its BeamOutcome in its last step. It is nullptr if Python
    // has set no arguments for the call.
    int64_t* outcomes = nullptr;
    // The lists that the rows of each slot choose among. nullptr: all rows choose among the whole vocabulary.
    Shortlists* shortlists = nullptr;

    // Returns this thread's arguments and resets them to the defaults.
    static DecodeArgs take();
};

// The steps of one call. Several threads may take different rows through the steps; the first thread that reaches a
// step decides for all of them whether it is taken.
class StepBudget {
public:
    explicit StepBudget(int64_t max_steps, const DecodeArgs& args = {}) : end_(max_steps), args_(args) {}

    // Returns whether `step` is taken. step: 0, or the step after one that was taken.
    bool begin_step(int64_t step);
    // Records that a row or beam has ended in a step that was taken.
    void record_end(int64_t step);
    // Limits the call to max_steps_after_end + 1 steps, as if a row ended in the first step. Call it before the first
    // step if some rows take all steps before other rows begin: it is then unknown in which step a later row ends.
    void limit_for_serial_runs();
    // Number of steps taken.
    int64_t num_steps() const { return num_begun_; }

private:
    std::mutex mutex_;
    int64_t end_, num_begun_ = 0;
    DecodeArgs args_;
};

}  // namespace transduce
