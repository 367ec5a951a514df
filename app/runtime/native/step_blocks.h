// The blocks of a decoder step. The operator of the whole decoder and the operators of single blocks consist of them.
#pragma once

#include <string>
#include <vector>

#include "candidates.h"
#include "operators.h"
#include "shortlists.h"

namespace transduce {

// Number of constants of an attention block. A feed-forward block has as many: weights, scales and bias for each of two
// products, then gamma and beta.
constexpr int BLOCK_CONSTANTS = 8;

// Keys and values (rows, capacity, d) of one layer, both float16 or both float.
struct LayerCache {
    void* keys;
    void* values;
    bool is_half;
    int64_t rows, capacity;
};

// A block's results, total and normalised (n, d). total may use the memory of the block's residual. normalised may use
// the memory of its x or of its residual.
struct BlockOutput {
    float* total;
    float* normalised;

    BlockOutput rows(int64_t begin, int64_t width) const { return {total + begin * width, normalised + begin * width}; }
};

// The recurrent state c of one layer's SSRUs (rows, d), `stride` floats from row to row.
struct LayerState {
    float* values;
    int64_t stride;
};

// Self-attention over a row's own columns ("Attention Is All You Need", section 3.2.2).
class SelfAttentionBlock {
public:
    // index: the first of the constants that AttentionWeights reads.
    SelfAttentionBlock(const NodeInfo& info, int index) : weights_(info, index, 3) {}
    const AttentionWeights& weights() const { return weights_; }
    int64_t d() const { return weights_.d(); }
    const Linear& in() const { return weights_.in; }
    int64_t row_nanoseconds() const { return weights_.row_nanoseconds(); }
    // The products, in the order of their use.
    std::vector<Linear*> linears() { return {&weights_.in, &weights_.out}; }

    // Writes each row's key and value at its position, then attends to all columns up to it. cache_rows, positions:
    // (n,), in range.
    void run(const BlockInput& input, const LayerCache& cache, const int32_t* cache_rows, const int32_t* positions,
             const BlockOutput& output) const;

private:
    template <class Element>
    void attend_rows(class AttentionRun& rows, const LayerCache& cache, const int32_t* cache_rows,
                     const int32_t* positions, int64_t n) const;

    AttentionWeights weights_;
};

// Number of constants of an SSRU: weights, scales and bias of one product, then gamma and beta.
constexpr int SSRU_CONSTANTS = 5;

// A Simpler Simple Recurrent Unit in the place of self-attention (Kim et al. 2019, section 3.1).
class SsruBlock {
public:
    // Reads the constants from `index` on: w, s, b, gamma, beta; and the attribute epsilon. The product with w has 2 d
    // outputs: W x, then W_f x + b_f. Throws InvalidArgument.
    SsruBlock(const NodeInfo& info, int index);
    int64_t d() const { return in_.inputs(); }
    const Linear& in() const { return in_; }
    std::vector<Linear*> linears() { return {&in_}; }
    int64_t row_nanoseconds() const;

    // Updates each row's state c. Writes the sum residual + relu(c), and the LayerNorm of this sum. A row at position 0
    // begins with c = 0, whatever its state holds. state_rows, positions: (n,), in range.
    void run(const BlockInput& input, const LayerState& state, const int32_t* state_rows, const int32_t* positions,
             const BlockOutput& output) const;

private:
    void run_rows(const BlockInput& input, const LayerState& state, const int32_t* state_rows, const int32_t* positions,
                  const BlockOutput& output) const;

    Linear in_;
    Norm norm_;
};

// The columns that each of n rows attends to: the first lengths[row] of slot slots[row].
struct SourceColumns {
    const int32_t* slots;
    const int32_t* lengths;
};

// Receives the mean attention weights of the aligned heads, (rows, capacity), 0 past a row's source. values is nullptr
// if no weights are requested.
struct AlignmentOutput {
    float* values = nullptr;
    // (n,) the row of `values` that each row writes to; nullptr: the row of the same index.
    const int32_t* to_rows = nullptr;

    AlignmentOutput rows(int64_t begin, int64_t capacity) const {
        if (to_rows || !values) return {values, to_rows ? to_rows + begin : nullptr};
        return {values + begin * capacity, nullptr};
    }
    float* row(int64_t index, int64_t capacity) const { return values + (to_rows ? to_rows[index] : index) * capacity; }
};

// Cross-attention over the columns of a row's source (section 3.2.2).
class CrossAttentionBlock {
public:
    // index: the first of the constants that AttentionWeights reads. aligned: the heads whose attention weights are
    // averaged for AlignmentOutput. Throws InvalidArgument.
    CrossAttentionBlock(const NodeInfo& info, int index, std::vector<int64_t> aligned);
    const AttentionWeights& weights() const { return weights_; }
    // The products, in the order of their use.
    std::vector<Linear*> linears() { return {&weights_.in, &weights_.out}; }

    void run(const BlockInput& input, const LayerCache& cache, const SourceColumns& source,
             const AlignmentOutput& alignment, const BlockOutput& output) const;

private:
    template <class Element>
    void attend_rows(class AttentionRun& rows, const LayerCache& cache, const SourceColumns& source, int64_t n,
                     const AlignmentOutput& alignment) const;

    AttentionWeights weights_;
    std::vector<int64_t> aligned_;
};

enum class Activation { relu, gelu, silu };

// The feed-forward block (section 3.3).
class FeedForwardBlock {
public:
    // Reads the constants from `index` on: w_1, s_1, b_1, w_2, s_2, b_2, gamma, beta; and the attributes activation and
    // epsilon. Throws InvalidArgument.
    FeedForwardBlock(const NodeInfo& info, int index);
    int64_t d() const { return inner_.inputs(); }
    std::vector<Linear*> linears() { return {&inner_, &outer_}; }
    int64_t row_nanoseconds() const { return inner_.row_nanoseconds() + outer_.row_nanoseconds(); }

    void run(const BlockInput& input, const BlockOutput& output) const;

private:
    void run_rows(const BlockInput& input, const BlockOutput& output) const;

    Activation activation_;
    Linear inner_, outer_;
    Norm norm_;
};

// Embedding of tokens and positions (sections 3.4 and 3.5).
class EmbeddingBlock {
public:
    // Reads the constants from `index` on: table (V, d), scales, position_table (P, d). They stay in the graph's
    // memory. Throws InvalidArgument.
    EmbeddingBlock(const NodeInfo& info, int index);
    int64_t d() const { return table_.shape[1]; }
    int64_t vocab_size() const { return table_.shape[0]; }
    int64_t num_positions() const { return position_table_.shape[0]; }

    // ids, positions: (n,), in range; x: (n, d).
    void run(const int32_t* ids, const int32_t* positions, int64_t n, float* x) const;

private:
    Tensor table_, scales_, position_table_;
};

// Receives a step's candidates: log_probabilities and ids (rows, k), and distributions (n, V) or nullptr. distributions
// has the rows in the order of x: CandidatesBlock's to_rows applies only to log_probabilities and ids.
struct TopK {
    int64_t k;
    float* log_probabilities;
    int64_t* ids;
    float* distributions;
    // (n,) positions of the rows of x, or nullptr. In a row at first_position end_id is no candidate, because a
    // translation has at least one token.
    const int32_t* positions = nullptr;
    int64_t first_position = 0;
    int64_t end_id = NO_ID;

    // Returns the id that is no candidate of this row; NO_ID if there is none.
    int64_t excluded_id(int64_t row) const { return positions && positions[row] == first_position ? end_id : NO_ID; }
};

// The output columns that rows choose among: those of a list, or all.
struct OutputColumns {
    int64_t vocab_size;
    const Shortlist* list = nullptr;

    int64_t count() const { return list ? int64_t(list->ids.size()) : vocab_size; }
    int64_t id(int64_t index) const { return list ? list->ids[index] : index; }
    // Returns the index of a subword's column; NO_ID if the subword has no column.
    int64_t index_of(int64_t id) const;
};

// Projection of rows to the vocabulary, and the k most probable tokens.
class CandidatesBlock {
public:
    // Reads the constants from `index` on: table (V, d) and scales; and, if there is one, the bias `bias_index`: (V,).
    // Throws InvalidArgument.
    CandidatesBlock(const NodeInfo& info, int index, int bias_index);
    int64_t d() const { return linear_.inputs(); }
    std::vector<Linear*> linears() { return {&linear_}; }
    int64_t vocab_size() const { return linear_.outputs(); }
    int64_t row_nanoseconds() const;
    // Throws InvalidArgument unless num_candidates is in 1..min(MAX_CANDIDATES, V).
    void check(int64_t num_candidates) const;

    // x: (n, d). to_rows: (n,) the row of `to` that each row writes to; nullptr: the row of the same index.
    void run(const float* x, int64_t n, const int32_t* to_rows, const TopK& to) const {
        run_among({vocab_size()}, x, n, to_rows, to);
    }

    // Checks a shortlist and sets its columns. Throws InvalidArgument for ids out of range or fewer than k ids, and
    // std::bad_alloc.
    void prepare(Shortlist& list, int64_t k) const;
    // As `run`, but each row chooses among the shortlist of its slot, and its probabilities are normalised over that
    // list. slots: (n,). to_rows must not be nullptr. The lists must be prepared. Rows of one list must be neighbours.
    // Rows without a list must come first. Only the rows without a list get distributions.
    void run_by_slot(const Shortlists& lists, const int32_t* slots, const float* x, int64_t n, const int32_t* to_rows,
                     const TopK& to) const;

private:
    // Returns the rough cost of the logits of n rows that choose among a list of `num_ids` ids.
    int64_t listed_nanoseconds(int64_t n, int64_t num_ids) const;
    void run_among(const OutputColumns& among, const float* x, int64_t n, const int32_t* to_rows, const TopK& to) const;
    // Computes and scans the logits of x (n, d), span by span.
    void scan_logits(const OutputColumns& among, const float* x, int64_t n, const struct LogitScan& scan,
                     Scratch& scratch) const;

    Linear linear_;
    // The weights that linear_ was packed from, (V, d), in the graph's memory. The columns of shortlists are read here.
    const void* table_;
    // Bounds of the magnitudes of the table's entries and of the bias.
    float largest_weight_, largest_bias_ = 0;
};

}  // namespace transduce
