// The operators of the encoder: self-attention of whole sentences, the cross-attention keys and values for the decoder,
// and the whole stack. Sentences of any lengths are concatenated without padding.
#include <algorithm>
#include <memory>

#include "attention.h"
#include "block_times.h"
#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto ANY = ElementType::any;

// Rough rate of attention, in multiply-adds per nanosecond of one thread.
constexpr int64_t MULTIPLY_ADDS_PER_NS = 20;
// Maximum number of queries in a part of a sentence. If larger, long sentences load the threads unevenly.
constexpr int64_t QUERIES_PER_PART = 64;

// Concatenated sentences. lengths: (count,) tokens of each.
struct Sentences {
    const int32_t* lengths;
    int64_t count;
    int64_t longest = 0;

    Sentences(const int32_t* lengths, int64_t count) : lengths(lengths), count(count) {
        longest = *std::max_element(lengths, lengths + count);
    }
    // Reads input `index`, whose values must sum up to t, the number of rows. Throws InvalidArgument.
    Sentences(const KernelCall& call, int index, int64_t t) {
        Tensor tensor = call.input(index);
        tensor.expect_shape({-1});
        lengths = tensor.as<int32_t>();
        count = tensor.shape[0];
        expect_in_range(tensor.name, lengths, count, 1, t + 1);
        int64_t sum = 0;
        for (int64_t i = 0; i < count; ++i) {
            sum += lengths[i];
            longest = std::max<int64_t>(longest, lengths[i]);
        }
        if (sum != t) {
            throw InvalidArgument("lengths sum up to %lld, not to the %lld rows of the input",
                                  static_cast<long long>(sum), static_cast<long long>(t));
        }
    }
};

// Multi-head self-attention of every sentence ("Attention Is All You Need", section 3.2.2), residual and LayerNorm.
class EncoderAttentionBlock {
public:
    // index: the first of the constants that AttentionWeights reads.
    EncoderAttentionBlock(const NodeInfo& info, int index) : weights_(info, index, 3) {}
    const AttentionWeights& weights() const { return weights_; }
    std::vector<Linear*> linears() { return {&weights_.in, &weights_.out}; }

    void run(const BlockInput& input, const Sentences& sentences, const BlockOutput& output) const {
        int64_t d = weights_.d(), n = input.n;
        SentenceParts parts = parts_of(sentences);
        int64_t score_stride = MAX_QUERIES * num_scores(sentences.longest);
        Scratch scratch(LinearInput::bytes(weights_.in, n) + LinearInput::bytes(weights_.out, n) +
                        Scratch::padded_bytes<float>(n * 3 * d) + Scratch::padded_bytes<float>(n * d) +
                        Scratch::padded_bytes<float>(parts.starts.size() * weights_.num_heads * score_stride));
        LinearInput x(weights_.in, input.x, n, scratch);
        x.prepare_all();
        auto qkv = scratch.allocate<float>(n * 3 * d), heads = scratch.allocate<float>(n * d);
        auto scores = scratch.allocate<float>(parts.starts.size() * weights_.num_heads * score_stride);
        // qkv: (3 * num_heads, n, head_dim), so that what one head of a sentence reads is contiguous.
        int64_t dim = weights_.head_dim;
        multiply(weights_.in, x.activations(), n, [=](int column, FirstLanes) {
            float* to = qkv + column / dim * n * dim + column % dim;
            return [=](int64_t row, Floats product) { store16(to + row * dim, product); };
        });
        attend_all(n, sentences, parts, qkv, heads, scores);
        LinearInput h(weights_.out, heads, n, scratch);
        h.prepare_all();
        add_and_normalize(weights_.out, h.activations(), input.residual, weights_.norm, n, output.total,
                          output.normalised);
    }

private:
    // The queries of all sentences in parts of at most QUERIES_PER_PART. Part i has the counts[i] queries from row
    // starts[i] on. Its sentence has the lengths[i] rows from row firsts[i] on. num_pairs: pairs of a query and a
    // key, summed over all parts.
    struct SentenceParts {
        std::vector<int64_t> starts, counts, firsts, lengths;
        int64_t num_pairs = 0;
    };

    static SentenceParts parts_of(const Sentences& sentences) {
        SentenceParts parts;
        for (int64_t i = 0, first = 0; i < sentences.count; first += sentences.lengths[i++]) {
            int64_t length = sentences.lengths[i];
            parts.num_pairs += length * length;
            for (int64_t begin = 0; begin < length; begin += QUERIES_PER_PART) {
                parts.starts.push_back(first + begin);
                parts.counts.push_back(std::min(QUERIES_PER_PART, length - begin));
                parts.firsts.push_back(first);
                parts.lengths.push_back(length);
            }
        }
        return parts;
    }

    // qkv: (3 * num_heads, n, head_dim). heads: receives (n, d). scores: scratch memory for each part and head.
    void attend_all(int64_t n, const Sentences& sentences, const SentenceParts& parts, const float* qkv, float* heads,
                    float* scores) const {
        int64_t d = weights_.d(), num_heads = weights_.num_heads, dim = weights_.head_dim;
        int64_t score_stride = num_scores(sentences.longest), num_parts = int64_t(parts.starts.size());
        if (num_parts == 0) return;
        // Threads share a job of at most MAX_CHUNKS chunks, so in a very large batch a chunk takes several heads.
        int64_t groups = std::clamp<int64_t>(MAX_CHUNKS / num_parts, 1, num_heads);
        int64_t heads_per_chunk = (num_heads + groups - 1) / groups;
        parallel_for(
            int(num_parts * groups), parts.num_pairs * d * 2 / MULTIPLY_ADDS_PER_NS, [&](int chunk, Direction) {
                int64_t part = chunk / groups, first_head = chunk % groups * heads_per_chunk;
                for (int64_t head = first_head; head < std::min(first_head + heads_per_chunk, num_heads); ++head) {
                    const float* queries = qkv + (head * n + parts.starts[part]) * dim;
                    const float* keys = qkv + ((num_heads + head) * n + parts.firsts[part]) * dim;
                    SentenceHead own{queries, keys, keys + d * n, parts.counts[part], parts.lengths[part], int(dim)};
                    attend_sentence(own, scores + chunk * MAX_QUERIES * score_stride, score_stride,
                                    heads + parts.starts[part] * d + head * dim, d);
                }
            });
    }

    AttentionWeights weights_;
};

// Computes the cross-attention keys and values of all layers and writes them to slots of their cache.
class CrossCacheBlock {
public:
    // index: of the constant w (d, 2 L d) for L decoder layers; its scales follow. Throws InvalidArgument.
    CrossCacheBlock(const NodeInfo& info, int index)
        : linear_(linear_of(info, index, -1, -1, false, ActivationRange::symmetric)) {
        if (linear_.outputs() % linear_.inputs())
            throw InvalidArgument("%s has outputs that are not a multiple of its inputs", info.constant(index).name);
    }
    int64_t d() const { return linear_.inputs(); }
    int64_t row_nanoseconds() const { return linear_.row_nanoseconds(); }
    std::vector<Linear*> linears() { return {&linear_}; }
    // Throws InvalidArgument unless the cache is (2 L, slots, capacity, d), float16 or float.
    void check(const Tensor& cache) const {
        cache.expect_shape({linear_.outputs() / d(), -1, -1, d()});
        if (cache.type != ElementType::float16 && cache.type != FLOAT)
            throw InvalidArgument("cache is neither float nor float16");
    }

    // x: (n, d), the rows of all sentences. slots: (sentences.count,).
    void run(const float* x, int64_t n, const Sentences& sentences, const int32_t* slots, const Tensor& cache) const {
        cache.type == FLOAT ? write<float>(x, n, sentences, slots, cache) : write<Half>(x, n, sentences, slots, cache);
    }

private:
    template <class Element>
    void write(const float* x, int64_t n, const Sentences& sentences, const int32_t* slots, const Tensor& cache) const {
        Scratch scratch(LinearInput::bytes(linear_, n) + Scratch::padded_bytes<int64_t>(n));
        LinearInput prepared(linear_, x, n, scratch);
        prepared.prepare_all();
        // A plane of the cache has the keys or the values of one layer. d is a multiple of 16, so a vector of 16
        // columns lies in one plane.
        int d = linear_.inputs();
        int64_t capacity = cache.shape[2], plane = cache.shape[1] * capacity * d;
        // Offset of each row's source position in a plane.
        auto offsets = scratch.allocate<int64_t>(n);
        for (int64_t i = 0, row = 0; i < sentences.count; ++i) {
            for (int position = 0; position < sentences.lengths[i]; ++position) {
                offsets[row++] = (slots[i] * capacity + position) * d;
            }
        }
        auto to = cache.as<Element>();
        multiply(linear_, prepared.activations(), n, [=](int column, FirstLanes) {
            Element* column_start = to + column / d * plane + column % d;
            return [=](int64_t row, Floats product) { store16(column_start + offsets[row], product); };
        });
    }

    Linear linear_;
};

class SelfAttention {
public:
    static constexpr const char* NAME = "SelfAttention";
    static constexpr const char* INPUT_NAMES[] = {"residual", "x",   "lengths", "w_qkv", "s_qkv", "b_qkv",
                                                  "w_o",      "s_o", "b_o",     "gamma", "beta"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, FLOAT, INT,   ANY,   FLOAT, FLOAT,
                                                  ANY,   FLOAT, FLOAT, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, FLOAT};

    explicit SelfAttention(const NodeInfo& info) : block_(info, 3) {}

    void compute(const KernelCall& call) const {
        int64_t d = block_.weights().d();
        BlockInput input(call, d);
        block_.run(input, Sentences(call, 2, input.n),
                   {call.output<float>(0, {input.n, d}), call.output<float>(1, {input.n, d})});
    }

private:
    EncoderAttentionBlock block_;
};

class WriteCrossCache {
public:
    static constexpr const char* NAME = "WriteCrossCache";
    static constexpr const char* INPUT_NAMES[] = {"x", "lengths", "slots", "cache", "w", "s"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, INT, INT, ANY, ANY, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {INT};

    explicit WriteCrossCache(const NodeInfo& info) : block_(info, 4) {}

    void compute(const KernelCall& call) const {
        Tensor x = call.input(0), cache = call.input(3);
        x.expect_shape({-1, block_.d()});
        block_.check(cache);
        Sentences sentences(call, 1, x.shape[0]);
        const int32_t* slots = indices_of(call, 2, sentences.count, 0, cache.shape[1]);
        expect_in_range("lengths", sentences.lengths, sentences.count, 1, cache.shape[2] + 1);
        block_.run(x.as<float>(), x.shape[0], sentences, slots, cache);
        std::copy(sentences.lengths, sentences.lengths + sentences.count, call.output<int32_t>(0, {sentences.count}));
    }

private:
    CrossCacheBlock block_;
};

// The whole encoder ("Attention Is All You Need", section 3.1), from token ids to the cross-attention cache.
class Encoder {
public:
    static constexpr const char* NAME = "Encoder";
    static constexpr bool IS_VARIADIC = true;
    static constexpr const char* INPUT_NAMES[] = {"ids",   "positions", "lengths",        "slots",  "cross_cache",
                                                  "table", "scales",    "position_table", "weights"};
    static constexpr ElementType INPUT_TYPES[] = {INT, INT, INT, INT, ANY, ANY, FLOAT, FLOAT, ANY};
    static constexpr ElementType OUTPUT_TYPES[] = {INT};

    explicit Encoder(const NodeInfo& info) : is_pre_norm_(info.integer("is_pre_norm") != 0), embedding_(info, 5) {
        int index = 8;
        if (is_pre_norm_) {
            first_norm_ = norm_of(info, index, embedding_.d());
            index += 2;
        }
        int64_t num_layers = info.integer("num_layers");
        for (int64_t layer = 0; layer < num_layers; ++layer, index += 2 * BLOCK_CONSTANTS) {
            layers_.push_back({EncoderAttentionBlock(info, index), FeedForwardBlock(info, index + BLOCK_CONSTANTS)});
            expect_width("self-attention", layer, layers_.back().self_attention.weights().d(), embedding_.d());
            expect_width("feed-forward block", layer, layers_.back().feed_forward.d(), embedding_.d());
        }
        if (layers_.empty())
            throw InvalidArgument("num_layers is %lld, and must be at least 1", static_cast<long long>(num_layers));
        cross_cache_ = std::make_unique<CrossCacheBlock>(info, index);
        if (cross_cache_->d() != embedding_.d())
            throw InvalidArgument("weights has %d inputs, not %d", int(cross_cache_->d()), int(embedding_.d()));
        link_products(linears(), false);
    }

    void compute(const KernelCall& call) const {
        Tensor ids = call.input(0), cache = call.input(4);
        ids.expect_shape({-1});
        int64_t n = ids.shape[0];
        expect_in_range(ids.name, ids.as<int32_t>(), n, 0, embedding_.vocab_size());
        const int32_t* positions = indices_of(call, 1, n, 0, embedding_.num_positions());
        Sentences sentences(call, 2, n);
        cross_cache_->check(cache);
        const int32_t* slots = indices_of(call, 3, sentences.count, 0, cache.shape[1]);
        expect_in_range("lengths", sentences.lengths, sentences.count, 1, cache.shape[2] + 1);
        encode_all({ids.as<int32_t>(), positions, sentences.lengths, slots}, n, sentences, cache);
        std::copy(sentences.lengths, sentences.lengths + sentences.count, call.output<int32_t>(0, {sentences.count}));
    }

private:
    struct Layer {
        EncoderAttentionBlock self_attention;
        FeedForwardBlock feed_forward;
    };

    // Concatenated sentences: ids and positions of their rows, length and slot of each sentence.
    struct Source {
        const int32_t *ids, *positions, *lengths, *slots;
    };

    // Copies of the sentences that one thread encodes alone.
    struct Group {
        std::vector<int32_t> ids, positions, lengths, slots;

        void add(const Source& source, int64_t sentence, int64_t row) {
            int32_t length = source.lengths[sentence];
            ids.insert(ids.end(), source.ids + row, source.ids + row + length);
            positions.insert(positions.end(), source.positions + row, source.positions + row + length);
            lengths.push_back(length);
            slots.push_back(source.slots[sentence]);
        }
        Source source() const { return {ids.data(), positions.data(), lengths.data(), slots.data()}; }
        int64_t n() const { return int64_t(ids.size()); }
    };

    // Divides the sentences into `count` groups, at most one for each sentence. Each sentence, the longest first, goes
    // to the group with the fewest rows.
    static std::vector<Group> groups_of(const Source& source, const Sentences& sentences, int64_t count) {
        std::vector<std::pair<int64_t, int64_t>> by_length;  // a sentence and its first row
        for (int64_t i = 0, row = 0; i < sentences.count; row += sentences.lengths[i++]) by_length.emplace_back(i, row);
        auto is_longer = [&](auto& a, auto& b) { return source.lengths[a.first] > source.lengths[b.first]; };
        std::stable_sort(by_length.begin(), by_length.end(), is_longer);
        std::vector<Group> groups(std::min(count, sentences.count));
        auto has_fewer = [](const Group& a, const Group& b) { return a.n() < b.n(); };
        for (auto [sentence, row] : by_length) {
            std::min_element(groups.begin(), groups.end(), has_fewer)->add(source, sentence, row);
        }
        return groups;
    }

    // If there are at least as many sentences as threads, and enough rows, each thread encodes whole groups. Otherwise
    // all threads work on all sentences. They share each product of the attention and of the cross cache, and divide
    // the rows of a feed-forward block if there are enough.
    void encode_all(const Source& source, int64_t n, const Sentences& sentences, const Tensor& cache) const {
        if (n == 0) return;
        int64_t count = num_row_blocks(layers_.front().self_attention.weights().in, n);
        if (!count || sentences.count < num_threads()) return encode(source, n, sentences, cache);
        std::vector<Group> groups = groups_of(source, sentences, count);
        parallel_for(int(groups.size()), n * row_nanoseconds(), [&](int chunk, Direction) {
            const Group& group = groups[chunk];
            OwnRowsScope scope;
            encode(group.source(), group.n(), Sentences(group.lengths.data(), int64_t(group.lengths.size())), cache);
        });
    }

    // All linear layers, in the order of their use.
    std::vector<Linear*> linears() {
        std::vector<Linear*> all;
        auto append = [&](std::vector<Linear*> linears) { all.insert(all.end(), linears.begin(), linears.end()); };
        for (Layer& layer : layers_) {
            append(layer.self_attention.linears());
            append(layer.feed_forward.linears());
        }
        append(cross_cache_->linears());
        return all;
    }

    int64_t row_nanoseconds() const {
        const AttentionWeights& attention = layers_.front().self_attention.weights();
        int64_t layer = attention.in.row_nanoseconds() + attention.out.row_nanoseconds() +
                        layers_.front().feed_forward.row_nanoseconds();
        return layer * int64_t(layers_.size()) + cross_cache_->row_nanoseconds();
    }

    void encode(const Source& source, int64_t n, const Sentences& sentences, const Tensor& cache) const {
        int64_t d = embedding_.d();
        Scratch scratch(2 * Scratch::padded_bytes<float>(n * d), ScratchLevel::step);
        float *total = scratch.allocate<float>(n * d), *normalised = scratch.allocate<float>(n * d);
        BlockTimer times(Stack::encoder);
        embedding_.run(source.ids, source.positions, n, is_pre_norm_ ? total : normalised);
        // Pre-norm: each block adds to `total` and reads LayerNorm(total). Post-norm: residual and input of a block are
        // both the LayerNorm of the block before.
        if (is_pre_norm_) normalize_rows(total, n, first_norm_, normalised);
        times.add(BlockKind::embedding);
        BlockInput input(is_pre_norm_ ? total : normalised, normalised, n);
        BlockOutput output{total, normalised};
        for (const Layer& layer : layers_) {
            layer.self_attention.run(input, sentences, output);
            times.add(BlockKind::self_attention);
            layer.feed_forward.run(input, output);
            times.add(BlockKind::feed_forward);
        }
        cross_cache_->run(normalised, n, sentences, source.slots, cache);
        times.add(BlockKind::cross_cache);
    }

    bool is_pre_norm_;
    EmbeddingBlock embedding_;
    Norm first_norm_;
    std::vector<Layer> layers_;
    std::unique_ptr<CrossCacheBlock> cross_cache_;
};

}  // namespace

OrtStatus* register_encoder(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<SelfAttention>(api, domain);
    if (!status) status = add_operator<WriteCrossCache>(api, domain);
    if (!status) status = add_operator<Encoder>(api, domain);
    return status;
}

}  // namespace transduce
