// Attention blocks of one decoder step ("Attention Is All You Need", section 3.2.2), one query a row, over caches
// that stay where they are, with what follows: residual and LayerNorm.
#include <numeric>

#include "attention.h"
#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// What a column of d keys and values costs a row, for 64 of d. An estimate.
constexpr int64_t NS_FOR_64 = 9;

// The caches that are inputs `index` and the next, (rows, capacity, d). Throws Refused.
LayerCache cache_of(const Call& call, int index, int64_t d) {
    Tensor keys = call.input(index), values = call.input(index + 1);
    keys.expect({-1, -1, d});
    values.expect({keys.shape[0], keys.shape[1], d});
    if (keys.type != values.type || (keys.type != FLOAT && keys.type != ElementType::float16)) {
        throw Refused("%s and %s are not of one type, float or float16", keys.name, values.name);
    }
    return {keys.data, values.data, keys.type == ElementType::float16, keys.shape[0], keys.shape[1]};
}

}  // namespace

// Some rows, taken through the whole block.
class StepRows {
public:
    // longest: columns that a row may attend to. is_aligned: whether all heads of a row must be in one chunk.
    StepRows(const Parts& parts, const Flow& flow, int64_t longest, bool is_aligned = false)
        : parts_(parts),
          flow_(flow),
          width_(parts.in.outputs()),
          is_aligned_(is_aligned),
          scores_each_(num_scores(longest)),
          scratch_(Prepared::bytes(parts.in, flow.n) + Prepared::bytes(parts.out, flow.n) +
                   Scratch::piece<float>(flow.n * width_) + Scratch::piece<float>(flow.n * parts.d()) +
                   Scratch::piece<float>(flow.n * parts.num_heads * (scores_each_ + LANES)) +
                   Scratch::piece<int32_t>(flow.n + 1)) {
        projected_ = scratch_.take<float>(flow.n * width_);
        heads_ = scratch_.take<float>(flow.n * parts.d());
        scores_ = scratch_.take<float>(flow.n * parts.num_heads * (scores_each_ + LANES));
        groups_ = scratch_.take<int32_t>(flow.n + 1);
        attended_ = Prepared(parts.out, heads_, flow.n, scratch_);
    }

    // (n, outputs of the projection): given W + b, kept until the end.
    const float* project() {
        Prepared x(parts_.in, flow_.given, flow_.n, scratch_);
        x.put_all();
        float* to = projected_;
        int64_t stride = width_;
        multiply(parts_.in, x.activations(), flow_.n, [=](int column, __mmask16) {
            return [=](int64_t row, __m512 product) { store16(to + row * stride + column, product); };
        });
        return projected_;
    }

    // Attend with all heads of all rows. columns: how many of all rows together. is_with_last(row): whether it may be
    // taken together with the row before it. columns_of(first row, first head, heads, next): what those attend to,
    // asked once each; next is a row that follows, or negative. after(row, weights): once these heads of it, all of
    // them where they must be in one chunk, have attended.
    template <class IsWithLast, class ColumnsOf, class After>
    void attend_all(int64_t columns, IsWithLast&& is_with_last, ColumnsOf&& columns_of, After&& after) {
        int threads = has_own_rows ? 1 : num_threads(), num_heads = parts_.num_heads;
        int64_t num_groups = find_groups(threads, is_with_last);
        // Heads of a group: all in one chunk, but where there are fewer groups than threads.
        int together = int((num_heads * num_groups + threads - 1) / threads);
        together = is_aligned_ ? num_heads : std::clamp(together, 1, num_heads);
        int shares = (num_heads + together - 1) / together;
        // Groups that stand beside each other may share a slot: neighbours go to one thread.
        int64_t groups_together = std::max<int64_t>(1, num_groups / 16);
        int64_t runs = (num_groups + groups_together - 1) / groups_together;
        parallel(int(runs * shares), columns * parts_.d() * NS_FOR_64 / 64, [&](int chunk, Direction direction) {
            int64_t begin = chunk / shares * groups_together, end = std::min(begin + groups_together, num_groups);
            // The chunk that this thread takes next, most likely.
            int64_t after_end = direction == Direction::up ? end : begin - groups_together;
            int first = chunk % shares * together, count = std::min(together, num_heads - first);
            for (int64_t group = begin; group < end; ++group) {
                int64_t next = group + 1 < end ? group + 1 : after_end;
                int64_t next_row = next >= 0 && next < num_groups ? groups_[next] : -1;
                int row = groups_[group], rows = groups_[group + 1] - row;
                Queries queries{projected_ + row * width_ + first * parts_.head_dim, width_, rows, count,
                                parts_.head_dim};
                Weights weights = weights_of(row, first);
                attend(queries, columns_of(row, first, count, next_row), weights,
                       heads_ + row * parts_.d() + first * parts_.head_dim, parts_.d());
                for (int i = 0; i < rows; ++i) {
                    after(row + i, weights_of(row + i, first));
                    if (shares == 1) attended_.put(row + i);
                }
            }
        });
        if (shares > 1) attended_.put_all();
    }

    // residual + heads W_O + b, and its norm.
    void finish(const Made& made) {
        add_and_normalize(parts_.out, attended_.activations(), flow_.residual, parts_.norm, flow_.n, made.total,
                          made.normalised);
    }

private:
    // The rows that each group begins with, and the end. Returns how many groups.
    template <class IsWithLast>
    int64_t find_groups(int threads, IsWithLast&& is_with_last) {
        // All threads shall have some where a group is not divided by heads.
        int64_t most = is_aligned_ ? std::clamp<int64_t>(flow_.n / threads, 1, QUERIES_TOGETHER) : QUERIES_TOGETHER;
        int64_t count = 0;
        for (int64_t row = 0; row < flow_.n; ++row) {
            if (count && row - groups_[count - 1] < most && is_with_last(row)) continue;
            groups_[count++] = int32_t(row);
        }
        groups_[count] = int32_t(flow_.n);
        return count;
    }

    Weights weights_of(int64_t row, int first_head) const {
        int64_t head = scores_each_ + LANES, apart = parts_.num_heads * head;
        return {scores_ + row * apart + first_head * head, scores_each_, apart};
    }

    const Parts& parts_;
    Flow flow_;
    int64_t width_;
    bool is_aligned_;
    int64_t scores_each_;
    Scratch scratch_;
    float *projected_, *heads_, *scores_;
    int32_t* groups_;
    // What the heads say, as W_O takes it.
    Prepared attended_;
};

namespace {

// What a row costs, attending to all of `columns` shared out.
int64_t row_cost(const Parts& parts, int64_t columns, int64_t n) {
    int64_t products = parts.in.row_nanoseconds() + parts.out.row_nanoseconds();
    return products + columns / std::max<int64_t>(n, 1) * parts.d() * NS_FOR_64 / 64;
}

}  // namespace

void SelfAttentionBlock::run(const Flow& flow, const LayerCache& cache, const int32_t* cache_rows,
                             const int32_t* positions, const Made& made) const {
    int64_t columns = std::accumulate(positions, positions + flow.n, flow.n), d = parts_.d();
    each_block(parts_.in, flow.n, row_cost(parts_, columns, flow.n), [&](int64_t begin, int64_t n) {
        StepRows rows(parts_, flow.rows(begin, n, d), cache.capacity);
        if (cache.is_half) {
            attend_rows<Half>(rows, cache, cache_rows + begin, positions + begin, n);
        } else {
            attend_rows<float>(rows, cache, cache_rows + begin, positions + begin, n);
        }
        rows.finish(made.rows(begin, d));
    });
}

template <class Element>
void SelfAttentionBlock::attend_rows(StepRows& rows, const LayerCache& cache, const int32_t* cache_rows,
                                     const int32_t* positions, int64_t n) const {
    int64_t d = parts_.d(), row_elements = cache.capacity * d;
    const float* projected = rows.project();
    auto all_keys = static_cast<Element*>(cache.keys), all_values = static_cast<Element*>(cache.values);
    auto columns_of = [&](int64_t row, int first, int count, int64_t next) {
        int64_t from = first * parts_.head_dim, position = positions[row];
        Element* keys = all_keys + cache_rows[row] * row_elements + from;
        Element* values = all_values + cache_rows[row] * row_elements + from;
        const float* q = projected + row * 3 * d + from;
        for (int i = 0; i < count * parts_.head_dim; i += LANES) {
            store16(keys + position * d + i, load16(q + d + i));
            store16(values + position * d + i, load16(q + 2 * d + i));
        }
        const Element* other = next < 0 ? nullptr : all_keys + cache_rows[next] * row_elements + from;
        return Columns<Element>{keys, values, d, position + 1, other};
    };
    auto is_with_last = [](int64_t) { return false; };
    rows.attend_all(std::accumulate(positions, positions + n, n), is_with_last, columns_of, [](auto...) {});
}

CrossAttentionBlock::CrossAttentionBlock(const Info& info, int index, std::vector<int64_t> aligned)
    : parts_(info, index, 1), aligned_(std::move(aligned)) {
    for (int64_t head : aligned_) {
        if (head >= 0 && head < parts_.num_heads) continue;
        throw Refused("heads holds %lld, which is not in 0..%d", static_cast<long long>(head), parts_.num_heads - 1);
    }
}

void CrossAttentionBlock::run(const Flow& flow, const LayerCache& cache, const SourceColumns& source,
                              const AlignedWeights& weights, const Made& made) const {
    int64_t capacity = cache.capacity, d = parts_.d();
    int64_t columns = std::accumulate(source.lengths, source.lengths + flow.n, int64_t(0));
    each_block(parts_.in, flow.n, row_cost(parts_, columns, flow.n), [&](int64_t begin, int64_t n) {
        StepRows rows(parts_, flow.rows(begin, n, d), capacity, weights.values != nullptr);
        SourceColumns own{source.slots + begin, source.lengths + begin};
        AlignedWeights own_weights = weights.rows(begin, capacity);
        if (cache.is_half) {
            attend_rows<Half>(rows, cache, own, n, own_weights);
        } else {
            attend_rows<float>(rows, cache, own, n, own_weights);
        }
        rows.finish(made.rows(begin, d));
    });
}

template <class Element>
void CrossAttentionBlock::attend_rows(StepRows& rows, const LayerCache& cache, const SourceColumns& source, int64_t n,
                                      const AlignedWeights& weights) const {
    int64_t d = parts_.d(), capacity = cache.capacity;
    rows.project();
    auto all_keys = static_cast<Element*>(cache.keys), all_values = static_cast<Element*>(cache.values);
    // Those that follow one another and attend to the same.
    auto is_with_last = [&](int64_t row) {
        return source.slots[row] == source.slots[row - 1] && source.lengths[row] == source.lengths[row - 1];
    };
    auto columns_of = [&](int64_t row, int first, int, int64_t next) {
        int64_t from = first * parts_.head_dim, slot = source.slots[row], at = slot * capacity * d + from;
        // The same slot again is at hand already.
        bool is_other = next >= 0 && source.slots[next] != slot;
        const Element* other = is_other ? all_keys + source.slots[next] * capacity * d + from : nullptr;
        return Columns<Element>{all_keys + at, all_values + at, d, source.lengths[row], other};
    };
    auto average = [&](int64_t row, const Weights& own) {
        if (!weights.values) return;
        float* to = weights.row(row, capacity);
        std::fill(to, to + capacity, 0.0f);
        for (int64_t head : aligned_) {
            float factor = 1.0f / own.sums(0, parts_.num_heads)[head] / float(aligned_.size());
            const float* scores = own.values + head * own.each;
            for (int c = 0; c < source.lengths[row]; ++c) to[c] += scores[c] * factor;
        }
    };
    int64_t all = std::accumulate(source.lengths, source.lengths + n, int64_t(0));
    rows.attend_all(all, is_with_last, columns_of, average);
}

namespace {

class SelfAttentionStep {
public:
    static constexpr const char* NAME = "SelfAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "positions", "keys", "values", "w_qkv", "s_qkv",
                                                  "b_qkv",    "w_o",   "s_o",       "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT, ANY,   ANY,   ANY,  FLOAT,
                                                  FLOAT, ANY,   FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SelfAttentionStep(const Info& info) : block_(info, 5) {}

    void compute(const Call& call) const {
        int64_t d = block_.parts().d();
        Flow flow(call, d);
        LayerCache cache = cache_of(call, 3, d);
        if (cache.rows < flow.n) {
            throw Refused("keys has %lld rows, fewer than the %lld of given", static_cast<long long>(cache.rows),
                          static_cast<long long>(flow.n));
        }
        const int32_t* positions = indices_of(call, 2, flow.n, 0, cache.capacity);
        std::vector<int32_t> rows(flow.n);
        std::iota(rows.begin(), rows.end(), 0);
        block_.run(flow, cache, rows.data(), positions,
                   {call.output<float>(0, {flow.n, d}), call.output<float>(1, {flow.n, d})});
    }

private:
    SelfAttentionBlock block_;
};

class CrossAttentionStep {
public:
    static constexpr const char* NAME = "CrossAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "slots", "lengths", "keys", "values", "w_q",
                                                  "s_q",      "b_q",   "w_o",   "s_o",     "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT, INT,   ANY,   ANY,   ANY,
                                                  FLOAT, FLOAT, ANY, FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit CrossAttentionStep(const Info& info) : CrossAttentionStep(info, {}) {}

    void compute(const Call& call) const {
        int64_t d = block_.parts().d();
        Flow flow(call, d);
        LayerCache cache = cache_of(call, 4, d);
        SourceColumns source{indices_of(call, 2, flow.n, 0, cache.rows),
                             indices_of(call, 3, flow.n, 1, cache.capacity + 1)};
        float* weights = is_aligned_ ? call.output<float>(2, {flow.n, cache.capacity}) : nullptr;
        block_.run(flow, cache, source, {weights},
                   {call.output<float>(0, {flow.n, d}), call.output<float>(1, {flow.n, d})});
    }

protected:
    CrossAttentionStep(const Info& info, std::vector<int64_t> aligned)
        : is_aligned_(!aligned.empty()), block_(info, 6, std::move(aligned)) {}

private:
    bool is_aligned_;
    CrossAttentionBlock block_;
};

class AlignedCrossAttentionStep : public CrossAttentionStep {
public:
    static constexpr const char* NAME = "AlignedCrossAttentionStep";
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT, FLOAT};

    explicit AlignedCrossAttentionStep(const Info& info) : CrossAttentionStep(info, heads_of(info)) {}

private:
    static std::vector<int64_t> heads_of(const Info& info) {
        std::vector<int64_t> heads = info.integers("heads");
        if (heads.empty()) throw Refused("heads is empty");
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
