// Attention blocks of one decoder step ("Attention Is All You Need", section 3.2.2), one query a row, over caches
// that stay where they are, with what follows: residual and LayerNorm.
#include "attention.h"
#include "operators.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// Estimates of what attention costs: nanoseconds for 64 elements of keys and values.
constexpr int64_t NS_FOR_64 = 9;

// Heads of a row: all in one chunk where there are rows enough for every thread, else fewer.
struct Split {
    int heads_together;
    int groups;

    Split(int64_t n, int num_heads) {
        int wanted = n >= 8 ? 1 : n >= 4 ? 2 : n >= 2 ? 4 : 8;
        heads_together = (num_heads + wanted - 1) / wanted;
        groups = (num_heads + heads_together - 1) / heads_together;
    }
};

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

// One call: memory, and the steps that both kinds share.
struct Step {
    const Parts& parts;
    const Flow& flow;
    int64_t width;
    Scratch scratch;
    float* projected;
    float* heads;
    float* scores;
    int64_t scores_each;
    Split split;

    Step(const Parts& parts, const Flow& flow, int64_t capacity)
        : parts(parts),
          flow(flow),
          width(parts.in.outputs()),
          scratch(Prepared::bytes(parts.in, flow.n) + Prepared::bytes(parts.out, flow.n) +
                  Scratch::piece<float>(flow.n * width) + Scratch::piece<float>(flow.n * parts.d()) +
                  Scratch::piece<float>(flow.n * parts.num_heads * num_scores(capacity))),
          projected(scratch.take<float>(flow.n * width)),
          heads(scratch.take<float>(flow.n * parts.d())),
          scores(scratch.take<float>(flow.n * parts.num_heads * num_scores(capacity))),
          scores_each(num_scores(capacity)),
          split(flow.n, parts.num_heads) {}

    void project() {
        Prepared x(parts.in, flow.given, flow.n, scratch);
        x.put_all();
        float* to = projected;
        int64_t stride = width;
        multiply(parts.in, x.activations(), flow.n,
                 [=](int64_t row, int column, __mmask16, __m512 product) { store16(to + row * stride + column, product); });
    }

    // Call head(row, head index, scores) for all of them, then project back. columns: of all rows together.
    template <class Head>
    void attend_all(int64_t columns, float* total, float* normalised, Head&& head) {
        Prepared x(parts.out, heads, flow.n, scratch);
        int groups = split.groups, together = split.heads_together, num_heads = parts.num_heads;
        int64_t cost = (columns * parts.d() * NS_FOR_64) / 64;
        // Rows that stand beside each other often share a slot: neighbours go to one thread.
        int64_t rows_together = std::max<int64_t>(1, flow.n / 32);
        int64_t row_chunks = (flow.n + rows_together - 1) / rows_together;
        parallel(int(row_chunks * groups), cost, [&](int chunk, Direction) {
            int64_t begin = chunk / groups * rows_together, end = std::min(begin + rows_together, flow.n);
            int first = chunk % groups * together, last = std::min(first + together, num_heads);
            for (int64_t row = begin; row < end; ++row) {
                for (int h = first; h < last; ++h) head(row, h, scores + (row * num_heads + h) * scores_each);
                if (groups == 1) x.put(row);
            }
        });
        if (groups > 1) x.put_all();
        add_and_normalize(parts.out, x.activations(), flow.residual, parts.norm, flow.n, total, normalised);
    }
};

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
        Step step(parts_, flow, caches.capacity());
        step.project();
        if (caches.is_half()) {
            run<Half>(step, caches, positions, total, normalised);
        } else {
            run<float>(step, caches, positions, total, normalised);
        }
    }

private:
    template <class Element>
    void run(Step& step, const Caches& caches, const int32_t* positions, float* total, float* normalised) const {
        int64_t d = parts_.d(), capacity = caches.capacity(), columns = step.flow.n;
        int head_dim = parts_.head_dim;
        for (int64_t row = 0; row < step.flow.n; ++row) columns += positions[row];
        auto all_keys = caches.keys.as<Element>(), all_values = caches.values.as<Element>();
        step.attend_all(columns, total, normalised, [&](int64_t row, int head, float* scores) {
            int64_t at = row * capacity * d + head * head_dim;
            Element *keys = all_keys + at, *values = all_values + at;
            const float* q = step.projected + row * 3 * d + head * head_dim;
            for (int i = 0; i < head_dim; i += LANES) {
                store16(keys + positions[row] * d + i, load16(q + d + i));
                store16(values + positions[row] * d + i, load16(q + 2 * d + i));
            }
            Columns<Element> own{keys, values, d, positions[row] + 1};
            attend(head_dim, q, own, scores, step.heads + row * d + head * head_dim);
        });
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
        Step step(parts_, flow, caches.capacity());
        step.project();
        if (caches.is_half()) {
            run<Half>(step, caches, slots, lengths, total, normalised);
        } else {
            run<float>(step, caches, slots, lengths, total, normalised);
        }
        if (aligned.empty()) return;
        auto weights = call.output<float>(2, {flow.n, caches.capacity()});
        for (int64_t row = 0; row < flow.n; ++row) {
            average(step, row, lengths[row], aligned, weights + row * caches.capacity(), caches.capacity());
        }
    }

    const Parts& parts() const { return parts_; }

private:
    template <class Element>
    void run(Step& step, const Caches& caches, const int32_t* slots, const int32_t* lengths, float* total,
             float* normalised) const {
        int64_t d = parts_.d(), capacity = caches.capacity(), columns = 0;
        int head_dim = parts_.head_dim;
        for (int64_t row = 0; row < step.flow.n; ++row) columns += lengths[row];
        auto all_keys = caches.keys.as<Element>(), all_values = caches.values.as<Element>();
        step.attend_all(columns, total, normalised, [&](int64_t row, int head, float* scores) {
            int64_t at = slots[row] * capacity * d + head * head_dim, own = row * d + head * head_dim;
            Columns<Element> columns{all_keys + at, all_values + at, d, lengths[row]};
            float sum = attend(head_dim, step.projected + own, columns, scores, step.heads + own);
            // What turns the scores left behind into weights.
            scores[num_scores(capacity) - 1] = 1.0f / sum;
        });
    }

    void average(const Step& step, int64_t row, int length, const std::vector<int64_t>& aligned, float* to,
                 int64_t capacity) const {
        std::fill(to, to + capacity, 0.0f);
        for (int64_t head : aligned) {
            const float* scores = step.scores + (row * parts_.num_heads + head) * step.scores_each;
            float factor = scores[step.scores_each - 1] / float(aligned.size());
            for (int column = 0; column < length; ++column) to[column] += scores[column] * factor;
        }
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
            throw Refused("heads holds %lld, which is not in 0..%d", static_cast<long long>(head), parts().num_heads - 1);
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
