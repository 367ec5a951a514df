#include "beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel.h"

namespace transduce {
namespace {

constexpr double IMPOSSIBLE = -std::numeric_limits<double>::infinity();

}  // namespace

// The best 2 b continuations so far, best first; of equal sums the one that was offered first.
struct Beam::Best {
    struct One {
        double sum;
        int64_t parent, id;
    };
    One ones[2 * MAX_SIZE];
    int64_t most, count = 0;

    bool takes(double sum) const { return count < most || sum > ones[most - 1].sum; }
    void offer(const One& one) {
        int64_t at = count < most ? count++ : most - 1;
        for (; at > 0 && ones[at - 1].sum < one.sum; --at) ones[at] = ones[at - 1];
        ones[at] = one;
    }
};

void Beam::check(int64_t num_rows, int64_t vocab_size, int64_t num_positions, int64_t num_columns) const {
    if (this->num_columns() < 0 || this->num_columns() > num_columns) {
        throw Refused("a beam wants the attention to %lld columns", static_cast<long long>(this->num_columns()));
    }
    if (b_ < 2 || b_ > MAX_SIZE) throw Refused("a beam has %lld hypotheses", static_cast<long long>(b_));
    if (length() < 0 || length() > last_length() || last_length() >= num_positions) {
        throw Refused("a beam has taken %lld steps of %lld", static_cast<long long>(length()),
                      static_cast<long long>(last_length()));
    }
    for (int64_t i = 0; i < b_; ++i) {
        if (rows_[i] < 0 || rows_[i] >= num_rows) throw Refused("a beam has row %lld", static_cast<long long>(rows_[i]));
    }
    const int64_t* said = last_said();
    for (int64_t i = 0; i < num_live(); ++i) {
        if (said[i] < 0 || said[i] >= vocab_size) throw Refused("a beam said %lld", static_cast<long long>(said[i]));
    }
}

void Beam::write_inputs(bool is_done, int32_t* ids, int32_t* positions) const {
    if (is_done) {
        for (int64_t i = 0; i < b_; ++i) ids[rows_[i]] = UNHELD;
        return;
    }
    const int64_t* said = last_said();
    for (int64_t i = 0; i < num_live(); ++i) {
        ids[rows_[i]] = int32_t(said[i]);
        positions[rows_[i]] = int32_t(length());
    }
}

bool Beam::has_scores(const Offered& offered) const {
    for (int64_t i = 0; i < num_live(); ++i) {
        const float* own = offered.log_probabilities + rows_[i] * offered.k;
        if (!std::isfinite(own[0])) return false;
        for (int64_t j = 1; j < offered.k; ++j) {
            if (std::isnan(own[j])) return false;
        }
    }
    return true;
}

void Beam::find_best(const Offered& offered, Best& best) const {
    best.most = 2 * b_;
    int64_t k = std::min(b_ + 1, offered.k);
    for (int64_t i = 0; i < num_live(); ++i) {
        double total = length() ? sums_[(length() - 1) * b_ + i] : 0.0;
        const float* scores = offered.log_probabilities + rows_[i] * offered.k;
        const int64_t* ids = offered.ids + rows_[i] * offered.k;
        for (int64_t j = 0; j < k; ++j) {
            double sum = total + double(scores[j]);
            if (!best.takes(sum)) break;  // those behind it are no better
            best.offer({sum, i, ids[j]});
        }
    }
}

Outcome Beam::advance(const Offered& offered, std::vector<RowCopy>& copies) {
    if (length() >= last_length() || !has_scores(offered)) return Outcome::is_open;
    Best best;
    find_best(offered, best);
    int64_t chosen[MAX_SIZE], num_chosen = 0;
    for (int64_t rank = 0; rank < best.count && num_chosen < b_; ++rank) {
        if (best.ones[rank].id != end_id()) chosen[num_chosen++] = rank;
    }
    if (num_chosen < b_ || best.ones[chosen[b_ - 1]].sum == IMPOSSIBLE) return Outcome::is_open;
    note_attention(offered);
    for (int64_t rank = 0; rank < b_; ++rank) {
        const auto& one = best.ones[rank];
        if (one.id == end_id()) note_complete(one.parent, one.sum);
    }
    if (num_complete() >= num_to_complete()) return Outcome::is_done;
    int64_t begin = length() * b_;
    for (int64_t i = 0; i < b_; ++i) {
        const auto& one = best.ones[chosen[i]];
        said_[begin + i] = one.id;
        parents_[begin + i] = one.parent;
        sums_[begin + i] = one.sum;
    }
    move_rows(parents_ + begin, copies);
    ++header_[3];
    return Outcome::goes_on;
}

void Beam::note_complete(int64_t parent, double sum) {
    double* to = complete_ + 3 * num_complete()++;
    to[0] = sum;
    to[1] = double(length());
    to[2] = double(parent);
}

void Beam::note_attention(const Offered& offered) {
    float* to = attention_ + length() * b_ * num_columns();
    for (int64_t i = 0; i < num_live() && num_columns(); ++i, to += num_columns()) {
        std::copy_n(offered.attention + rows_[i] * offered.capacity, num_columns(), to);
    }
}

// As app/engine/slots.py: a parent's first child stays in its row, the others take those of the dead.
void Beam::move_rows(const int64_t* parents, std::vector<RowCopy>& copies) {
    int64_t before[MAX_SIZE];
    bool is_alive[MAX_SIZE] = {}, is_served[MAX_SIZE] = {};
    for (int64_t i = 0; i < b_; ++i) {
        before[i] = rows_[i];
        is_alive[parents[i]] = true;
    }
    int64_t dead = 0;
    for (int64_t child = 0; child < b_; ++child) {
        int64_t parent = parents[child];
        if (!is_served[parent]) {
            is_served[parent] = true;
            rows_[child] = before[parent];
            continue;
        }
        while (is_alive[dead]) ++dead;
        rows_[child] = before[dead];
        copies.push_back({before[parent], before[dead], num_shared(dead, parent), length() + 1});
        ++dead;
    }
}

// The first columns that the rows of two hypotheses hold alike, the step's own column counted as theirs alone.
int64_t Beam::num_shared(int64_t one, int64_t other) const {
    for (int64_t step = length(); step > 0; --step) {
        one = parents_[(step - 1) * b_ + one];
        other = parents_[(step - 1) * b_ + other];
        if (one == other) return step;
    }
    return 0;
}

bool advance_beams(std::vector<Beam>& beams, const Offered& offered, int64_t* outcomes, std::vector<RowCopy>& copies) {
    bool is_open = false, goes_on = false;
    for (size_t i = 0; i < beams.size(); ++i) {
        if (outcomes[i] == int64_t(Outcome::is_done)) continue;
        Outcome outcome = beams[i].advance(offered, copies);
        outcomes[i] = int64_t(outcome);
        is_open = is_open || outcome == Outcome::is_open;
        goes_on = goes_on || outcome == Outcome::goes_on;
    }
    return goes_on && !is_open;
}

void write_inputs(const std::vector<Beam>& beams, const int64_t* outcomes, int32_t* ids, int32_t* positions) {
    for (size_t i = 0; i < beams.size(); ++i) {
        beams[i].write_inputs(outcomes[i] == int64_t(Outcome::is_done), ids, positions);
    }
}

}  // namespace transduce

// One step of one beam without a decoder. copies: room for (16, 4), in columns. Returns the outcome and how many copies.
extern "C" __attribute__((visibility("default"))) int64_t transduce_advance_beam(void* block, const float* scores,
                                                                                 const int64_t* ids, int64_t k,
                                                                                 const float* attention, int64_t capacity,
                                                                                 int64_t* copies, int64_t* num_copies) {
    std::vector<transduce::RowCopy> found;
    auto outcome = transduce::Beam(block).advance({scores, ids, k, attention, capacity}, found);
    *num_copies = int64_t(found.size());
    for (const auto& copy : found) {
        for (int64_t value : {copy.source, copy.target, copy.first, copy.end}) *copies++ = value;
    }
    return int64_t(outcome);
}
