// Beam search between decoder steps inside the operator. app/decoding/beam.py defines the rules. This code takes only
// steps that rank continuations and do nothing else. Python takes the other steps (BeamOutcome::undecided).
#pragma once

#include <cstdint>
#include <vector>

#include "copies.h"

namespace transduce {

// The id of a row that no hypothesis uses: a step skips the row.
constexpr int32_t FREE_ROW_ID = -1;

// The result of a step of a beam. continues: the beam has its next hypotheses. done: enough hypotheses are complete.
// undecided: the beam is unchanged, and Python must advance it from the step's candidates.
enum class BeamOutcome : int64_t { continues = 0, done = 1, undecided = 2 };

// A step's candidates (rows, k), in descending order in each row, and the rows' attention to their sources (rows,
// capacity), which is read only for beams with num_columns > 0.
struct StepCandidates {
    const float* log_probabilities;
    const int64_t* ids;
    int64_t k;
    const float* attention;
    int64_t capacity;
};

// The beam of one sentence: b hypotheses, or one in the first row before the first step. Its state is a block of 8-byte
// numbers, laid out by app/runtime/beams.py:
//   NUM_HEADER numbers: b, end id, max_length, length, max_complete, num_complete, start id, num_columns
//   rows (b,)
//   tokens (max_length, b), parents (max_length, b), sums of log-probabilities (max_length, b) as doubles
//   complete (max_complete + b, 3) as doubles: a hypothesis' sum, its length before the end, its rank at that length
//   attention (max_length, b, num_columns) as floats, if num_columns > 0, by hypothesis before the step
class Beam {
public:
    explicit Beam(void* block)
        : header_(static_cast<int64_t*>(block)),
          b_(header_[0]),
          rows_(header_ + NUM_HEADER),
          tokens_(rows_ + b_),
          parents_(tokens_ + max_length() * b_),
          sums_(static_cast<double*>(block) + (parents_ + max_length() * b_ - header_)),
          complete_(sums_ + max_length() * b_),
          attention_(reinterpret_cast<float*>(complete_ + 3 * (max_complete() + b_))) {}

    int64_t length() const { return header_[3]; }
    // Throws InvalidArgument unless size, rows, last tokens, columns and lengths are in range. num_positions: number of
    // positions from the first step's position on. num_columns: the columns of the attention that can be recorded.
    void check(int64_t num_rows, int64_t vocab_size, int64_t num_positions, int64_t num_columns) const;
    // Writes the next step's id and position of the row of each live hypothesis. If the beam is done, writes
    // FREE_ROW_ID as the id of all its rows instead. first_position: the position of a beam's first step.
    void write_inputs(bool is_done, int64_t first_position, int32_t* ids, int32_t* positions) const;
    // Advances by one step. Appends to `copies` the copies that the caches of the beam's rows need, in columns, counted
    // from the column of the first step.
    BeamOutcome advance(const StepCandidates& candidates, std::vector<RowCopy>& copies);

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
    // The last token of each live hypothesis; the start token before the first step.
    const int64_t* last_tokens() const { return length() ? tokens_ + (length() - 1) * b_ : header_ + 6; }
    int64_t end_id() const { return header_[1]; }
    // Number of steps that the block has room for. The step after them is undecided.
    int64_t max_length() const { return header_[2]; }
    int64_t max_complete() const { return header_[4]; }
    int64_t& num_complete() { return header_[5]; }
    int64_t num_columns() const { return header_[7]; }

    int64_t* header_;
    int64_t b_;
    int64_t *rows_, *tokens_, *parents_;
    double *sums_, *complete_;
    float* attention_;
};

// Calls Beam::write_inputs of all beams. outcomes: the outcomes of the step before.
void write_inputs(const std::vector<Beam>& beams, const int64_t* outcomes, int64_t first_position, int32_t* ids,
                  int32_t* positions);

// Advances by one step all beams that were not done in the step before, and updates `outcomes`. Returns whether another
// step may follow: a beam continues, and none is undecided.
bool advance_beams(std::vector<Beam>& beams, const StepCandidates& candidates, int64_t* outcomes,
                   std::vector<RowCopy>& copies);

}  // namespace transduce
