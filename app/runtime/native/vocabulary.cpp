// Both ends of a step: subwords into rows, rows into the most probable subwords.
#include "candidates.h"
#include "operators.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto LONG = ElementType::int64;
constexpr auto ANY = ElementType::any;

// Nanoseconds for 16 numbers of a row, times 8: products with a scale; exponentials and comparisons.
constexpr int64_t EMBED_COST = 16, CHOOSE_COST = 36;

// A table (V, d) of int8 with scales (V,), or of floats. Throws Refused.
Tensor table_of(const Info& info, int index) {
    Tensor table = info.constant(index);
    table.expect({-1, -1});
    bool is_int8 = table.type == ElementType::int8;
    if (!is_int8 && table.type != FLOAT) throw Refused("%s is neither int8 nor float", table.name);
    if (table.shape[1] % LANES) throw Refused("%s has columns that are not a multiple of %d", table.name, LANES);
    info.constant(index + 1).expect({is_int8 ? table.shape[0] : 0});
    return table;
}

class Embed {
public:
    static constexpr const char* NAME = "Embed";
    static constexpr const char* INPUT_NAMES[] = {"ids", "positions", "table", "scales", "position_table"};
    static constexpr ElementType INPUT_TYPES[] = {INT, INT, ANY, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT};

    // The tables are constants of the graph, which keeps them as long as the kernel.
    explicit Embed(const Info& info)
        : table_(table_of(info, 2)), scales_(info.constant(3)), position_table_(info.constant(4)) {
        position_table_.expect({-1, table_.shape[1]});
    }

    void compute(const Call& call) const {
        int64_t d = table_.shape[1];
        Tensor ids = call.input(0);
        ids.expect({-1});
        int64_t n = ids.shape[0];
        expect_in_range(ids.name, ids.as<int32_t>(), n, 0, table_.shape[0]);
        const int32_t* positions = indices_of(call, 1, n, 0, position_table_.shape[0]);
        auto x = call.output<float>(0, {n, d});
        each_row(n, d / LANES * EMBED_COST / 8, [&](int64_t row) {
            const float* position = position_table_.as<float>() + positions[row] * d;
            int64_t id = ids.as<int32_t>()[row];
            for (int64_t i = 0; i < d; i += LANES) {
                store16(x + row * d + i, _mm512_add_ps(entry(id * d + i, id), load16(position + i)));
            }
        });
    }

private:
    __m512 entry(int64_t at, int64_t id) const {
        if (table_.type == FLOAT) return load16(table_.as<float>() + at);
        __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table_.as<int8_t>() + at));
        __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
        return _mm512_mul_ps(whole, _mm512_set1_ps(scales_.as<float>()[id]));
    }

    Tensor table_, scales_, position_table_;
};

class Candidates {
public:
    static constexpr const char* NAME = "Candidates";
    static constexpr const char* INPUT_NAMES[] = {"x", "table", "scales", "num_candidates", "wanted"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, ANY, FLOAT, LONG, LONG};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, LONG, FLOAT};

    explicit Candidates(const Info& info) {
        Tensor table = table_of(info, 1);
        linear_ = Linear({table.data, table.type == ElementType::int8, true, int(table.shape[1]), int(table.shape[0]),
                          info.constant(2).as<float>(), nullptr, Levels::around_128});
    }

    void compute(const Call& call) const {
        int64_t d = linear_.inputs(), vocab_size = linear_.outputs();
        Tensor x = call.input(0), num_candidates = call.input(3), wanted = call.input(4);
        x.expect({-1, d});
        num_candidates.expect({1});
        wanted.expect({1});
        int64_t n = x.shape[0], k = *num_candidates.as<int64_t>(), most = std::min<int64_t>(MAX_CANDIDATES, vocab_size);
        if (k < 1 || k > most) {
            throw Refused("num_candidates is %lld, which is not in 1..%lld", static_cast<long long>(k),
                          static_cast<long long>(most));
        }
        auto top = call.output<float>(0, {n, k});
        auto ids = call.output<int64_t>(1, {n, k});
        auto logits = call.output<float>(2, {n, vocab_size});
        bool is_wanted = *wanted.as<int64_t>() != 0;
        int64_t cost = linear_.row_nanoseconds() + vocab_size / LANES * CHOOSE_COST / 8;
        each_block(linear_, n, cost, [&](int64_t begin, int64_t count) {
            Scratch scratch(Prepared::bytes(linear_, count) + Scratch::piece<float>(count * vocab_size) +
                            Scratch::piece<float>(count * num_block_floats(vocab_size)));
            // Where nobody reads them, logits stay in this thread's own memory, which is in its cache.
            float* block = is_wanted ? logits + begin * vocab_size : scratch.take<float>(count * vocab_size);
            auto work = scratch.take<float>(count * num_block_floats(vocab_size));
            fill(x.as<float>() + begin * d, count, block, scratch);
            each_row(count, vocab_size / LANES * CHOOSE_COST / 8, [&](int64_t row) {
                choose(block + row * vocab_size, vocab_size, k, is_wanted, top + (begin + row) * k,
                       ids + (begin + row) * k, work + row * num_block_floats(vocab_size));
            });
        });
    }

private:
    // Logits (n, V) of x (n, d).
    void fill(const float* x, int64_t n, float* logits, Scratch& scratch) const {
        int64_t vocab_size = linear_.outputs();
        Prepared prepared(linear_, x, n, scratch);
        prepared.put_all();
        multiply(linear_, prepared.activations(), n, [=](int64_t row, int column, __mmask16 lanes, __m512 product) {
            _mm512_mask_storeu_ps(logits + row * vocab_size + column, lanes, product);
        });
    }

    Linear linear_;
};

}  // namespace

OrtStatus* register_vocabulary(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<Embed>(api, domain);
    if (!status) status = add_operator<Candidates>(api, domain);
    return status;
}

}  // namespace transduce
