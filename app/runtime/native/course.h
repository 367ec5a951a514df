// How far a call of the decoder goes: what it is given beside its graph's inputs, and what its threads agree on.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>

namespace transduce {

// What a call of the decoder is given beside its inputs, on the thread that makes it.
struct Given {
    // Beams that it advances itself.
    void* const* blocks = nullptr;
    int64_t count = 0;
    // Steps at most. Fewer where a beam is open or none goes on, where all rows have ended, ...
    int64_t num_steps = std::numeric_limits<int64_t>::max();
    // ... so many after the one in which the first row or beam ends, ...
    int64_t num_after_end = std::numeric_limits<int64_t>::max();
    // ... and where somebody has set *bell, which is looked at after so many steps and after each one from there on.
    const int32_t* bell = nullptr;
    int64_t num_unheard = 0;
    // Where it leaves the steps taken, then of each beam its Outcome in the last of its own; null where nothing was given.
    int64_t* outcomes = nullptr;

    // What this thread was given, which is so forgotten.
    static Given take();
};

// The steps of a call, the same for all of its rows whichever thread takes them: whoever comes first to a step decides
// whether it is taken.
class Course {
public:
    // num_steps: at most.
    explicit Course(int64_t num_steps, const Given& given = {}) : end_(num_steps), given_(given) {}

    // Whether a step, the first or one behind one that was taken, is to be taken.
    bool takes(int64_t step);
    // A row or beam has ended in a step that was taken.
    void note_end(int64_t step);
    // Before the first step: some rows are taken through all steps before others begin, so that what happens to those is
    // not known in time. No more steps then than those behind an end and one.
    void take_in_parts();
    // Steps that were taken.
    int64_t num_taken() const { return num_begun_; }

private:
    std::mutex mutex_;
    int64_t end_, num_begun_ = 0;
    Given given_;
};

}  // namespace transduce
