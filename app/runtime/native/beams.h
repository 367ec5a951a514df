// Beam search between decoder steps, by the rules of app/decoding/beam.py: what its Python does of a step in which
// nothing is to be decided but which continuations live on.
#pragma once

#include <cstdint>
#include <vector>

#include "copies.h"

namespace transduce {

// The id of a row that no hypothesis holds: a step passes over it.
constexpr int32_t FREE_ROW_ID = -1;

// What has become of a beam in a step. open: nothing, its candidates are somebody else's to judge.
enum class Outcome : int64_t { advanced = 0, done = 1, deferred = 2 };

// A step's candidates: (rows, k), each row descending; and the attention that each row paid to its source (rows,
// capacity), read where a beam wants it.
struct StepCandidates {
    const float* log_probabilities;
    const int64_t* ids;
    int64_t k;
    const float* attention;
    int64_t capacity;
};

// One sentence's beam of b hypotheses, of one before its first step, in the first row, over a block of numbers of eight bytes each, which app/runtime/beams.py lays out:
// NUM_HEADER numbers; b rows; then of every step b subwords, of every step b parents, of every step b sums (doubles);
// then of each complete hypothesis its sum (a double), the steps before its end, and its rank after them; and where it
// wants attention, of every step that of each live hypothesis: num_columns floats, the source's.
class Beam {
public:
    explicit Beam(void* block)
        : header_(static_cast<int64_t*>(block)),
          b_(header_[0]),
          rows_(header_ + NUM_HEADER),
          tokens_(rows_ + b_),
          parents_(tokens_ + max_length() * b_),
          scores_(static_cast<double*>(block) + (parents_ + max_length() * b_ - header_)),
          complete_(scores_ + max_length() * b_),
          attention_(reinterpret_cast<float*>(complete_ + 3 * (max_complete() + b_))) {}

    int64_t length() const { return header_[3]; }
    // Throws InvalidArgument for rows, subwords or columns that there are not, and for a beam that is full.
    void check(int64_t num_rows, int64_t vocab_size, int64_t num_positions, int64_t num_columns) const;
    // What the next step reads of each of its rows; where it is done, nothing.
    void write_inputs(bool is_done, int32_t* ids, int32_t* positions) const;
    // One step. copies: those that its rows' columns need are added, in columns.
    Outcome advance(const StepCandidates& candidates, std::vector<RowCopy>& copies);

    static constexpr int64_t NUM_HEADER = 8, MAX_SIZE = 16;

private:
    struct BestContinuations;

    bool has_scores(const StepCandidates& candidates) const;
    void find_best(const StepCandidates& candidates, BestContinuations& best) const;
    void record_complete(int64_t parent, double sum);
    void record_attention(const StepCandidates& candidates);
    void reassign_rows(const int64_t* parents, std::vector<RowCopy>& copies);
    int64_t num_shared_columns(int64_t one, int64_t other) const;

    int64_t num_live() const { return length() ? b_ : 1; }
    // Of each live hypothesis the last subword: the start token before the first step.
    const int64_t* last_tokens() const { return length() ? tokens_ + (length() - 1) * b_ : header_ + 6; }
    int64_t end_id() const { return header_[1]; }
    // Steps after which the next one is open, and for which there is room.
    int64_t max_length() const { return header_[2]; }
    int64_t max_complete() const { return header_[4]; }
    int64_t& num_complete() { return header_[5]; }
    int64_t num_columns() const { return header_[7]; }

    int64_t* header_;
    int64_t b_;
    int64_t *rows_, *tokens_, *parents_;
    double *scores_, *complete_;
    float* attention_;
};

void write_inputs(const std::vector<Beam>& beams, const int64_t* outcomes, int32_t* ids, int32_t* positions);

// One step of all that are not done, by the outcomes of the step before. Returns whether another may follow.
bool advance_beams(std::vector<Beam>& beams, const StepCandidates& candidates, int64_t* outcomes, std::vector<RowCopy>& copies);

}  // namespace transduce
