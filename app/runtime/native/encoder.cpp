// What the encoder is made of: attention of whole sentences to themselves, and the cross-attention columns that it
// leaves for the decoder. Sentences of any lengths stand one after another; nothing is padded.
#include <numeric>

#include "attention.h"
#include "operators.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// Estimate of what attention costs: products a nanosecond.
constexpr int64_t PRODUCTS_A_NS = 20;
// Queries of one head of one sentence that a chunk takes.
constexpr int64_t QUERIES_A_CHUNK = 64;

// Sentences (b,) of `lengths` tokens, t in all.
struct Sentences {
    const int32_t* lengths;
    int64_t count;
    int64_t longest = 0;

    Sentences(const Call& call, int index, int64_t t) {
        Tensor tensor = call.input(index);
        tensor.expect({-1});
        lengths = tensor.as<int32_t>();
        count = tensor.shape[0];
        expect_in_range(tensor.name, lengths, count, 1, t + 1);
        int64_t sum = 0;
        for (int64_t i = 0; i < count; ++i) {
            sum += lengths[i];
            longest = std::max<int64_t>(longest, lengths[i]);
        }
        if (sum != t) {
            throw Refused("lengths sum up to %lld, not to the %lld rows of the input", static_cast<long long>(sum),
                          static_cast<long long>(t));
        }
    }
};

class SelfAttention {
public:
    static constexpr const char* NAME = "SelfAttention";
    static constexpr const char* INPUT_NAMES[] = {"residual", "given", "lengths", "w_qkv", "s_qkv", "b_qkv",
                                                  "w_o",      "s_o",   "b_o",     "gamma", "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT,   ANY,   FLOAT, FLOAT,
                                                  ANY,   FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SelfAttention(const Info& info) : parts_(info, 3, 3) {}

    void compute(const Call& call) const {
        int64_t d = parts_.d();
        Flow flow(call, d);
        Sentences sentences(call, 2, flow.n);
        auto total = call.output<float>(0, {flow.n, d}), normalised = call.output<float>(1, {flow.n, d});
        int64_t n = flow.n;
        Chunks chunks = chunks_of(sentences);
        int64_t scores_each = QUERIES_TOGETHER * num_scores(sentences.longest);
        Scratch scratch(Prepared::bytes(parts_.in, n) + Prepared::bytes(parts_.out, n) +
                        Scratch::piece<float>(n * 3 * d) + Scratch::piece<float>(n * d) +
                        Scratch::piece<float>(chunks.starts.size() * parts_.num_heads * scores_each));
        Prepared x(parts_.in, flow.given, n, scratch);
        x.put_all();
        auto qkv = scratch.take<float>(n * 3 * d), heads = scratch.take<float>(n * d);
        auto scores = scratch.take<float>(chunks.starts.size() * parts_.num_heads * scores_each);
        // (3 * num_heads, n, head_dim): what one head of a sentence reads is one block.
        int64_t dim = parts_.head_dim;
        multiply(parts_.in, x.activations(), n, [=](int64_t row, int column, __mmask16, __m512 product) {
            store16(qkv + (column / dim * n + row) * dim + column % dim, product);
        });
        attend_all(sentences, chunks, qkv, heads, scores);
        Prepared h(parts_.out, heads, n, scratch);
        h.put_all();
        add_and_normalize(parts_.out, h.activations(), flow.residual, parts_.norm, n, total, normalised);
    }

private:
    // Runs of queries of one sentence: which sentence's rows [first, first + length), which queries from `start` on.
    struct Chunks {
        std::vector<int64_t> starts, counts, firsts, lengths;
        int64_t products = 0;
    };

    static Chunks chunks_of(const Sentences& sentences) {
        Chunks chunks;
        for (int64_t i = 0, first = 0; i < sentences.count; first += sentences.lengths[i++]) {
            int64_t length = sentences.lengths[i];
            chunks.products += length * length;
            for (int64_t begin = 0; begin < length; begin += QUERIES_A_CHUNK) {
                chunks.starts.push_back(first + begin);
                chunks.counts.push_back(std::min(QUERIES_A_CHUNK, length - begin));
                chunks.firsts.push_back(first);
                chunks.lengths.push_back(length);
            }
        }
        return chunks;
    }

    void attend_all(const Sentences& sentences, const Chunks& chunks, const float* qkv, float* heads,
                    float* scores) const {
        int64_t d = parts_.d(), num_heads = parts_.num_heads, dim = parts_.head_dim;
        int64_t n = std::accumulate(sentences.lengths, sentences.lengths + sentences.count, int64_t{0});
        int64_t scores_each = num_scores(sentences.longest), runs = int64_t(chunks.starts.size());
        // A job has a bounded number of chunks; a very large batch takes heads together.
        int64_t heads_together = (runs * num_heads + MAX_CHUNKS - 1) / MAX_CHUNKS;
        int64_t groups = (num_heads + heads_together - 1) / heads_together;
        parallel(int(runs * groups), chunks.products * d * 2 / PRODUCTS_A_NS, [&](int chunk, Direction) {
            int64_t run = chunk / groups, first_head = chunk % groups * heads_together;
            for (int64_t head = first_head; head < std::min(first_head + heads_together, num_heads); ++head) {
                const float* queries = qkv + (head * n + chunks.starts[run]) * dim;
                const float* keys = qkv + ((num_heads + head) * n + chunks.firsts[run]) * dim;
                SentenceHead own{queries, keys, keys + d * n, chunks.counts[run], chunks.lengths[run], int(dim)};
                attend_sentence(own, scores + chunk * QUERIES_TOGETHER * scores_each, scores_each,
                                heads + chunks.starts[run] * d + head * dim, d);
            }
        });
    }

    Parts parts_;
};

class WriteCrossCache {
public:
    static constexpr const char* NAME = "WriteCrossCache";
    static constexpr const char* INPUT_NAMES[] = {"x", "lengths", "slots", "cache", "w", "s"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, INT, INT, ANY, ANY, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {INT};

    explicit WriteCrossCache(const Info& info) : linear_(linear_of(info, 4, -1, -1, false, Levels::around_128)) {
        if (linear_.outputs() % linear_.inputs()) throw Refused("w has outputs that are not a multiple of its inputs");
    }

    void compute(const Call& call) const {
        int64_t d = linear_.inputs(), planes = linear_.outputs() / d;
        Tensor x = call.input(0), cache = call.input(3);
        x.expect({-1, d});
        cache.expect({planes, -1, -1, d});
        Sentences sentences(call, 1, x.shape[0]);
        const int32_t* slots = indices_of(call, 2, sentences.count, 0, cache.shape[1]);
        expect_in_range("lengths", sentences.lengths, sentences.count, 1, cache.shape[2] + 1);
        // Where each row's column stands in a plane.
        std::vector<int64_t> places;
        for (int64_t i = 0; i < sentences.count; ++i) {
            for (int column = 0; column < sentences.lengths[i]; ++column) {
                places.push_back((slots[i] * cache.shape[2] + column) * d);
            }
        }
        if (cache.type == ElementType::float16) {
            write(x.as<float>(), x.shape[0], places, cache.as<Half>(), cache.shape[1] * cache.shape[2] * d);
        } else if (cache.type == FLOAT) {
            write(x.as<float>(), x.shape[0], places, cache.as<float>(), cache.shape[1] * cache.shape[2] * d);
        } else {
            throw Refused("cache is neither float nor float16");
        }
        std::copy(sentences.lengths, sentences.lengths + sentences.count, call.output<int32_t>(0, {sentences.count}));
    }

private:
    template <class Element>
    void write(const float* x, int64_t n, const std::vector<int64_t>& places, Element* cache, int64_t plane) const {
        Scratch scratch(Prepared::bytes(linear_, n));
        Prepared prepared(linear_, x, n, scratch);
        prepared.put_all();
        // A vector of 16 columns lies in one plane: d is a multiple of 16.
        int d = linear_.inputs();
        multiply(linear_, prepared.activations(), n, [&, d](int64_t row, int column, __mmask16, __m512 product) {
            store16(cache + column / d * plane + places[row] + column % d, product);
        });
    }

    Linear linear_;
};

}  // namespace

OrtStatus* register_encoder(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<SelfAttention>(api, domain);
    if (!status) status = add_operator<WriteCrossCache>(api, domain);
    return status;
}

}  // namespace transduce
