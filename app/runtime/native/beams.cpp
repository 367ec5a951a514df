#include "beams.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "kernel.h"

namespace transduce {
namespace {

constexpr double IMPOSSIBLE = -std::numeric_limits<double>::infinity();

}  // namespace

// The best 2 b continuations so far, in descending order of sums. Of equal sums the one offered first comes first.
struct Beam::BestContinuations {
    struct Continuation {
        double sum;
        int64_t parent, id;
    };
    Continuation ranked[2 * MAX_SIZE];
    int64_t capacity, count = 0;

    bool accepts(double sum) const { return count < capacity || sum > ranked[capacity - 1].sum; }
    void offer(const Continuation& continuation) {
        int64_t at = count < capacity ? count++ : capacity - 1;
        for (; at > 0 && ranked[at - 1].sum < continuation.sum; --at) ranked[at] = ranked[at - 1];
        ranked[at] = continuation;
    }
};

void Beam::check(int64_t num_rows, int64_t vocab_size, int64_t num_positions, int64_t num_columns) const {
    if (this->num_columns() < 0 || this->num_columns() > num_columns) {
        throw InvalidArgument("a beam keeps attention to %lld columns, which is not in 0..%lld",
                              static_cast<long long>(this->num_columns()), static_cast<long long>(num_columns));
    }
    if (b_ < 2 || b_ > MAX_SIZE) {
        throw InvalidArgument("a beam has %lld hypotheses, which is not in 2..%lld", static_cast<long long>(b_),
                              static_cast<long long>(MAX_SIZE));
    }
    if (length() < 0 || length() > max_length() || max_length() >= num_positions) {
        throw InvalidArgument("a beam has taken %lld steps of at most %lld, and there are %lld positions",
                              static_cast<long long>(length()), static_cast<long long>(max_length()),
                              static_cast<long long>(num_positions));
    }
    for (int64_t i = 0; i < b_; ++i) {
        if (rows_[i] >= 0 && rows_[i] < num_rows) continue;
        throw InvalidArgument("a beam has row %lld, which is not in 0..%lld", static_cast<long long>(rows_[i]),
                              static_cast<long long>(num_rows - 1));
    }
    const int64_t* tokens = last_tokens();
    for (int64_t i = 0; i < num_live(); ++i) {
        if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
        throw InvalidArgument("a beam has token %lld, which is not in 0..%lld", static_cast<long long>(tokens[i]),
                              static_cast<long long>(vocab_size - 1));
    }
}

void Beam::write_inputs(bool is_done, int64_t first_position, int32_t* ids, int32_t* positions) const {
    if (is_done) {
        for (int64_t i = 0; i < b_; ++i) ids[rows_[i]] = FREE_ROW_ID;
        return;
    }
    const int64_t* tokens = last_tokens();
    for (int64_t i = 0; i < num_live(); ++i) {
        ids[rows_[i]] = int32_t(tokens[i]);
        positions[rows_[i]] = int32_t(first_position + length());
    }
}

bool Beam::has_scores(const StepCandidates& candidates) const {
    for (int64_t i = 0; i < num_live(); ++i) {
        const float* scores = candidates.log_probabilities + rows_[i] * candidates.k;
        if (!std::isfinite(scores[0])) return false;
        for (int64_t j = 1; j < candidates.k; ++j) {
            if (std::isnan(scores[j])) return false;
        }
    }
    return true;
}

void Beam::find_best(const StepCandidates& candidates, BestContinuations& best) const {
    best.capacity = 2 * b_;
    int64_t k = std::min(b_ + 1, candidates.k);
    for (int64_t i = 0; i < num_live(); ++i) {
        double total = length() ? sums_[(length() - 1) * b_ + i] : 0.0;
        const float* scores = candidates.log_probabilities + rows_[i] * candidates.k;
        const int64_t* ids = candidates.ids + rows_[i] * candidates.k;
        for (int64_t j = 0; j < k; ++j) {
            double sum = total + double(scores[j]);
            if (!best.accepts(sum)) break;  // a row's candidates are in descending order
            best.offer({sum, i, ids[j]});
        }
    }
}

BeamOutcome Beam::advance(const StepCandidates& candidates, std::vector<RowCopy>& copies) {
    if (length() >= max_length() || !has_scores(candidates)) return BeamOutcome::undecided;
    BestContinuations best;
    find_best(candidates, best);
    int64_t selected[MAX_SIZE], num_selected = 0;
    for (int64_t rank = 0; rank < best.count && num_selected < b_; ++rank) {
        if (best.ranked[rank].id != end_id()) selected[num_selected++] = rank;
    }
    if (num_selected < b_ || best.ranked[selected[b_ - 1]].sum == IMPOSSIBLE) return BeamOutcome::undecided;
    record_attention(candidates);
    for (int64_t rank = 0; rank < b_; ++rank) {
        const auto& continuation = best.ranked[rank];
        if (continuation.id == end_id()) record_complete(continuation.parent, continuation.sum);
    }
    if (num_complete() >= max_complete()) return BeamOutcome::done;
    int64_t begin = length() * b_;
    for (int64_t i = 0; i < b_; ++i) {
        const auto& continuation = best.ranked[selected[i]];
        tokens_[begin + i] = continuation.id;
        parents_[begin + i] = continuation.parent;
        sums_[begin + i] = continuation.sum;
    }
    reassign_rows(parents_ + begin, copies);
    ++header_[3];
    return BeamOutcome::continues;
}

void Beam::record_complete(int64_t parent, double sum) {
    double* to = complete_ + 3 * num_complete()++;
    to[0] = sum;
    to[1] = double(length());
    to[2] = double(parent);
}

void Beam::record_attention(const StepCandidates& candidates) {
    float* to = attention_ + length() * b_ * num_columns();
    for (int64_t i = 0; i < num_live() && num_columns(); ++i, to += num_columns()) {
        std::copy_n(candidates.attention + rows_[i] * candidates.capacity, num_columns(), to);
    }
}

// As app/engine/row_allocator.py: a parent's first child keeps the parent's row. The other children take the rows of
// parents without a child.
void Beam::reassign_rows(const int64_t* parents, std::vector<RowCopy>& copies) {
    int64_t before[MAX_SIZE];
    bool is_alive[MAX_SIZE] = {}, has_row[MAX_SIZE] = {};
    for (int64_t i = 0; i < b_; ++i) {
        before[i] = rows_[i];
        is_alive[parents[i]] = true;
    }
    int64_t free_row = 0;
    for (int64_t child = 0; child < b_; ++child) {
        int64_t parent = parents[child];
        if (!has_row[parent]) {
            has_row[parent] = true;
            rows_[child] = before[parent];
            continue;
        }
        while (is_alive[free_row]) ++free_row;
        rows_[child] = before[free_row];
        copies.push_back({before[parent], before[free_row], num_shared_columns(free_row, parent), length() + 1});
        ++free_row;
    }
}

// Returns how many leading columns the rows of two hypotheses have in common, without the current step's column.
int64_t Beam::num_shared_columns(int64_t one, int64_t other) const {
    for (int64_t step = length(); step > 0; --step) {
        one = parents_[(step - 1) * b_ + one];
        other = parents_[(step - 1) * b_ + other];
        if (one == other) return step;
    }
    return 0;
}

bool advance_beams(std::vector<Beam>& beams, const StepCandidates& candidates, int64_t* outcomes,
                   std::vector<RowCopy>& copies) {
    bool any_undecided = false, any_continues = false;
    for (size_t i = 0; i < beams.size(); ++i) {
        if (outcomes[i] == int64_t(BeamOutcome::done)) continue;
        BeamOutcome outcome = beams[i].advance(candidates, copies);
        outcomes[i] = int64_t(outcome);
        any_undecided = any_undecided || outcome == BeamOutcome::undecided;
        any_continues = any_continues || outcome == BeamOutcome::continues;
    }
    return any_continues && !any_undecided;
}

void write_inputs(const std::vector<Beam>& beams, const int64_t* outcomes, int64_t first_position, int32_t* ids,
                  int32_t* positions) {
    for (size_t i = 0; i < beams.size(); ++i) {
        beams[i].write_inputs(outcomes[i] == int64_t(BeamOutcome::done), first_position, ids, positions);
    }
}

}  // namespace transduce

// Takes one step of one beam without a decoder, for tests. copies: room for 16 copies of four numbers: source row,
// target row, first column, end column. Returns the BeamOutcome, or -1 if memory runs out. Stores the number of copies
// in *num_copies.
extern "C" __attribute__((visibility("default"))) int64_t transduce_advance_beam(void* block, const float* scores,
                                                                                 const int64_t* ids, int64_t k,
                                                                                 const float* attention,
                                                                                 int64_t capacity, int64_t* copies,
                                                                                 int64_t* num_copies) {
    try {
        std::vector<transduce::RowCopy> row_copies;
        auto outcome = transduce::Beam(block).advance({scores, ids, k, attention, capacity}, row_copies);
        *num_copies = int64_t(row_copies.size());
        for (const auto& copy : row_copies) {
            for (int64_t value : {copy.source, copy.target, copy.first, copy.end}) *copies++ = value;
        }
        return int64_t(outcome);
    } catch (const std::bad_alloc&) {
        return -1;
    }
}
