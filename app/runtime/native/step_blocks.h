// The blocks of a decoder step over plain memory: what the operators of single blocks and the one of a whole decoder
// are made of.
#pragma once

#include <string>
#include <vector>

#include "candidates.h"
#include "operators.h"

namespace transduce {

// Constants of an attention block and of a feed-forward block each: two products and a norm.
constexpr int BLOCK_CONSTANTS = 8;

// Keys and values (rows, capacity, d) of one layer, both float16 or both float.
struct LayerCache {
    void* keys;
    void* values;
    bool is_half;
    int64_t rows, capacity;
};

// Where a block puts total and normalised (n, d). total may be its residual, normalised its given or its residual.
struct BlockOutput {
    float* total;
    float* normalised;

    BlockOutput rows(int64_t begin, int64_t width) const { return {total + begin * width, normalised + begin * width}; }
};

// "Attention Is All You Need", section 3.2.2, over the row's own columns.
class SelfAttentionBlock {
public:
    // The constants from `index` on as `AttentionWeights` has them.
    SelfAttentionBlock(const NodeInfo& info, int index) : weights_(info, index, 3) {}
    const AttentionWeights& weights() const { return weights_; }
    // What is multiplied with, in this order.
    std::vector<Linear*> linears() { return {&weights_.in, &weights_.out}; }

    // Append each row's key and value at its position, attend to all up to it. cache_rows, positions: (n,), in range.
    void run(const BlockInput& input, const LayerCache& cache, const int32_t* cache_rows, const int32_t* positions,
             const BlockOutput& output) const;

private:
    template <class Element>
    void attend_rows(class AttentionRun& rows, const LayerCache& cache, const int32_t* cache_rows, const int32_t* positions,
                     int64_t n) const;

    AttentionWeights weights_;
};

// Which columns each of n rows attends to: the first lengths[row] of slots[row].
struct SourceColumns {
    const int32_t* slots;
    const int32_t* lengths;
};

// Where the aligned heads' mean weights go, (rows, capacity), 0 behind a row's source; nullptr where nobody asks.
struct AlignmentOutput {
    float* values = nullptr;
    // (n,) the row of `values` that each one's go to; nullptr: its own.
    const int32_t* to_rows = nullptr;

    AlignmentOutput rows(int64_t begin, int64_t capacity) const {
        if (to_rows || !values) return {values, to_rows ? to_rows + begin : nullptr};
        return {values + begin * capacity, nullptr};
    }
    float* row(int64_t index, int64_t capacity) const {
        return values + (to_rows ? to_rows[index] : index) * capacity;
    }
};

// Section 3.2.2 over the columns of the row's source.
class CrossAttentionBlock {
public:
    // The constants from `index` on as `AttentionWeights` has them. aligned: heads whose weights are averaged where they are asked
    // for. Throws InvalidArgument.
    CrossAttentionBlock(const NodeInfo& info, int index, std::vector<int64_t> aligned);
    const AttentionWeights& weights() const { return weights_; }
    // What is multiplied with, in this order.
    std::vector<Linear*> linears() { return {&weights_.in, &weights_.out}; }

    void run(const BlockInput& input, const LayerCache& cache, const SourceColumns& source, const AlignmentOutput& alignment,
             const BlockOutput& output) const;

private:
    template <class Element>
    void attend_rows(class AttentionRun& rows, const LayerCache& cache, const SourceColumns& source, int64_t n,
                     const AlignmentOutput& alignment) const;

    AttentionWeights weights_;
    std::vector<int64_t> aligned_;
};

enum class Activation { relu, gelu, silu };

// Section 3.3.
class FeedForwardBlock {
public:
    // The constants from `index` on: w_1, s_1, b_1, w_2, s_2, b_2, gamma, beta; attributes activation and epsilon.
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

// Section 3.4 and 3.5: subwords and their positions into rows.
class EmbeddingBlock {
public:
    // The constants from `index` on: table (V, d), scales, position_table (P, d). The graph keeps them.
    EmbeddingBlock(const NodeInfo& info, int index);
    int64_t d() const { return table_.shape[1]; }
    int64_t vocab_size() const { return table_.shape[0]; }
    int64_t num_positions() const { return position_table_.shape[0]; }

    // ids, positions: (n,), in range; x: (n, d).
    void run(const int32_t* ids, const int32_t* positions, int64_t n, float* x) const;

private:
    Tensor table_, scales_, position_table_;
};

// Where a step's candidates go, (rows, k) each, and its log-probabilities (rows, V) or nullptr.
struct TopK {
    int64_t k;
    float* log_probabilities;
    int64_t* ids;
    float* distributions;
    // (n,) of the rows of x, or nullptr: a row at position 0 is not offered end_id, since a translation has a subword.
    const int32_t* positions = nullptr;
    int64_t end_id = NO_ID;

    // The id that a row is not offered, NO_ID where there is none.
    int64_t excluded_id(int64_t row) const { return positions && positions[row] == 0 ? end_id : NO_ID; }
};

// Rows into the most probable subwords.
class CandidatesBlock {
public:
    // The constants from `index` on: table (V, d) and scales.
    CandidatesBlock(const NodeInfo& info, int index);
    int64_t d() const { return linear_.inputs(); }
    std::vector<Linear*> linears() { return {&linear_}; }
    int64_t vocab_size() const { return linear_.outputs(); }
    int64_t row_nanoseconds() const;
    // Throws InvalidArgument unless this many can be asked for.
    void check(int64_t num_candidates) const;

    // x: (n, d). to_rows: (n,) the row of `to` that each one's candidates go to; nullptr: its own.
    void run(const float* x, int64_t n, const int32_t* to_rows, const TopK& to) const;

private:
    void scan_logits(const float* x, int64_t n, const struct LogitScan& to, Scratch& scratch) const;

    Linear linear_;
    float largest_weight_;
};

}  // namespace transduce
