// A whole decoder step as one operator, and several steps of rows that follow their best candidate: "Attention Is All
// You Need", section 3.1, with greedy search or with the beams it was given. Nothing between two blocks, and nothing between
// two steps, leaves it.
#include <algorithm>
#include <numeric>
#include <vector>

#include "beams.h"
#include "block_times.h"
#include "course.h"
#include "step_blocks.h"

namespace transduce {
namespace {

constexpr auto FLOAT = ElementType::float32;
constexpr auto INT = ElementType::int32;
constexpr auto LONG = ElementType::int64;
constexpr auto ANY = ElementType::any;

int64_t one_number(const Call& call, int index) {
    Tensor value = call.input(index);
    value.expect({1});
    return *value.as<int64_t>();
}

// Keys and values of all layers (2 L, rows, capacity, d): of layer 0, keys first, then of layer 1...
class Planes {
public:
    Planes(const Call& call, int index, int64_t num_layers, int64_t d) : all_(call.input(index)), d_(d) {
        all_.expect({2 * num_layers, -1, -1, d});
        if (all_.type != FLOAT && all_.type != ElementType::float16) {
            throw Refused("%s is neither float nor float16", all_.name);
        }
    }
    int64_t rows() const { return all_.shape[1]; }
    int64_t capacity() const { return all_.shape[2]; }
    LayerCache layer(int64_t index) const {
        bool is_half = all_.type == ElementType::float16;
        int64_t bytes = rows() * capacity() * d_ * (is_half ? 2 : 4);
        char* keys = all_.as<char>() + 2 * index * bytes;
        return {keys, keys + bytes, is_half, rows(), capacity()};
    }
    // copies: in columns; they become bytes.
    void copy(std::vector<RowCopy>& copies) const {
        int64_t column = d_ * (all_.type == ElementType::float16 ? 2 : 4), row = capacity() * column;
        for (RowCopy& copy : copies) {
            copy.first *= column;
            copy.end *= column;
        }
        copy_rows(all_.as<char>(), all_.shape[0], rows() * row, row, copies);
    }

private:
    Tensor all_;
    int64_t d_;
};

struct Layer {
    SelfAttentionBlock self_attention;
    CrossAttentionBlock cross_attention;
    FeedForwardBlock feed_forward;

    Layer(const Info& info, int index, std::vector<int64_t> aligned)
        : self_attention(info, index),
          cross_attention(info, index + BLOCK_CONSTANTS, std::move(aligned)),
          feed_forward(info, index + 2 * BLOCK_CONSTANTS) {}
};

class DecoderSteps {
public:
    static constexpr const char* NAME = "DecoderSteps";
    static constexpr bool TAKES_MORE = true;
    static constexpr const char* INPUT_NAMES[] = {
        "ids",        "positions",   "slots", "source_lengths", "num_steps",      "num_candidates", "wants_log_probabilities",
        "self_cache", "cross_cache", "table", "scales",         "position_table", "output_table",   "output_scales",
        "weights"};
    static constexpr ElementType INPUT_TYPES[] = {INT, INT, INT, INT,   LONG,  LONG, LONG, ANY,
                                                  ANY, ANY, FLOAT, FLOAT, ANY, FLOAT, ANY};
    static constexpr ElementType OUTPUT_TYPES[] = {FLOAT, LONG, FLOAT, FLOAT};

    explicit DecoderSteps(const Info& info)
        : is_pre_norm_(info.integer("is_pre_norm") != 0),
          end_id_(int32_t(info.integer("end_id"))),
          aligned_layer_(info.integer("aligned_layer")),
          embedding_(info, 9),
          candidates_(info, 12) {
        int index = 14;
        if (is_pre_norm_) {
            first_norm_ = norm_of(info, index, embedding_.d());
            index += 2;
        }
        int64_t num_layers = info.integer("num_layers");
        for (int64_t layer = 0; layer < num_layers; ++layer, index += 3 * BLOCK_CONSTANTS) {
            bool is_aligned = layer == aligned_layer_;
            layers_.emplace_back(info, index, is_aligned ? info.integers("heads") : std::vector<int64_t>());
            if (layers_.back().self_attention.parts().d() != embedding_.d()) {
                throw Refused("layer %d is not %d wide", int(layer), int(embedding_.d()));
            }
        }
        if (layers_.empty()) throw Refused("num_layers is %lld", static_cast<long long>(num_layers));
        follow_one_another(linears(), true);
    }

    void compute(const Call& call) const {
        Given given = Given::take();
        Steps steps(*this, call);
        if (given.count) return follow_beams(steps, given);
        steps.most = std::min(steps.num_steps, given.num_steps);
        if (steps.most < 1) throw Refused("%lld steps at most were given", static_cast<long long>(steps.most));
        Course course(steps.most, given);
        follow_all(steps, course);
        // A step of rows that nobody holds is one.
        if (given.outcomes) given.outcomes[0] = std::max<int64_t>(1, course.num_taken());
    }

private:
    // What one call is about, checked.
    struct Steps {
        // most: steps that are taken at most, of num_steps for whose results there is room.
        int64_t n, num_steps, most, num_positions;
        const int32_t *ids, *positions, *slots, *lengths;
        Planes self, cross;
        Chosen chosen;
        float* alignment;

        Steps(const DecoderSteps& own, const Call& call)
            : self(call, 7, own.layers_.size(), own.embedding_.d()),
              cross(call, 8, own.layers_.size(), own.embedding_.d()) {
            Tensor given = call.input(0);
            given.expect({-1});
            n = given.shape[0];
            ids = given.as<int32_t>();
            num_steps = one_number(call, 4);
            int64_t k = one_number(call, 5), is_wanted = one_number(call, 6);
            own.candidates_.check(k);
            // In a row's first step one more is ranked than is offered.
            if (k == MAX_CANDIDATES) throw Refused("num_candidates is %d, and at most one less may be", MAX_CANDIDATES);
            if (num_steps < 1 || (num_steps > 1 && (k > 1 || is_wanted))) {
                throw Refused("num_steps is %lld: at least 1, and more only with one candidate and no distributions",
                              static_cast<long long>(num_steps));
            }
            if (self.rows() < n) {
                throw Refused("self_cache has %lld rows, fewer than the %lld of ids",
                              static_cast<long long>(self.rows()), static_cast<long long>(n));
            }
            most = num_steps;
            num_positions = std::min(self.capacity(), own.embedding_.num_positions());
            positions = numbers(call, 1);
            slots = numbers(call, 2);
            lengths = numbers(call, 3);
            chosen = {k, call.output<float>(0, {num_steps, n, k}), call.output<int64_t>(1, {num_steps, n, k}),
                      call.output<float>(2, {n, own.candidates_.vocab_size()})};
            if (!is_wanted) chosen.distributions = nullptr;
            alignment = call.output<float>(3, {n, cross.capacity()});
        }

        const int32_t* numbers(const Call& call, int index) const {
            Tensor given = call.input(index);
            given.expect({n});
            return given.as<int32_t>();
        }
    };

    // The rows that a hypothesis holds, those of one slot beside each other: they read its columns together. In the
    // order of rows where distributions are wanted, which are spread in their place. Throws Refused where one of them
    // says what cannot be.
    std::vector<int32_t> held_rows(const Steps& steps) const {
        std::vector<int32_t> rows;
        for (int32_t row = 0; row < steps.n; ++row) {
            if (steps.ids[row] == UNHELD) continue;
            expect_in_range("ids", steps.ids + row, 1, 0, embedding_.vocab_size());
            expect_in_range("positions", steps.positions + row, 1, 0, steps.num_positions - steps.most + 1);
            expect_in_range("slots", steps.slots + row, 1, 0, steps.cross.rows());
            expect_in_range("source_lengths", steps.lengths + row, 1, 1, steps.cross.capacity() + 1);
            rows.push_back(row);
        }
        return steps.chosen.distributions ? rows : by_slot(steps, rows);
    }

    static std::vector<int32_t> by_slot(const Steps& steps, const std::vector<int32_t>& rows) {
        std::vector<int32_t> places(steps.cross.rows() + 1), sorted(rows.size());
        for (int32_t row : rows) ++places[steps.slots[row] + 1];
        std::partial_sum(places.begin(), places.end(), places.begin());
        for (int32_t row : rows) sorted[places[steps.slots[row]]++] = row;
        return sorted;
    }

    // One step after another, with the beams' own doing between them.
    void follow_beams(Steps& steps, const Given& given) const {
        if (steps.num_steps != 1) throw Refused("num_steps is %lld, with beams", static_cast<long long>(steps.num_steps));
        std::vector<Beam> beams;
        for (int64_t i = 0; i < given.count; ++i) {
            beams.emplace_back(given.blocks[i]);
            beams.back().check(steps.n, embedding_.vocab_size(), steps.num_positions,
                               aligned_layer_ < 0 ? 0 : steps.cross.capacity());
        }
        std::vector<int32_t> ids(steps.ids, steps.ids + steps.n), positions(steps.positions, steps.positions + steps.n);
        steps.ids = ids.data();
        steps.positions = positions.data();
        Offered offered{steps.chosen.log_probabilities, steps.chosen.ids, steps.chosen.k, steps.alignment,
                        steps.cross.capacity()};
        std::vector<RowCopy> copies;
        int64_t step = 0, *outcomes = given.outcomes + 1;
        std::fill(outcomes, outcomes + beams.size(), int64_t(Outcome::goes_on));
        Course course(given.num_steps, given);
        for (bool is_on = true; is_on && course.takes(step); ++step) {
            write_inputs(beams, outcomes, ids.data(), positions.data());
            Course one(1);
            follow_all(steps, one);
            copies.clear();
            is_on = advance_beams(beams, offered, outcomes, copies);
            steps.self.copy(copies);
            if (std::count(outcomes, outcomes + beams.size(), int64_t(Outcome::is_done))) course.note_end(step);
        }
        given.outcomes[0] = step;
    }

    void follow_all(const Steps& steps, Course& course) const {
        std::vector<int32_t> held = held_rows(steps);
        int64_t d = embedding_.d(), n = int64_t(held.size());
        int64_t cost = candidates_.row_nanoseconds();
        for (const Layer& layer : layers_) cost += block_nanoseconds(layer);
        // Where there are rows for every thread, each takes its own through all layers and all steps.
        const Linear& widest = layers_.front().self_attention.parts().in;
        if (num_blocks(widest, n) > num_threads()) course.take_in_parts();
        each_block(widest, n, cost * steps.most, [&](int64_t begin, int64_t count) {
            Scratch scratch(2 * Scratch::piece<float>(count * d) + 5 * Scratch::piece<int32_t>(count), Extent::step);
            follow(steps, course, held, begin, count, scratch);
        });
        if (steps.chosen.distributions) spread(held, steps.chosen.distributions, candidates_.vocab_size());
    }

    // What was written for each held row, one after another: to where the row is.
    static void spread(const std::vector<int32_t>& held, float* values, int64_t width) {
        for (int64_t i = int64_t(held.size()) - 1; i >= 0; --i) {
            if (held[i] != i) std::copy_n(values + i * width, width, values + held[i] * width);
        }
    }

    // Of a step, in the order of their use.
    std::vector<Linear*> linears() {
        std::vector<Linear*> all;
        auto append = [&](std::vector<Linear*> linears) { all.insert(all.end(), linears.begin(), linears.end()); };
        for (Layer& layer : layers_) {
            append(layer.self_attention.linears());
            append(layer.cross_attention.linears());
            append(layer.feed_forward.linears());
        }
        append(candidates_.linears());
        return all;
    }

    static int64_t block_nanoseconds(const Layer& layer) {
        int64_t cost = layer.feed_forward.row_nanoseconds();
        for (const Parts* parts : {&layer.self_attention.parts(), &layer.cross_attention.parts()}) {
            cost += parts->in.row_nanoseconds() + parts->out.row_nanoseconds();
        }
        return cost;
    }

    // All steps of held[begin, begin + count). Who has said the end token goes no further.
    void follow(const Steps& steps, Course& course, const std::vector<int32_t>& held, int64_t begin, int64_t count,
                Scratch& scratch) const {
        int64_t d = embedding_.d(), n = count;
        float *total = scratch.take<float>(n * d), *normalised = scratch.take<float>(n * d);
        auto copy = [&](const int32_t* values) {
            auto own = scratch.take<int32_t>(n);
            for (int64_t i = 0; i < n; ++i) own[i] = values[held[begin + i]];
            return own;
        };
        int32_t *ids = copy(steps.ids), *positions = copy(steps.positions);
        int32_t *slots = copy(steps.slots), *lengths = copy(steps.lengths), *rows = scratch.take<int32_t>(n);
        std::copy_n(held.data() + begin, n, rows);
        for (int64_t step = 0; n > 0 && course.takes(step); ++step) {
            BlockTimes times(Stack::decoder);
            embedding_.run(ids, positions, n, is_pre_norm_ ? total : normalised);
            // Pre-norm: blocks add to `total` and read its norm. Post-norm: both are the norm.
            if (is_pre_norm_) normalize_rows(total, n, first_norm_, normalised);
            times.add(BlockKind::embedding);
            Flow flow(is_pre_norm_ ? total : normalised, normalised, n);
            Made made{total, normalised};
            for (size_t index = 0; index < layers_.size(); ++index) {
                const Layer& layer = layers_[index];
                layer.self_attention.run(flow, steps.self.layer(index), rows, positions, made);
                times.add(BlockKind::self_attention);
                bool is_aligned = int64_t(index) == aligned_layer_ && steps.num_steps == 1;
                AlignedWeights weights{is_aligned ? steps.alignment : nullptr, rows};
                layer.cross_attention.run(flow, steps.cross.layer(index), {slots, lengths}, weights, made);
                times.add(BlockKind::cross_attention);
                layer.feed_forward.run(flow, made);
                times.add(BlockKind::feed_forward);
            }
            Chosen to = steps.chosen;
            to.log_probabilities += step * steps.n * to.k;
            to.ids += step * steps.n * to.k;
            if (to.distributions) to.distributions += begin * candidates_.vocab_size();
            to.positions = positions;
            to.end_id = end_id_;
            candidates_.run(normalised, n, rows, to);
            times.add(BlockKind::candidates);
            if (step + 1 == steps.most) return;
            int64_t left = 0;
            for (int64_t i = 0; i < n; ++i) {
                int32_t row = rows[i], id = int32_t(to.ids[row]);
                if (id == end_id_) {
                    fill_behind_end(steps, step + 1, row);
                    course.note_end(step);
                    continue;
                }
                rows[left] = row;
                ids[left] = id;
                positions[left] = positions[i] + 1;
                slots[left] = slots[i];
                lengths[left++] = lengths[i];
            }
            n = left;
        }
    }

    // A row that has ended says nothing but the end from `step` on, at no cost.
    void fill_behind_end(const Steps& steps, int64_t step, int64_t row) const {
        for (; step < steps.most; ++step) {
            steps.chosen.log_probabilities[step * steps.n + row] = 0.0f;
            steps.chosen.ids[step * steps.n + row] = end_id_;
        }
    }

    bool is_pre_norm_;
    int32_t end_id_;
    int64_t aligned_layer_;
    EmbeddingBlock embedding_;
    CandidatesBlock candidates_;
    Norm first_norm_;
    std::vector<Layer> layers_;
};

}  // namespace

OrtStatus* register_decoder(const OrtApi* api, OrtDomain* domain) { return add_operator<DecoderSteps>(api, domain); }

}  // namespace transduce

// Nanoseconds since the process began, (NUM_STACKS, NUM_BLOCK_KINDS), all threads together.
extern "C" __attribute__((visibility("default"))) void transduce_block_times(int64_t* to) {
    for (const auto& stack : transduce::block_nanoseconds_spent) {
        for (const auto& nanoseconds : stack) *to++ = nanoseconds;
    }
}
