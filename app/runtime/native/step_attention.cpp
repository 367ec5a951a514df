// The attention blocks of a decoder step ("Attention Is All You Need", section 3.2.2) with residual and LayerNorm. Each
// row is one query. Keys and values are read from caches, which self-attention also writes.
#include <numeric>

#include "attention.h"
#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// Rough cost, in ns, of attending to one column, for each 64 elements of its key and of its value.
constexpr int64_t NS_FOR_64 = 9;

// Returns the cache of inputs `index` (keys) and index + 1 (values), (rows, capacity, d). Throws InvalidArgument.
LayerCache cache_of(const KernelCall& call, int index, int64_t d) {
    Tensor keys = call.input(index), values = call.input(index + 1);
    keys.expect_shape({-1, -1, d});
    values.expect_shape({keys.shape[0], keys.shape[1], d});
    if (keys.type != values.type || (keys.type != FLOAT && keys.type != ElementType::float16)) {
        throw InvalidArgument("%s and %s are neither both float nor both float16", keys.name, values.name);
    }
    return {keys.data, values.data, keys.type == ElementType::float16, keys.shape[0], keys.shape[1]};
}

}  // namespace

// The memory and the stages of an attention block for some rows.
class AttentionRun {
public:
    // max_columns: maximum number of columns that a row attends to. is_aligned: whether all heads of a row must be in
    // one chunk.
    AttentionRun(const AttentionWeights& weights, const BlockInput& input, int64_t max_columns, bool is_aligned = false)
        : weights_(weights),
          input_(input),
          width_(weights.in.outputs()),
          is_aligned_(is_aligned),
          score_stride_(num_scores(max_columns)),
          scratch_(LinearInput::bytes(weights.in, input.n) + LinearInput::bytes(weights.out, input.n) +
                   Scratch::padded_bytes<float>(input.n * width_) +
                   Scratch::padded_bytes<float>(input.n * weights.d()) +
                   Scratch::padded_bytes<float>(input.n * weights.num_heads * (score_stride_ + LANES)) +
                   Scratch::padded_bytes<int32_t>(input.n + 1)) {
        projected_ = scratch_.allocate<float>(input.n * width_);
        heads_ = scratch_.allocate<float>(input.n * weights.d());
        scores_ = scratch_.allocate<float>(input.n * weights.num_heads * (score_stride_ + LANES));
        groups_ = scratch_.allocate<int32_t>(input.n + 1);
        context_ = LinearInput(weights.out, heads_, input.n, scratch_);
    }

    // Returns x W + b, (n, outputs of the projection), valid as long as this object lives.
    const float* project() {
        LinearInput x(weights_.in, input_.x, input_.n, scratch_);
        x.prepare_all();
        float* to = projected_;
        int64_t stride = width_;
        multiply(weights_.in, x.activations(), input_.n, [=](int column, FirstLanes) {
            return [=](int64_t row, Floats product) { store16(to + row * stride + column, product); };
        });
        return projected_;
    }

    // Computes the attention of all heads of all rows. Neighbouring rows that attend to the same columns are a group.
    // If there are few groups, the heads of a group are divided into shares, one for each chunk.
    // columns: the number of columns, summed over all rows.
    // shares_columns(row): whether the row attends to the same columns as the row before it.
    // columns_of(row, first head, number of heads, next): returns the columns of the group of rows that begins with
    // `row`. It is called once for each share of each group. next: the row that the thread probably takes next;
    // negative if there is none.
    // after(row, scores): called when a share of the row's heads is done. If is_aligned, a share has all heads.
    template <class SharesColumns, class ColumnsOf, class After>
    void attend_all(int64_t columns, SharesColumns&& shares_columns, ColumnsOf&& columns_of, After&& after) {
        int threads = runs_own_rows ? 1 : num_threads(), num_heads = weights_.num_heads;
        int64_t num_groups = find_groups(threads, shares_columns);
        // All heads of a group are in one chunk unless there are fewer groups than threads.
        int heads_per_chunk = int((num_heads * num_groups + threads - 1) / threads);
        heads_per_chunk = is_aligned_ ? num_heads : std::clamp(heads_per_chunk, 1, num_heads);
        int shares = (num_heads + heads_per_chunk - 1) / heads_per_chunk;
        // Neighbouring groups may attend to the same slot, so a thread takes neighbours.
        int64_t groups_per_chunk = std::max<int64_t>(1, num_groups / std::max(16, threads));
        int64_t runs = (num_groups + groups_per_chunk - 1) / groups_per_chunk;
        parallel_for(int(runs * shares), columns * weights_.d() * NS_FOR_64 / 64, [&](int chunk, Direction direction) {
            int64_t begin = chunk / shares * groups_per_chunk, end = std::min(begin + groups_per_chunk, num_groups);
            // The group that follows this chunk's groups in this direction. (If the heads of a group are divided among
            // chunks, the thread may take other heads of the same group first.)
            int64_t after_end = direction == Direction::up ? end : begin - groups_per_chunk;
            int first = chunk % shares * heads_per_chunk, count = std::min(heads_per_chunk, num_heads - first);
            for (int64_t group = begin; group < end; ++group) {
                int64_t next = group + 1 < end ? group + 1 : after_end;
                int64_t next_row = next >= 0 && next < num_groups ? groups_[next] : -1;
                int row = groups_[group], rows = groups_[group + 1] - row;
                Queries queries{projected_ + row * width_ + first * weights_.head_dim, width_, rows, count,
                                weights_.head_dim};
                ScoreBuffer scores = scores_of(row, first);
                attend(queries, columns_of(row, first, count, next_row), scores,
                       heads_ + row * weights_.d() + first * weights_.head_dim, weights_.d());
                for (int i = 0; i < rows; ++i) {
                    after(row + i, scores_of(row + i, first));
                    if (shares == 1) context_.prepare(row + i);
                }
            }
        });
        if (shares > 1) context_.prepare_all();
    }

    // Writes the sum residual + heads W_O + b, and the LayerNorm of this sum.
    void project_output(const BlockOutput& output) {
        add_and_normalize(weights_.out, context_.activations(), input_.residual, weights_.norm, input_.n, output.total,
                          output.normalised);
    }

private:
    // Divides the rows into groups that share columns. Sets groups_[i] to the first row of group i, and the entry after
    // the last group's to n. Returns the number of groups.
    template <class SharesColumns>
    int64_t find_groups(int threads, SharesColumns&& shares_columns) {
        // If groups are not divided by heads, they are small enough for every thread to get one.
        int64_t max_rows = is_aligned_ ? std::clamp<int64_t>(input_.n / threads, 1, MAX_QUERIES) : MAX_QUERIES;
        int64_t count = 0;
        for (int64_t row = 0; row < input_.n; ++row) {
            if (count && row - groups_[count - 1] < max_rows && shares_columns(row)) continue;
            groups_[count++] = int32_t(row);
        }
        groups_[count] = int32_t(input_.n);
        return count;
    }

    ScoreBuffer scores_of(int64_t row, int first_head) const {
        int64_t head = score_stride_ + LANES, query_stride = weights_.num_heads * head;
        return {scores_ + row * query_stride + first_head * head, score_stride_, query_stride};
    }

    const AttentionWeights& weights_;
    BlockInput input_;
    int64_t width_;
    bool is_aligned_;
    int64_t score_stride_;
    Scratch scratch_;
    float *projected_, *heads_, *scores_;
    int32_t* groups_;
    // `heads_` as the input of W_O.
    LinearInput context_;
};

namespace {

// Returns the rough cost, in ns, of one of n rows. columns: how many columns the rows attend to, summed over all rows.
int64_t row_cost(const AttentionWeights& weights, int64_t columns, int64_t n) {
    return weights.row_nanoseconds() + columns / std::max<int64_t>(n, 1) * weights.d() * NS_FOR_64 / 64;
}

}  // namespace

void SelfAttentionBlock::run(const BlockInput& input, const LayerCache& cache, const int32_t* cache_rows,
                             const int32_t* positions, const BlockOutput& output) const {
    int64_t columns = std::accumulate(positions, positions + input.n, input.n), d = weights_.d();
    for_each_row_block(weights_.in, input.n, row_cost(weights_, columns, input.n), [&](int64_t begin, int64_t n) {
        AttentionRun rows(weights_, input.rows(begin, n, d), cache.capacity);
        if (cache.is_half) {
            attend_rows<Half>(rows, cache, cache_rows + begin, positions + begin, n);
        } else {
            attend_rows<float>(rows, cache, cache_rows + begin, positions + begin, n);
        }
        rows.project_output(output.rows(begin, d));
    });
}

template <class Element>
void SelfAttentionBlock::attend_rows(AttentionRun& rows, const LayerCache& cache, const int32_t* cache_rows,
                                     const int32_t* positions, int64_t n) const {
    int64_t d = weights_.d(), row_elements = cache.capacity * d;
    const float* projected = rows.project();
    auto all_keys = static_cast<Element*>(cache.keys), all_values = static_cast<Element*>(cache.values);
    auto columns_of = [&](int64_t row, int first, int count, int64_t next) {
        int64_t from = first * weights_.head_dim, position = positions[row];
        Element* keys = all_keys + cache_rows[row] * row_elements + from;
        Element* values = all_values + cache_rows[row] * row_elements + from;
        const float* q = projected + row * 3 * d + from;
        for (int i = 0; i < count * weights_.head_dim; i += LANES) {
            store16(keys + position * d + i, load16(q + d + i));
            store16(values + position * d + i, load16(q + 2 * d + i));
        }
        const Element* other = next < 0 ? nullptr : all_keys + cache_rows[next] * row_elements + from;
        return Columns<Element>{keys, values, d, position + 1, other};
    };
    auto shares_columns = [](int64_t) { return false; };
    rows.attend_all(std::accumulate(positions, positions + n, n), shares_columns, columns_of, [](auto...) {});
}

CrossAttentionBlock::CrossAttentionBlock(const NodeInfo& info, int index, std::vector<int64_t> aligned)
    : weights_(info, index, 1), aligned_(std::move(aligned)) {
    for (int64_t head : aligned_) {
        if (head >= 0 && head < weights_.num_heads) continue;
        throw InvalidArgument("heads holds %lld, which is not in 0..%d", static_cast<long long>(head),
                              weights_.num_heads - 1);
    }
}

void CrossAttentionBlock::run(const BlockInput& input, const LayerCache& cache, const SourceColumns& source,
                              const AlignmentOutput& alignment, const BlockOutput& output) const {
    int64_t capacity = cache.capacity, d = weights_.d();
    int64_t columns = std::accumulate(source.lengths, source.lengths + input.n, int64_t(0));
    for_each_row_block(weights_.in, input.n, row_cost(weights_, columns, input.n), [&](int64_t begin, int64_t n) {
        AttentionRun rows(weights_, input.rows(begin, n, d), capacity, alignment.values != nullptr);
        SourceColumns block_source{source.slots + begin, source.lengths + begin};
        AlignmentOutput block_alignment = alignment.rows(begin, capacity);
        if (cache.is_half) {
            attend_rows<Half>(rows, cache, block_source, n, block_alignment);
        } else {
            attend_rows<float>(rows, cache, block_source, n, block_alignment);
        }
        rows.project_output(output.rows(begin, d));
    });
}

template <class Element>
void CrossAttentionBlock::attend_rows(AttentionRun& rows, const LayerCache& cache, const SourceColumns& source,
                                      int64_t n, const AlignmentOutput& alignment) const {
    int64_t d = weights_.d(), capacity = cache.capacity;
    rows.project();
    auto all_keys = static_cast<Element*>(cache.keys), all_values = static_cast<Element*>(cache.values);
    // Rows that follow one another and have the same slot and length.
    auto shares_columns = [&](int64_t row) {
        return source.slots[row] == source.slots[row - 1] && source.lengths[row] == source.lengths[row - 1];
    };
    auto columns_of = [&](int64_t row, int first, int, int64_t next) {
        int64_t from = first * weights_.head_dim, slot = source.slots[row], at = slot * capacity * d + from;
        // Columns of the same slot are in the processor's cache already.
        bool is_other = next >= 0 && source.slots[next] != slot;
        const Element* other = is_other ? all_keys + source.slots[next] * capacity * d + from : nullptr;
        return Columns<Element>{all_keys + at, all_values + at, d, source.lengths[row], other};
    };
    auto average = [&](int64_t row, const ScoreBuffer& scores) {
        if (!alignment.values) return;
        float* to = alignment.row(row, capacity);
        std::fill(to, to + capacity, 0.0f);
        for (int64_t head : aligned_) {
            float factor = 1.0f / scores.sums(0, weights_.num_heads)[head] / float(aligned_.size());
            const float* head_scores = scores.values + head * scores.head_stride;
            for (int c = 0; c < source.lengths[row]; ++c) to[c] += head_scores[c] * factor;
        }
    };
    int64_t all = std::accumulate(source.lengths, source.lengths + n, int64_t(0));
    rows.attend_all(all, shares_columns, columns_of, average);
}

namespace {

class SelfAttentionStep {
public:
    static constexpr const char* NAME = "SelfAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "x",   "positions", "keys", "values", "w_qkv", "s_qkv",
                                                  "b_qkv",    "w_o", "s_o",       "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT,   ANY,   ANY,   ANY,  FLOAT,
                                                  FLOAT, ANY,   FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SelfAttentionStep(const NodeInfo& info) : block_(info, 5) {}

    void compute(const KernelCall& call) const {
        int64_t d = block_.weights().d();
        BlockInput input(call, d);
        LayerCache cache = cache_of(call, 3, d);
        if (cache.rows < input.n) {
            throw InvalidArgument("keys has %lld rows, fewer than the %lld of x", static_cast<long long>(cache.rows),
                                  static_cast<long long>(input.n));
        }
        const int32_t* positions = indices_of(call, 2, input.n, 0, cache.capacity);
        std::vector<int32_t> rows(input.n);
        std::iota(rows.begin(), rows.end(), 0);
        block_.run(input, cache, rows.data(), positions,
                   {call.output<float>(0, {input.n, d}), call.output<float>(1, {input.n, d})});
    }

private:
    SelfAttentionBlock block_;
};

class CrossAttentionStep {
public:
    static constexpr const char* NAME = "CrossAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "x",   "slots", "lengths", "keys", "values", "w_q",
                                                  "s_q",      "b_q", "w_o",   "s_o",     "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT, INT,   ANY,   ANY,   ANY,
                                                  FLOAT, FLOAT, ANY, FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit CrossAttentionStep(const NodeInfo& info) : CrossAttentionStep(info, {}) {}

    void compute(const KernelCall& call) const {
        int64_t d = block_.weights().d();
        BlockInput input(call, d);
        LayerCache cache = cache_of(call, 4, d);
        SourceColumns source{indices_of(call, 2, input.n, 0, cache.rows),
                             indices_of(call, 3, input.n, 1, cache.capacity + 1)};
        float* alignment = is_aligned_ ? call.output<float>(2, {input.n, cache.capacity}) : nullptr;
        block_.run(input, cache, source, {alignment},
                   {call.output<float>(0, {input.n, d}), call.output<float>(1, {input.n, d})});
    }

protected:
    CrossAttentionStep(const NodeInfo& info, std::vector<int64_t> aligned)
        : is_aligned_(!aligned.empty()), block_(info, 6, std::move(aligned)) {}

private:
    bool is_aligned_;
    CrossAttentionBlock block_;
};

class AlignedCrossAttentionStep : public CrossAttentionStep {
public:
    static constexpr const char* NAME = "AlignedCrossAttentionStep";
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT, FLOAT};

    explicit AlignedCrossAttentionStep(const NodeInfo& info) : CrossAttentionStep(info, heads_of(info)) {}

private:
    static std::vector<int64_t> heads_of(const NodeInfo& info) {
        std::vector<int64_t> heads = info.integers("heads");
        if (heads.empty()) throw InvalidArgument("heads is empty");
        return heads;
    }
};

}  // namespace

OrtStatus* register_step_attention(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<SelfAttentionStep>(api, domain);
    if (!status) status = add_operator<CrossAttentionStep>(api, domain);
    if (!status) status = add_operator<AlignedCrossAttentionStep>(api, domain);
    return status;
}

}  // namespace transduce
