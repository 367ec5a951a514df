// Attention blocks of one decoder step ("Attention Is All You Need", section 3.2.2), one query a row, over caches
// that stay where they are, with what follows: residual and LayerNorm.
#include <numeric>

#include "attention.h"
#include "operators.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// What a column of d keys and values costs a row, for 64 of d. An estimate.
constexpr int64_t NS_FOR_64 = 9;

// Keys and values (rows, capacity, d) of one type.
struct Caches {
    Tensor keys, values;

    Caches(const Call& call, int index, int64_t d) : keys(call.input(index)), values(call.input(index + 1)) {
        keys.expect({-1, -1, d});
        values.expect({keys.shape[0], keys.shape[1], d});
        if (keys.type != values.type || (keys.type != FLOAT && keys.type != ElementType::float16)) {
            throw Refused("%s and %s are not of one type, float or float16", keys.name, values.name);
        }
    }
    int64_t rows() const { return keys.shape[0]; }
    int64_t capacity() const { return keys.shape[1]; }
    bool is_half() const { return keys.type == ElementType::float16; }
};

// Rows [begin, begin + flow.n) of a call, taken through the whole block.
class Rows {
public:
    // longest: columns that a row may attend to. is_aligned: whether all heads of a row must be in one chunk.
    Rows(const Parts& parts, const Flow& flow, int64_t longest, bool is_aligned = false)
        : parts_(parts),
          flow_(flow),
          width_(parts.in.outputs()),
          // Heads of a row: all in one chunk, but where there are fewer rows than threads.
          heads_together_(int((parts.num_heads * flow.n + num_threads() - 1) / num_threads())),
          scores_each_(num_scores(longest)),
          scratch_(Prepared::bytes(parts.in, flow.n) + Prepared::bytes(parts.out, flow.n) +
                   Scratch::piece<float>(flow.n * width_) + Scratch::piece<float>(flow.n * parts.d()) +
                   Scratch::piece<float>(flow.n * parts.num_heads * (scores_each_ + LANES))) {
        heads_together_ = is_aligned ? parts.num_heads : std::clamp(heads_together_, 1, parts.num_heads);
        projected_ = scratch_.take<float>(flow.n * width_);
        heads_ = scratch_.take<float>(flow.n * parts.d());
        scores_ = scratch_.take<float>(flow.n * parts.num_heads * (scores_each_ + LANES));
    }

    // (n, outputs of the projection): given W + b, kept until the end.
    const float* project() {
        Prepared x(parts_.in, flow_.given, flow_.n, scratch_);
        x.put_all();
        float* to = projected_;
        int64_t stride = width_;
        multiply(parts_.in, x.activations(), flow_.n, [=](int64_t row, int column, __mmask16, __m512 product) {
            store16(to + row * stride + column, product);
        });
        return projected_;
    }

    // Attend with all heads of all rows. columns_of(row, first head, heads, next): what those attend to, asked once
    // each; next is the row that follows, or negative. after(row, first head, heads, scores, scores_each, sums): once
    // they have. columns: how many of all rows together.
    template <class ColumnsOf, class After>
    void attend_all(int64_t columns, ColumnsOf&& columns_of, After&& after) {
        int together = heads_together_, groups = (parts_.num_heads + together - 1) / together;
        // Rows that stand beside each other often share a slot: neighbours go to one thread.
        int64_t rows_together = std::max<int64_t>(1, flow_.n / 16);
        int64_t runs = (flow_.n + rows_together - 1) / rows_together;
        parallel(int(runs * groups), columns * parts_.d() * NS_FOR_64 / 64, [&](int chunk, Direction direction) {
            int64_t begin = chunk / groups * rows_together, end = std::min(begin + rows_together, flow_.n);
            // The chunk that this thread takes next, most likely.
            int64_t after_end = direction == Direction::up ? end : begin - rows_together;
            int first = chunk % groups * together, count = std::min(together, parts_.num_heads - first);
            float* scores = scores_ + (begin * parts_.num_heads + first) * (scores_each_ + LANES);
            float* sums = scores + count * scores_each_;
            for (int64_t row = begin; row < end; ++row) {
                int64_t from = first * parts_.head_dim;
                Query query{projected_ + row * width_ + from, count, parts_.head_dim};
                int64_t next = row + 1 < end ? row + 1 : after_end;
                attend(query, columns_of(row, first, count, next < flow_.n ? next : -1), scores, scores_each_, sums,
                       heads_ + row * parts_.d() + from);
                after(row, first, count, scores, scores_each_, sums);
            }
        });
    }

    // residual + heads W_O + b, and its norm.
    void finish(float* total, float* normalised) {
        Prepared x(parts_.out, heads_, flow_.n, scratch_);
        x.put_all();
        add_and_normalize(parts_.out, x.activations(), flow_.residual, parts_.norm, flow_.n, total, normalised);
    }

private:
    const Parts& parts_;
    Flow flow_;
    int64_t width_;
    int heads_together_;
    int64_t scores_each_;
    Scratch scratch_;
    float *projected_, *heads_, *scores_;
};

// What a row costs, attending to all of `columns` shared out.
int64_t row_cost(const Parts& parts, int64_t columns, int64_t n) {
    int64_t products = parts.in.row_nanoseconds() + parts.out.row_nanoseconds();
    return products + columns / std::max<int64_t>(n, 1) * parts.d() * NS_FOR_64 / 64;
}

class SelfAttentionStep {
public:
    static constexpr const char* NAME = "SelfAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "positions", "keys", "values", "w_qkv", "s_qkv",
                                                  "b_qkv",    "w_o",   "s_o",       "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT, ANY,   ANY,   ANY,  FLOAT,
                                                  FLOAT, ANY,   FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SelfAttentionStep(const Info& info) : parts_(info, 5, 3) {}

    void compute(const Call& call) const {
        Flow flow(call, parts_.d());
        Caches caches(call, 3, parts_.d());
        if (caches.rows() < flow.n) {
            throw Refused("keys has %lld rows, fewer than the %lld of given", static_cast<long long>(caches.rows()),
                          static_cast<long long>(flow.n));
        }
        const int32_t* positions = indices_of(call, 2, flow.n, 0, caches.capacity());
        auto total = call.output<float>(0, {flow.n, parts_.d()});
        auto normalised = call.output<float>(1, {flow.n, parts_.d()});
        int64_t columns = std::accumulate(positions, positions + flow.n, flow.n);
        each_block(parts_.in, flow.n, row_cost(parts_, columns, flow.n), [&](int64_t begin, int64_t n) {
            Rows rows(parts_, flow.rows(begin, n, parts_.d()), caches.capacity());
            if (caches.is_half()) {
                attend_rows<Half>(rows, caches, positions, begin, n);
            } else {
                attend_rows<float>(rows, caches, positions, begin, n);
            }
            rows.finish(total + begin * parts_.d(), normalised + begin * parts_.d());
        });
    }

private:
    template <class Element>
    void attend_rows(Rows& rows, const Caches& caches, const int32_t* positions, int64_t begin, int64_t n) const {
        int64_t d = parts_.d(), slot = caches.capacity() * d;
        int head_dim = parts_.head_dim;
        const float* projected = rows.project();
        auto all_keys = caches.keys.as<Element>(), all_values = caches.values.as<Element>();
        auto columns_of = [&](int64_t row, int first, int count, int64_t next) {
            int64_t at = (begin + row) * slot + first * head_dim, position = positions[begin + row];
            Element *keys = all_keys + at, *values = all_values + at;
            const float* q = projected + row * 3 * d + first * head_dim;
            for (int i = 0; i < count * head_dim; i += LANES) {
                store16(keys + position * d + i, load16(q + d + i));
                store16(values + position * d + i, load16(q + 2 * d + i));
            }
            return Columns<Element>{keys, values, d, position + 1, next < 0 ? nullptr : keys + (next - row) * slot};
        };
        int64_t columns = std::accumulate(positions + begin, positions + begin + n, n);
        rows.attend_all(columns, columns_of, [](auto...) {});
    }

    Parts parts_;
};

class CrossAttentionStep {
public:
    static constexpr const char* NAME = "CrossAttentionStep";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "slots", "lengths", "keys", "values", "w_q",
                                                  "s_q",      "b_q",   "w_o",   "s_o",     "b_o",  "gamma",  "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT, INT,   ANY,   ANY,   ANY,
                                                  FLOAT, FLOAT, ANY, FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit CrossAttentionStep(const Info& info) : parts_(info, 6, 1) {}

    void compute(const Call& call) const { compute_with(call, {}); }

protected:
    // aligned: heads whose attention weights are averaged into output 2; none, no output.
    void compute_with(const Call& call, const std::vector<int64_t>& aligned) const {
        Flow flow(call, parts_.d());
        Caches caches(call, 4, parts_.d());
        const int32_t* slots = indices_of(call, 2, flow.n, 0, caches.rows());
        const int32_t* lengths = indices_of(call, 3, flow.n, 1, caches.capacity() + 1);
        auto total = call.output<float>(0, {flow.n, parts_.d()});
        auto normalised = call.output<float>(1, {flow.n, parts_.d()});
        int64_t capacity = caches.capacity(), d = parts_.d();
        auto weights = aligned.empty() ? nullptr : call.output<float>(2, {flow.n, capacity});
        if (weights) std::fill(weights, weights + flow.n * capacity, 0.0f);
        int64_t columns = std::accumulate(lengths, lengths + flow.n, int64_t(0));
        each_block(parts_.in, flow.n, row_cost(parts_, columns, flow.n), [&](int64_t begin, int64_t n) {
            Rows rows(parts_, flow.rows(begin, n, d), capacity, weights != nullptr);
            const Source source{slots + begin, lengths + begin, n};
            Aligned own{aligned, weights + begin * capacity};
            if (caches.is_half()) {
                attend_rows<Half>(rows, caches, source, own);
            } else {
                attend_rows<float>(rows, caches, source, own);
            }
            rows.finish(total + begin * d, normalised + begin * d);
        });
    }

    const Parts& parts() const { return parts_; }

private:
    // Which columns n rows attend to.
    struct Source {
        const int32_t* slots;
        const int32_t* lengths;
        int64_t n;
    };

    // Heads whose weights are averaged, and where to, (n, capacity) of zeros.
    struct Aligned {
        const std::vector<int64_t>& heads;
        float* weights;
    };

    template <class Element>
    void attend_rows(Rows& rows, const Caches& caches, const Source& source, const Aligned& aligned) const {
        int64_t d = parts_.d(), capacity = caches.capacity();
        rows.project();
        auto all_keys = caches.keys.as<Element>(), all_values = caches.values.as<Element>();
        auto columns_of = [&](int64_t row, int first, int, int64_t next) {
            int64_t from = first * parts_.head_dim, slot = source.slots[row], at = slot * capacity * d + from;
            // The same slot again is at hand already.
            bool is_other = next >= 0 && source.slots[next] != slot;
            const Element* other = is_other ? all_keys + source.slots[next] * capacity * d + from : nullptr;
            return Columns<Element>{all_keys + at, all_values + at, d, source.lengths[row], other};
        };
        auto average = [&](int64_t row, int, int, const float* scores, int64_t scores_each, const float* sums) {
            for (int64_t head : aligned.heads) {
                float factor = 1.0f / sums[head] / float(aligned.heads.size());
                float* to = aligned.weights + row * capacity;
                for (int c = 0; c < source.lengths[row]; ++c) to[c] += scores[head * scores_each + c] * factor;
            }
        };
        rows.attend_all(std::accumulate(source.lengths, source.lengths + source.n, int64_t(0)), columns_of, average);
    }

    Parts parts_;
};

class AlignedCrossAttentionStep : public CrossAttentionStep {
public:
    static constexpr const char* NAME = "AlignedCrossAttentionStep";
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT, FLOAT};

    explicit AlignedCrossAttentionStep(const Info& info) : CrossAttentionStep(info), aligned_(info.integers("heads")) {
        if (aligned_.empty()) throw Refused("heads is empty");
        for (int64_t head : aligned_) {
            if (head >= 0 && head < parts().num_heads) continue;
            throw Refused("heads holds %lld, which is not in 0..%d", static_cast<long long>(head),
                          parts().num_heads - 1);
        }
    }

    void compute(const Call& call) const { compute_with(call, aligned_); }

private:
    std::vector<int64_t> aligned_;
};

}  // namespace

OrtStatus* register_step_attention(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<SelfAttentionStep>(api, domain);
    if (!status) status = add_operator<CrossAttentionStep>(api, domain);
    if (!status) status = add_operator<AlignedCrossAttentionStep>(api, domain);
    return status;
}

}  // namespace transduce
