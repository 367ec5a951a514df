// The decoder ("Attention Is All You Need", section 3.1) as one operator that takes one or several steps, by greedy
// search or with beams. It returns to ONNX Runtime and Python only after the last step.
#include <algorithm>
#include <numeric>
#include <vector>

#include "beams.h"
#include "block_times.h"
#include "decoder_layer.h"
#include "step_budget.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto LONG = ElementType::int64;
constexpr auto ANY = ElementType::any;

int64_t scalar_input(const KernelCall& call, int index) {
    Tensor value = call.input(index);
    value.expect_shape({1});
    return *value.as<int64_t>();
}

// Returns the index of the bias of the logits, which is the last constant. Some graphs have none. layer_constants: the
// number of constants of a layer.
int output_bias_index(const NodeInfo& info, int layer_constants) {
    int norm = info.integer("is_pre_norm") ? 2 : 0;
    return 14 + norm + int(info.integer("num_layers")) * layer_constants;
}

template <class First>
class DecoderSteps {
public:
    static constexpr const char* NAME = First::OPERATOR;
    static constexpr bool IS_VARIADIC = true;
    static constexpr const char* INPUT_NAMES[] = {"ids",
                                                  "positions",
                                                  "slots",
                                                  "source_lengths",
                                                  "num_steps",
                                                  "num_candidates",
                                                  "wants_log_probabilities",
                                                  First::STATE,
                                                  "cross_cache",
                                                  "table",
                                                  "scales",
                                                  "position_table",
                                                  "output_table",
                                                  "output_scales",
                                                  "weights"};
    static constexpr ElementType INPUT_TYPES[] = {INT, INT, INT,   INT,   LONG, LONG,  LONG, ANY,
                                                  ANY, ANY, FLOAT, FLOAT, ANY,  FLOAT, ANY};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, LONG, FLOAT, FLOAT};

    explicit DecoderSteps(const NodeInfo& info)
        : is_pre_norm_(info.integer("is_pre_norm") != 0),
          end_id_(int32_t(info.integer("end_id"))),
          aligned_layer_(info.integer("aligned_layer")),
          embedding_(info, 9),
          candidates_(info, 12, output_bias_index(info, Layer<First>::NUM_CONSTANTS)) {
        int index = 14;
        if (is_pre_norm_) {
            first_norm_ = norm_of(info, index, embedding_.d());
            index += 2;
        }
        int64_t num_layers = info.integer("num_layers");
        for (int64_t layer = 0; layer < num_layers; ++layer, index += Layer<First>::NUM_CONSTANTS) {
            bool is_aligned = layer == aligned_layer_;
            layers_.emplace_back(info, index, is_aligned ? info.integers("heads") : std::vector<int64_t>());
            expect_width(First::NAME, layer, layers_.back().first.d(), embedding_.d());
            expect_width("cross-attention", layer, layers_.back().cross_attention.weights().d(), embedding_.d());
            expect_width("feed-forward block", layer, layers_.back().feed_forward.d(), embedding_.d());
        }
        if (layers_.empty())
            throw InvalidArgument("num_layers is %lld, and must be at least 1", static_cast<long long>(num_layers));
        // The ids that the output chooses are looked up in the embedding.
        if (candidates_.vocab_size() != embedding_.vocab_size() || candidates_.d() != embedding_.d())
            throw InvalidArgument("output_table is (%d, %d), not (%d, %d) as table", int(candidates_.vocab_size()),
                                  int(candidates_.d()), int(embedding_.vocab_size()), int(embedding_.d()));
        link_products(linears(), true);
    }

    void compute(const KernelCall& call) const {
        DecodeArgs args = DecodeArgs::take();
        CallTensors tensors(*this, call);
        tensors.top_k.first_position = args.first_position;
        tensors.set_shortlists(args.shortlists);
        if (args.num_beams) return run_beams(tensors, args);
        tensors.max_steps = std::min(tensors.num_steps, args.max_steps);
        if (tensors.max_steps < 1)
            throw InvalidArgument("max_steps is %lld, and must be at least 1",
                                  static_cast<long long>(tensors.max_steps));
        StepBudget budget(tensors.max_steps, args);
        run_all(tensors, budget);
        // A call in which all rows are free counts as one step.
        if (args.outcomes) args.outcomes[0] = std::max<int64_t>(1, budget.num_steps());
    }

private:
    // The inputs and outputs of one call, checked.
    struct CallTensors {
        // num_steps: steps that the outputs have room for. max_steps: maximum steps of one `run_all`; 1 with beams,
        // because `run_beams` calls `run_all` for each step.
        int64_t n, num_steps, max_steps, num_positions;
        const int32_t *ids, *positions, *slots, *lengths;
        typename First::State self;
        CachePlanes cross;
        TopK top_k;
        float* alignment;
        // nullptr: all rows choose among the whole vocabulary.
        const Shortlists* shortlists = nullptr;

        CallTensors(const DecoderSteps& decoder, const KernelCall& call)
            : self(call, 7, decoder.layers_.size(), decoder.embedding_.d()),
              cross(call, 8, decoder.layers_.size(), decoder.embedding_.d()) {
            Tensor token_ids = call.input(0);
            token_ids.expect_shape({-1});
            n = token_ids.shape[0];
            ids = token_ids.as<int32_t>();
            num_steps = scalar_input(call, 4);
            int64_t k = scalar_input(call, 5), wants_distributions = scalar_input(call, 6);
            decoder.candidates_.check(k);
            // In a row's first step one more candidate is ranked than is returned, because the end id is left out.
            if (k == MAX_CANDIDATES)
                throw InvalidArgument("num_candidates is %d, more than %d", MAX_CANDIDATES, MAX_CANDIDATES - 1);
            if (num_steps < 1 || (num_steps > 1 && (k > 1 || wants_distributions))) {
                throw InvalidArgument(
                    "num_steps is %lld; it must be 1, or above 1 with num_candidates 1 and wants_log_probabilities 0",
                    static_cast<long long>(num_steps));
            }
            if (self.rows() < n) {
                throw InvalidArgument("%s has %lld rows, fewer than the %lld of ids", First::STATE,
                                      static_cast<long long>(self.rows()), static_cast<long long>(n));
            }
            max_steps = num_steps;
            num_positions = std::min(self.capacity(), decoder.embedding_.num_positions());
            positions = int32_input(call, 1);
            slots = int32_input(call, 2);
            lengths = int32_input(call, 3);
            top_k = {k, call.output<float>(0, {num_steps, n, k}), call.output<int64_t>(1, {num_steps, n, k}),
                     call.output<float>(2, {n, decoder.candidates_.vocab_size()})};
            if (!wants_distributions) top_k.distributions = nullptr;
            alignment = call.output<float>(3, {n, cross.capacity()});
        }

        void set_shortlists(const Shortlists* lists) {
            if (lists && lists->num_slots() < cross.rows())
                throw InvalidArgument("there are shortlists for %lld slots, fewer than cross_cache has",
                                      static_cast<long long>(lists->num_slots()));
            shortlists = lists;
        }
        bool has_shortlist(int32_t row) const { return shortlists && shortlists->has(slots[row]); }

        const int32_t* int32_input(const KernelCall& call, int index) const {
            Tensor values = call.input(index);
            values.expect_shape({n});
            return values.as<int32_t>();
        }
    };

    // Returns the rows whose id is not FREE_ROW_ID, those without a shortlist first. Rows of one slot are neighbours,
    // so that they read its columns together. If distributions are requested, the rows without a shortlist are in
    // ascending order instead, as `spread` requires. Throws InvalidArgument for values out of range.
    std::vector<int32_t> active_rows(const CallTensors& tensors) const {
        std::vector<int32_t> rows;
        for (int32_t row = 0; row < tensors.n; ++row) {
            if (tensors.ids[row] == FREE_ROW_ID) continue;
            expect_in_range("ids", tensors.ids + row, 1, 0, embedding_.vocab_size());
            expect_in_range("positions", tensors.positions + row, 1, 0, tensors.num_positions - tensors.max_steps + 1);
            expect_in_range("slots", tensors.slots + row, 1, 0, tensors.cross.rows());
            expect_in_range("source_lengths", tensors.lengths + row, 1, 1, tensors.cross.capacity() + 1);
            rows.push_back(row);
        }
        auto end = rows.end();
        if (tensors.shortlists)
            end = std::stable_partition(rows.begin(), rows.end(),
                                        [&](int32_t row) { return !tensors.has_shortlist(row); });
        std::vector<int32_t> whole(rows.begin(), end), restricted(end, rows.end());
        if (!tensors.top_k.distributions) whole = by_slot(tensors, whole);
        for (int32_t row : by_slot(tensors, restricted)) whole.push_back(row);
        return whole;
    }

    void prepare_shortlists(const CallTensors& tensors, const std::vector<int32_t>& rows) const {
        for (int32_t row : rows) {
            if (tensors.has_shortlist(row))
                candidates_.prepare((*tensors.shortlists)[tensors.slots[row]], tensors.top_k.k);
        }
    }

    static std::vector<int32_t> by_slot(const CallTensors& tensors, const std::vector<int32_t>& rows) {
        // A counting sort. starts: for each slot, the index in `sorted` of its next row.
        std::vector<int32_t> starts(tensors.cross.rows() + 1), sorted(rows.size());
        for (int32_t row : rows) ++starts[tensors.slots[row] + 1];
        std::partial_sum(starts.begin(), starts.end(), starts.begin());
        for (int32_t row : rows) sorted[starts[tensors.slots[row]]++] = row;
        return sorted;
    }

    // Takes steps one after another and advances the beams after each step.
    void run_beams(CallTensors& tensors, const DecodeArgs& args) const {
        if (tensors.num_steps != 1)
            throw InvalidArgument("num_steps is %lld, and must be 1 with beams",
                                  static_cast<long long>(tensors.num_steps));
        std::vector<Beam> beams;
        for (int64_t i = 0; i < args.num_beams; ++i) {
            beams.emplace_back(args.beams[i]);
            beams.back().check(tensors.n, embedding_.vocab_size(), tensors.num_positions - args.first_position,
                               aligned_layer_ < 0 ? 0 : tensors.cross.capacity());
        }
        std::vector<int32_t> ids(tensors.ids, tensors.ids + tensors.n),
            positions(tensors.positions, tensors.positions + tensors.n);
        tensors.ids = ids.data();
        tensors.positions = positions.data();
        StepCandidates candidates{tensors.top_k.log_probabilities, tensors.top_k.ids, tensors.top_k.k,
                                  tensors.alignment, tensors.cross.capacity()};
        std::vector<RowCopy> copies;
        int64_t step = 0, *outcomes = args.outcomes + 1;
        std::fill(outcomes, outcomes + beams.size(), int64_t(BeamOutcome::continues));
        StepBudget budget(args.max_steps, args);
        for (bool advanced = true; advanced && budget.begin_step(step); ++step) {
            write_inputs(beams, outcomes, args.first_position, ids.data(), positions.data());
            StepBudget single_step(1);
            run_all(tensors, single_step);
            copies.clear();
            advanced = advance_beams(beams, candidates, outcomes, copies);
            tensors.self.copy(copies, args.first_position);
            if (std::count(outcomes, outcomes + beams.size(), int64_t(BeamOutcome::done))) budget.record_end(step);
        }
        args.outcomes[0] = step;
    }

    void run_all(const CallTensors& tensors, StepBudget& budget) const {
        std::vector<int32_t> active = active_rows(tensors);
        if (tensors.shortlists) prepare_shortlists(tensors, active);
        int64_t d = embedding_.d(), n = int64_t(active.size());
        int64_t cost = candidates_.row_nanoseconds();
        for (const Layer<First>& layer : layers_) cost += block_nanoseconds(layer);
        // If there are enough rows for every thread, each thread takes its own rows through all layers and all steps.
        const Linear& first_product = layers_.front().first.in();
        if (num_row_blocks(first_product, n) > num_threads()) budget.limit_for_serial_runs();
        for_each_row_block(first_product, n, cost * tensors.max_steps, [&](int64_t begin, int64_t count) {
            Scratch scratch(2 * Scratch::padded_bytes<float>(count * d) + 5 * Scratch::padded_bytes<int32_t>(count),
                            ScratchLevel::step);
            run_steps(tensors, budget, active, begin, count, scratch);
        });
        if (!tensors.top_k.distributions) return;
        active.erase(
            std::remove_if(active.begin(), active.end(), [&](int32_t row) { return tensors.has_shortlist(row); }),
            active.end());
        spread(active, tensors.top_k.distributions, candidates_.vocab_size());
    }

    // Moves the values (active.size(), width) of the i-th active row from row i to the row's own index.
    static void spread(const std::vector<int32_t>& active, float* values, int64_t width) {
        for (int64_t i = int64_t(active.size()) - 1; i >= 0; --i) {
            if (active[i] != i) std::copy_n(values + i * width, width, values + active[i] * width);
        }
    }

    // All products of a step, in the order of their use.
    std::vector<Linear*> linears() {
        std::vector<Linear*> all;
        auto append = [&](std::vector<Linear*> linears) { all.insert(all.end(), linears.begin(), linears.end()); };
        for (Layer<First>& layer : layers_) {
            append(layer.first.linears());
            append(layer.cross_attention.linears());
            append(layer.feed_forward.linears());
        }
        append(candidates_.linears());
        return all;
    }

    static int64_t block_nanoseconds(const Layer<First>& layer) {
        return layer.first.row_nanoseconds() + layer.cross_attention.weights().row_nanoseconds() +
               layer.feed_forward.row_nanoseconds();
    }

    // Takes rows active[begin, begin + count) through all steps. A row that has produced the end id takes no further
    // step.
    void run_steps(const CallTensors& tensors, StepBudget& budget, const std::vector<int32_t>& active, int64_t begin,
                   int64_t count, Scratch& scratch) const {
        int64_t d = embedding_.d(), n = count;
        float *total = scratch.allocate<float>(n * d), *normalised = scratch.allocate<float>(n * d);
        auto copy = [&](const int32_t* values) {
            auto copied = scratch.allocate<int32_t>(n);
            for (int64_t i = 0; i < n; ++i) copied[i] = values[active[begin + i]];
            return copied;
        };
        int32_t *ids = copy(tensors.ids), *positions = copy(tensors.positions);
        int32_t *slots = copy(tensors.slots), *lengths = copy(tensors.lengths), *rows = scratch.allocate<int32_t>(n);
        std::copy_n(active.data() + begin, n, rows);
        for (int64_t step = 0; n > 0 && budget.begin_step(step); ++step) {
            BlockTimer times(Stack::decoder);
            embedding_.run(ids, positions, n, is_pre_norm_ ? total : normalised);
            // Pre-norm: each block adds to `total` and reads LayerNorm(total). Post-norm: residual and input of a block
            // are both the LayerNorm of the block before; of the first block, the embedding.
            if (is_pre_norm_) normalize_rows(total, n, first_norm_, normalised);
            times.add(BlockKind::embedding);
            BlockInput input(is_pre_norm_ ? total : normalised, normalised, n);
            BlockOutput output{total, normalised};
            for (size_t index = 0; index < layers_.size(); ++index) {
                const Layer<First>& layer = layers_[index];
                layer.first.run(input, tensors.self.layer(index), rows, positions, output);
                times.add(BlockKind::self_attention);
                bool is_aligned = int64_t(index) == aligned_layer_ && tensors.num_steps == 1;
                AlignmentOutput alignment{is_aligned ? tensors.alignment : nullptr, rows};
                layer.cross_attention.run(input, tensors.cross.layer(index), {slots, lengths}, alignment, output);
                times.add(BlockKind::cross_attention);
                layer.feed_forward.run(input, output);
                times.add(BlockKind::feed_forward);
            }
            TopK to = tensors.top_k;
            to.log_probabilities += step * tensors.n * to.k;
            to.ids += step * tensors.n * to.k;
            if (to.distributions) to.distributions += begin * candidates_.vocab_size();
            to.positions = positions;
            to.end_id = end_id_;
            if (tensors.shortlists) candidates_.run_by_slot(*tensors.shortlists, slots, normalised, n, rows, to);
            else candidates_.run(normalised, n, rows, to);
            times.add(BlockKind::candidates);
            if (step + 1 == tensors.max_steps) return;
            int64_t num_left = 0;
            for (int64_t i = 0; i < n; ++i) {
                int32_t row = rows[i], id = int32_t(to.ids[row]);
                if (id == end_id_) {
                    fill_after_end(tensors, step + 1, row);
                    budget.record_end(step);
                    continue;
                }
                rows[num_left] = row;
                ids[num_left] = id;
                positions[num_left] = positions[i] + 1;
                slots[num_left] = slots[i];
                lengths[num_left++] = lengths[i];
            }
            n = num_left;
        }
    }

    // Fills the results of a row that has ended, from `step` on: the end id with log-probability 0.
    void fill_after_end(const CallTensors& tensors, int64_t step, int64_t row) const {
        for (; step < tensors.max_steps; ++step) {
            tensors.top_k.log_probabilities[step * tensors.n + row] = 0.0f;
            tensors.top_k.ids[step * tensors.n + row] = end_id_;
        }
    }

    bool is_pre_norm_;
    int32_t end_id_;
    int64_t aligned_layer_;
    EmbeddingBlock embedding_;
    CandidatesBlock candidates_;
    Norm first_norm_;
    std::vector<Layer<First>> layers_;
};

}  // namespace

OrtStatus* register_decoder(const OrtApi* api, OrtDomain* domain) {
    OrtStatus* status = add_operator<DecoderSteps<SelfAttention>>(api, domain);
    if (!status) status = add_operator<DecoderSteps<Ssru>>(api, domain);
    return status;
}

}  // namespace transduce

// Writes block_nanoseconds_spent since the process began: (NUM_STACKS, NUM_BLOCK_KINDS).
extern "C" __attribute__((visibility("default"))) void transduce_block_times(int64_t* to) {
    for (const auto& stack : transduce::block_nanoseconds_spent) {
        for (const auto& nanoseconds : stack) *to++ = nanoseconds;
    }
}
