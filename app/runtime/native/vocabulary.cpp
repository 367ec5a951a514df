// Both ends of a step: the embedding of tokens, and the projection of rows to logits with the top-k.
#include <algorithm>
#include <cstring>
#include <vector>

#include "candidates.h"
#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto LONG = ElementType::int64;
constexpr auto ANY = ElementType::any;

// Rough costs of the embedding and of scanning logits, for 16 numbers of a row, in eighths of a nanosecond.
constexpr int64_t EMBED_COST = 16, SCAN_COST = 24;
// Rough cost, in ns, of the top-k of a row that is scanned.
constexpr int64_t TOP_K_NS = 300;
// Floats from row to row in the span buffer: one cache line longer than a span, so that rows do not fall into the same
// set of the cache.
constexpr int64_t SPAN_STRIDE = SPAN_IDS + LANES;

// Returns the rough cost of scanning `count` logits of each of n rows.
int64_t scan_nanoseconds(int64_t n, int64_t count) { return n * count / LANES * SCAN_COST / 8; }

// Returns the constant `index`, a table (V, d): int8 with scales (V,), or float with empty scales. Throws
// InvalidArgument.
Tensor table_of(const NodeInfo& info, int index) {
    Tensor table = info.constant(index);
    table.expect_shape({-1, -1});
    bool is_int8 = table.type == ElementType::int8;
    if (!is_int8 && table.type != FLOAT) throw InvalidArgument("%s is neither int8 nor float", table.name);
    if (table.shape[1] % LANES)
        throw InvalidArgument("%s has a number of columns that is not a multiple of %d", table.name, LANES);
    info.constant(index + 1).expect_shape({is_int8 ? table.shape[0] : 0});
    return table;
}

// Returns max |x|; NaN if any x is NaN.
float largest_magnitude(const float* x, int64_t count) {
    Integers largest = all16(0);
    for (int64_t i = 0; i < count; i += LANES) {
        Floats some = load16(x + i, first_lanes(count - i));
        largest = max16(largest, magnitude_bits(some));
    }
    int bits = largest16(largest);
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    return magnitude;
}

// Returns a bound on the magnitude of the table's entries.
float largest_weight(const Tensor& table, const Tensor& scales) {
    if (table.type != FLOAT) return 128 * largest_magnitude(scales.as<float>(), table.shape[0]);
    return largest_magnitude(table.as<float>(), table.shape[0] * table.shape[1]);
}

class Embed {
public:
    static constexpr const char* NAME = "Embed";
    static constexpr const char* INPUT_NAMES[] = {"ids", "positions", "table", "scales", "position_table"};
    static constexpr ElementType INPUT_TYPES[] = {INT, INT, ANY, FLOAT, FLOAT};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT};

    explicit Embed(const NodeInfo& info) : block_(info, 2) {}

    void compute(const KernelCall& call) const {
        Tensor ids = call.input(0);
        ids.expect_shape({-1});
        int64_t n = ids.shape[0];
        expect_in_range(ids.name, ids.as<int32_t>(), n, 0, block_.vocab_size());
        const int32_t* positions = indices_of(call, 1, n, 0, block_.num_positions());
        block_.run(ids.as<int32_t>(), positions, n, call.output<float>(0, {n, block_.d()}));
    }

private:
    EmbeddingBlock block_;
};

class Candidates {
public:
    static constexpr const char* NAME = "Candidates";
    static constexpr const char* INPUT_NAMES[] = {"x", "table", "scales", "num_candidates", "wants_log_probabilities"};
    static constexpr ElementType INPUT_TYPES[] = {FLOAT, ANY, FLOAT, LONG, LONG};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, LONG, FLOAT};

    // The block looks for its bias in input 5. This operator has no such input, so there is no bias.
    explicit Candidates(const NodeInfo& info) : block_(info, 1, 5) {}

    void compute(const KernelCall& call) const {
        Tensor x = call.input(0), num_candidates = call.input(3), wants_all = call.input(4);
        x.expect_shape({-1, block_.d()});
        num_candidates.expect_shape({1});
        wants_all.expect_shape({1});
        int64_t n = x.shape[0], k = *num_candidates.as<int64_t>();
        block_.check(k);
        TopK to{k, call.output<float>(0, {n, k}), call.output<int64_t>(1, {n, k}),
                call.output<float>(2, {n, block_.vocab_size()})};
        if (*wants_all.as<int64_t>() == 0) to.distributions = nullptr;
        block_.run(x.as<float>(), n, nullptr, to);
    }

private:
    CandidatesBlock block_;
};

}  // namespace

// Memory for scanning the logits of a block of rows, span by span.
// among: the columns that are computed.
// logits: (rows, among.count()). With a span buffer, a group of 16 logits is written only if it may have one of the
// row's k best.
// span_buffer: the logits of one span, (rows, SPAN_STRIDE), if one thread computes all spans and no distributions are
// requested, else nullptr.
// slacks: (rows,), rounding_slack of each row. spans: (rows, spans), the results of each span.
// class_maxima: (rows,), the maxima over the spans scanned so far (candidates.h). Read only with a span buffer.
// top_k: the results of all rows. This block begins with row `first`.
struct LogitScan {
    float *logits, *span_buffer, *slacks;
    LogitSpan* spans;
    ClassMaxima* class_maxima;
    const TopK& top_k;
    int64_t first;
    const OutputColumns& among;

    // Returns the index in `among` of the id that this row may not choose; NO_ID if there is none.
    int64_t excluded(int64_t row) const {
        int64_t id = top_k.excluded_id(first + row);
        return id == NO_ID ? NO_ID : among.index_of(id);
    }
    int64_t num_ranked(int64_t row) const { return top_k.k + (excluded(row) != NO_ID); }
};

int64_t OutputColumns::index_of(int64_t id) const {
    if (!list) return id;
    auto found = std::lower_bound(list->ids.begin(), list->ids.end(), id);
    return found != list->ids.end() && *found == id ? found - list->ids.begin() : NO_ID;
}

EmbeddingBlock::EmbeddingBlock(const NodeInfo& info, int index)
    : table_(table_of(info, index)), scales_(info.constant(index + 1)), position_table_(info.constant(index + 2)) {
    position_table_.expect_shape({-1, table_.shape[1]});
}

void EmbeddingBlock::run(const int32_t* ids, const int32_t* positions, int64_t n, float* x) const {
    int64_t d = this->d();
    auto entry = [&](int64_t at, int64_t id) {
        if (table_.type == FLOAT) return load16(table_.as<float>() + at);
        Floats quantised = floats_of(load16(table_.as<int8_t>() + at));
        return mul16(quantised, all16(scales_.as<float>()[id]));
    };
    for_each_row(n, d / LANES * EMBED_COST / 8, [&](int64_t row) {
        const float* position = position_table_.as<float>() + positions[row] * d;
        int64_t id = ids[row];
        for (int64_t i = 0; i < d; i += LANES) {
            store16(x + row * d + i, add16(entry(id * d + i, id), load16(position + i)));
        }
    });
}

CandidatesBlock::CandidatesBlock(const NodeInfo& info, int index, int bias_index) {
    Tensor table = table_of(info, index);
    const float* bias = nullptr;
    if (info.has_constant(bias_index)) {
        Tensor values = info.constant(bias_index);
        values.expect_shape({table.shape[0]});
        if (values.type != FLOAT) throw InvalidArgument("the output bias is not float");
        bias = values.as<float>();
        largest_bias_ = largest_magnitude(bias, table.shape[0]);
    }
    linear_ = Linear({table.data, table.type == ElementType::int8, true, int(table.shape[1]), int(table.shape[0]),
                      info.constant(index + 1).as<float>(), bias, ActivationRange::symmetric});
    table_ = table.data;
    largest_weight_ = largest_weight(table, info.constant(index + 1));
}

int64_t CandidatesBlock::row_nanoseconds() const {
    return linear_.row_nanoseconds() + scan_nanoseconds(1, vocab_size()) + TOP_K_NS;
}

int64_t CandidatesBlock::listed_nanoseconds(int64_t n, int64_t num_ids) const {
    return linear_.nanoseconds(n) * num_ids / vocab_size() + scan_nanoseconds(n, num_ids);
}

void CandidatesBlock::check(int64_t num_candidates) const {
    int64_t max_candidates = std::min<int64_t>(MAX_CANDIDATES, vocab_size());
    if (num_candidates >= 1 && num_candidates <= max_candidates) return;
    throw InvalidArgument("num_candidates is %lld, which is not in 1..%lld", static_cast<long long>(num_candidates),
                          static_cast<long long>(max_candidates));
}

void CandidatesBlock::prepare(Shortlist& list, int64_t k) const {
    if (int64_t(list.ids.size()) < k)
        throw InvalidArgument("a shortlist has %d ids, fewer than num_candidates, %d", int(list.ids.size()), int(k));
    if (list.is_prepared) return;
    expect_in_range("shortlist", list.ids.data(), int64_t(list.ids.size()), 0, vocab_size());
    list.columns.select(linear_, table_, list.ids.data(), int64_t(list.ids.size()));
    list.is_prepared = true;
}

void CandidatesBlock::run_by_slot(const Shortlists& lists, const int32_t* slots, const float* x, int64_t n,
                                  const int32_t* to_rows, const TopK& to) const {
    // Rows without a shortlist come first. The rows of each slot follow one another.
    int64_t begin = 0;
    while (begin < n && !lists.has(slots[begin])) ++begin;
    if (begin) run(x, begin, to_rows, to);
    std::vector<int64_t> starts;
    for (int64_t row = begin; row < n; ++row) {
        if (row == begin || slots[row] != slots[row - 1]) starts.push_back(row);
    }
    auto run_slot = [&](int64_t index) {
        int64_t first = starts[index], end = index + 1 < int64_t(starts.size()) ? starts[index + 1] : n;
        TopK own = to;
        own.distributions = nullptr;
        if (own.positions) own.positions += first;
        run_among({vocab_size(), &lists[slots[first]]}, x + first * d(), end - first, to_rows + first, own);
    };
    // If there is a single slot, the threads share its columns. If there are several, each thread computes whole slots.
    if (starts.size() == 1) return run_slot(0);
    if (starts.empty()) return;
    int64_t slot_rows = (n - begin) / int64_t(starts.size()), num_ids = int64_t(lists[slots[begin]].ids.size());
    for_each_row(int64_t(starts.size()), listed_nanoseconds(slot_rows, num_ids), [&](int64_t index) {
        OwnRowsScope scope;
        run_slot(index);
    });
}

void CandidatesBlock::run_among(const OutputColumns& among, const float* x, int64_t n, const int32_t* to_rows,
                                const TopK& to) const {
    int64_t num_ids = among.count(), k = to.k;
    bool wants_distributions = to.distributions != nullptr;
    for_each_row_block(linear_, n, row_nanoseconds(), [&](int64_t begin, int64_t count) {
        // If one thread computes all spans, each span's logits overwrite those of the span before, so they stay in the
        // thread's cache.
        bool uses_span_buffer = !wants_distributions && (runs_own_rows || num_threads() == 1);
        size_t num_logits = wants_distributions ? 0 : count * num_ids,
               span_buffer = uses_span_buffer ? count * SPAN_STRIDE : 0;
        Scratch scratch(LinearInput::bytes(linear_, count) + Scratch::padded_bytes<float>(num_logits) +
                        Scratch::padded_bytes<float>(span_buffer) +
                        Scratch::padded_bytes<LogitSpan>(count * num_spans(num_ids)) +
                        Scratch::padded_bytes<ClassMaxima>(count) + Scratch::padded_bytes<float>(count));
        float* logits = wants_distributions ? to.distributions + begin * num_ids : scratch.allocate<float>(num_logits);
        LogitScan scan{logits,
                       uses_span_buffer ? scratch.allocate<float>(span_buffer) : nullptr,
                       scratch.allocate<float>(count),
                       scratch.allocate<LogitSpan>(count * num_spans(num_ids)),
                       scratch.allocate<ClassMaxima>(count),
                       to,
                       begin,
                       among};
        scan_logits(among, x + begin * d(), count, scan, scratch);
        for_each_row(count, TOP_K_NS, [&](int64_t row) {
            int64_t at = to_rows ? to_rows[begin + row] : begin + row;
            select_top_k(scan.spans + row * num_spans(num_ids), logits + row * num_ids, num_ids, k, wants_distributions,
                         scan.excluded(row), to.log_probabilities + at * k, to.ids + at * k);
            for (int64_t i = at * k; among.list && i < (at + 1) * k; ++i) to.ids[i] = among.id(to.ids[i]);
        });
    });
}

void CandidatesBlock::scan_logits(const OutputColumns& among, const float* x, int64_t n, const LogitScan& scan,
                                  Scratch& scratch) const {
    int64_t num_ids = among.count(), stride = scan.span_buffer ? SPAN_STRIDE : num_ids;
    LinearInput prepared(linear_, x, n, scratch);
    prepared.prepare_all();
    std::fill(scan.class_maxima, scan.class_maxima + n, ClassMaxima());
    for (int64_t row = 0; row < n; ++row) {
        scan.slacks[row] =
            rounding_slack(largest_magnitude(x + row * d(), d()) * largest_weight_ * d() + largest_bias_);
    }
    // The logits of ids from `column` on, `stride` floats from row to row.
    auto logits_from = [=](int64_t column) {
        return scan.span_buffer ? scan.span_buffer + column % SPAN_IDS : scan.logits + column;
    };
    auto scan_rows = [&](int64_t begin, int64_t end, int64_t column) {
        int64_t count = std::min(SPAN_IDS, num_ids - column);
        for (int64_t row = begin; row < end; ++row) {
            float* hits_out = scan.logits + row * num_ids + column;
            ClassMaxima span_maxima;
            const float* logits = logits_from(column) + row * stride;
            scan.spans[row * num_spans(num_ids) + column / SPAN_IDS] =
                scan_span(logits, count, scan.num_ranked(row), scan.slacks[row],
                          scan.span_buffer ? scan.class_maxima[row] : span_maxima,
                          scan.span_buffer ? hits_out : nullptr, logits + stride);
        }
    };
    if (among.list) {
        const ListedColumns& columns = among.list->columns;
        auto run_span = [&](int span, Direction) {
            int64_t column = span * SPAN_IDS, count = std::min(SPAN_IDS, num_ids - column);
            columns.multiply(prepared.activations(), n, column, count, logits_from(column), stride);
            scan_rows(0, n, column);
        };
        return parallel_for(int(num_spans(num_ids)), listed_nanoseconds(n, num_ids), run_span, linear_.next());
    }
    auto store = [=](int column, FirstLanes lanes) {
        return
            [=, at = logits_from(column)](int64_t row, Floats product) { store16(at + row * stride, product, lanes); };
    };
    auto scan_chunk = [&](const FinishedChunk& done) { scan_rows(done.begin, done.end, int64_t(done.first) * PANEL); };
    multiply(linear_, prepared.activations(), n, SPAN_PANELS, store, scan_nanoseconds(n, num_ids), scan_chunk);
}

OrtStatus* register_vocabulary(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<Embed>(api, domain);
    if (!status) status = add_operator<Candidates>(api, domain);
    return status;
}

}  // namespace transduce
