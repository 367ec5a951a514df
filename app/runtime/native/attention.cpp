#include "attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hints.h"

namespace transduce {
namespace {

// Columns whose dot products are computed together, and whose values are added together. All heads of these columns
// come before the next columns, so that a cache is read in the order of its bytes.
constexpr int COLUMNS_AT_ONCE = 4;
// Vectors of sums that the registers hold, beside the numbers that are multiplied.
constexpr int SUMS_AT_ONCE = NUM_VECTORS / 2;
// Distance in bytes between the columns in use and those being prefetched. benchmarks/NOTES.md has the measurements.
constexpr size_t PREFETCH_BYTES = 4096;
constexpr size_t LINE = 64;

// Prefetches columns line by line, PREFETCH_BYTES ahead of their use: the keys, the values, then the next call's keys.
// The hardware prefetcher follows this order. It cannot follow the order of use, which is head by head.
class ColumnPrefetcher {
public:
    // num_heads, head_dim: the part of each column that is read.
    template <class Element>
    ColumnPrefetcher(const Columns<Element>& columns, int num_heads, int head_dim)
        : lines_(int(num_heads * head_dim * sizeof(Element) / LINE)),
          gap_(columns.stride * sizeof(Element) - lines_ * LINE),
          count_(columns.count),
          next_(reinterpret_cast<const char*>(columns.keys)),
          following_{reinterpret_cast<const char*>(columns.values), reinterpret_cast<const char*>(columns.next)},
          lines_left_(lines_),
          columns_left_(count_) {
        // Skip the first PREFETCH_BYTES: a prefetch would come too late.
        for (int passed = 0; passed < int(PREFETCH_BYTES / LINE) && next_; passed += lines_) {
            next_ += lines_ * LINE;
            end_column();
        }
    }
    void prefetch(int lines) {
        while (lines > 0 && next_) {
            int some = lines < lines_left_ ? lines : lines_left_;
            for (int i = 0; i < some; ++i) prefetch_l1(next_ + i * LINE);
            next_ += some * LINE;
            lines -= some;
            lines_left_ -= some;
            if (lines_left_ == 0) end_column();
        }
    }

private:
    void end_column() {
        next_ += gap_;
        lines_left_ = lines_;
        if (--columns_left_) return;
        next_ = std::exchange(following_[0], std::exchange(following_[1], nullptr));
        columns_left_ = count_;
    }

    int lines_;
    size_t gap_;
    int64_t count_;
    const char* next_;
    const char* following_[2];
    int lines_left_;
    int64_t columns_left_;
};

// Computes scores[c] = q . keys[c] of one head of Q queries for columns [begin, begin + COLUMNS_AT_ONCE); past the end
// the last column is repeated. V: vectors of a head. The order of a query's additions does not depend on Q.
template <int V, int Q, class Element>
[[gnu::always_inline]]
inline void score(const float* queries, int64_t query_stride, const Element* keys, int64_t stride, int64_t begin,
                  int64_t end, float* scores, int64_t score_stride) {
    const Element* key[COLUMNS_AT_ONCE];
#pragma GCC unroll 4
    for (int i = 0; i < COLUMNS_AT_ONCE; ++i) key[i] = keys + (begin + i < end ? begin + i : end - 1) * stride;
    Floats sums[Q][COLUMNS_AT_ONCE];
    // All products together if the registers hold their sums, else those of two queries and two columns.
    constexpr bool FITS = Q * COLUMNS_AT_ONCE <= SUMS_AT_ONCE;
    constexpr int QUERIES = FITS ? Q : 2, COLUMNS = FITS ? COLUMNS_AT_ONCE : 2;
#pragma GCC unroll 4
    for (int block = 0; block < (Q + QUERIES - 1) / QUERIES * (COLUMNS_AT_ONCE / COLUMNS); ++block) {
        const int first = block / (COLUMNS_AT_ONCE / COLUMNS) * QUERIES, last = std::min(first + QUERIES, Q);
        const int column = block % (COLUMNS_AT_ONCE / COLUMNS) * COLUMNS;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            Floats part[COLUMNS];
#pragma GCC unroll 4
            for (int i = 0; i < COLUMNS; ++i) part[i] = load16(key[column + i] + v * LANES);
#pragma GCC unroll 4
            for (int q = first; q < last; ++q) {
                Floats query = load16(queries + q * query_stride + v * LANES);
#pragma GCC unroll 4
                for (int i = 0; i < COLUMNS; ++i) {
                    Floats& sum = sums[q][column + i];
                    sum = v ? fma16(query, part[i], sum) : mul16(query, part[i]);
                }
            }
        }
        // Without this line the compiler keeps numbers that several blocks read, and has too few registers for them.
        if constexpr (!FITS) asm volatile("" : : : "memory");
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
        store_sums16(scores + q * score_stride + begin, sums[q][0], sums[q][1], sums[q][2], sums[q][3]);
    }
}

// Replaces each of `count` scores by e^(score - max), and the rest of the last vector by 0. Returns the sum.
[[gnu::always_inline]]
inline float exponentiate(float* scores, int64_t count) {
    const Floats lowest = all16(-__builtin_inff());
    Floats largest = lowest;
    for (int64_t c = 0; c < count; c += LANES) {
        largest = max16(largest, load16(scores + c, first_lanes(count - c), lowest));
    }
    Floats bound = all16(largest16(largest)), sum = zero16();
    for (int64_t c = 0; c < count; c += LANES) {
        FirstLanes lanes = first_lanes(count - c);
        Floats e = keep16(lanes, exp16(sub16(load16(scores + c), bound)));
        store16(scores + c, e);
        sum = add16(sum, e);
    }
    return sum16(sum);
}

// Computes to += weights[c] * values[c] of W vectors of one head of Q queries for columns [begin, end). If begin is 0,
// the sums replace the numbers in `to`.
template <int W, int Q, class Element>
[[gnu::always_inline]]
inline void add_values(const Element* values, int64_t stride, const float* weights, int64_t weight_stride,
                       int64_t begin, int64_t end, float* to, int64_t to_stride) {
    Floats sums[Q][W];
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 8
        for (int v = 0; v < W; ++v) {
            sums[q][v] = begin ? load16(to + q * to_stride + v * LANES) : zero16();
        }
    }
    for (int64_t column = begin; column < end; ++column) {
        Floats value[W];
#pragma GCC unroll 8
        for (int v = 0; v < W; ++v) value[v] = load16(values + column * stride + v * LANES);
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
            Floats weight = all16(weights[q * weight_stride + column]);
#pragma GCC unroll 8
            for (int v = 0; v < W; ++v) sums[q][v] = fma16(weight, value[v], sums[q][v]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 8
        for (int v = 0; v < W; ++v) store16(to + q * to_stride + v * LANES, sums[q][v]);
    }
}

// Multiplies V vectors by `factor`.
template <int V>
[[gnu::always_inline]]
inline void scale(float* values, float factor) {
    Floats all = all16(factor);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store16(values + v * LANES, mul16(load16(values + v * LANES), all));
}

// Returns how many of a head's V vectors are summed at once for Q queries.
constexpr int vectors_at_once(int V, int Q) { return V * Q > SUMS_AT_ONCE ? SUMS_AT_ONCE / Q : V; }

// `attend` of Q queries with heads of V vectors. The order of a query's additions does not depend on Q.
template <int V, int Q, class Element>
void attend_vectors(const Queries& queries, const Columns<Element>& columns, const ScoreBuffer& scores, float* to,
                    int64_t to_stride) {
    constexpr int dim = V * LANES, lines = COLUMNS_AT_ONCE * dim * int(sizeof(Element)) / int(LINE);
    constexpr int max_vectors = vectors_at_once(V, Q), rest = V % max_vectors;
    int64_t count = columns.count, stride = columns.stride;
    int num_heads = queries.num_heads;
    ColumnPrefetcher prefetcher(columns, num_heads, dim);
    for (int64_t begin = 0; begin < count; begin += COLUMNS_AT_ONCE) {
        for (int head = 0; head < num_heads; ++head) {
            prefetcher.prefetch(lines);
            score<V, Q>(queries.values + head * dim, queries.query_stride, columns.keys + head * dim, stride, begin,
                        count, scores.values + head * scores.head_stride, scores.query_stride);
        }
    }
    for (int q = 0; q < Q; ++q) {
        float *query_scores = scores.values + q * scores.query_stride, *sums = scores.sums(q, num_heads);
        for (int head = 0; head < num_heads; ++head) {
            sums[head] = exponentiate(query_scores + head * scores.head_stride, count);
        }
    }
    for (int64_t begin = 0; begin < count; begin += COLUMNS_AT_ONCE) {
        int64_t end = begin + COLUMNS_AT_ONCE < count ? begin + COLUMNS_AT_ONCE : count;
        for (int head = 0; head < num_heads; ++head) {
            prefetcher.prefetch(lines);
            const float* head_scores = scores.values + head * scores.head_stride;
            int from = head * dim, last = from + dim;
            for (; from + max_vectors * LANES <= last; from += max_vectors * LANES) {
                add_values<max_vectors, Q>(columns.values + from, stride, head_scores, scores.query_stride, begin, end,
                                           to + from, to_stride);
            }
            if constexpr (rest > 0) {
                add_values<rest, Q>(columns.values + from, stride, head_scores, scores.query_stride, begin, end,
                                    to + from, to_stride);
            }
        }
    }
    for (int q = 0; q < Q; ++q) {
        for (int head = 0; head < num_heads; ++head) {
            scale<V>(to + q * to_stride + head * dim, 1.0f / scores.sums(q, num_heads)[head]);
        }
    }
}

// `attend_sentence` of Q queries with heads of V vectors. The order of a query's additions does not depend on Q.
template <int V, int Q>
void attend_queries(const SentenceHead& head, int64_t first, float* scores, int64_t score_stride, float* to,
                    int64_t to_stride) {
    constexpr int dim = V * LANES, max_vectors = vectors_at_once(V, Q), rest = V % max_vectors;
    int64_t count = head.count;
    const float* queries = head.queries + first * dim;
    float* outputs = to + first * to_stride;
    for (int64_t begin = 0; begin < count; begin += COLUMNS_AT_ONCE) {
        score<V, Q>(queries, dim, head.keys, dim, begin, count, scores, score_stride);
    }
    float factors[Q];
    for (int q = 0; q < Q; ++q) factors[q] = 1.0f / exponentiate(scores + q * score_stride, count);
    int from = 0;
    for (; from + max_vectors * LANES <= dim; from += max_vectors * LANES) {
        add_values<max_vectors, Q>(head.values + from, dim, scores, score_stride, 0, count, outputs + from, to_stride);
    }
    if constexpr (rest > 0) {
        add_values<rest, Q>(head.values + from, dim, scores, score_stride, 0, count, outputs + from, to_stride);
    }
    for (int q = 0; q < Q; ++q) scale<V>(outputs + q * to_stride, factors[q]);
}

template <int V>
void attend_head(const SentenceHead& head, float* scores, int64_t score_stride, float* to, int64_t to_stride) {
    using Attend = void (*)(const SentenceHead&, int64_t, float*, int64_t, float*, int64_t);
    static constexpr Attend BY_QUERIES[] = {attend_queries<V, 1>, attend_queries<V, 2>, attend_queries<V, 3>,
                                            attend_queries<V, 4>};
    for (int64_t first = 0; first < head.num_queries; first += MAX_QUERIES) {
        int64_t num_left = head.num_queries - first;
        int together = num_left < MAX_QUERIES ? int(num_left) : MAX_QUERIES;
        BY_QUERIES[together - 1](head, first, scores, score_stride, to, to_stride);
    }
}

template <class Element>
using Attend = void (*)(const Queries&, const Columns<Element>&, const ScoreBuffer&, float*, int64_t);

// attend_vectors by the number of vectors of a head, then by the number of queries.
template <class Element, int... Index>
constexpr std::array<Attend<Element>, sizeof...(Index)> each_attend(std::integer_sequence<int, Index...>) {
    return {attend_vectors<Index / MAX_QUERIES + 1, Index % MAX_QUERIES + 1, Element>...};
}

}  // namespace

template <class Element>
void attend(const Queries& queries, const Columns<Element>& columns, const ScoreBuffer& scores, float* to,
            int64_t to_stride) {
    constexpr int NUM_VARIANTS = MAX_HEAD_DIM / LANES * MAX_QUERIES;
    static constexpr auto ATTENDS = each_attend<Element>(std::make_integer_sequence<int, NUM_VARIANTS>());
    int index = (queries.head_dim / LANES - 1) * MAX_QUERIES + queries.count - 1;
    ATTENDS[index](queries, columns, scores, to, to_stride);
}

template void attend(const Queries&, const Columns<float>&, const ScoreBuffer&, float*, int64_t);
template void attend(const Queries&, const Columns<Half>&, const ScoreBuffer&, float*, int64_t);

void attend_sentence(const SentenceHead& head, float* scores, int64_t score_stride, float* to, int64_t to_stride) {
    using Attend = void (*)(const SentenceHead&, float*, int64_t, float*, int64_t);
    static constexpr Attend BY_VECTORS[] = {attend_head<1>, attend_head<2>, attend_head<3>, attend_head<4>,
                                            attend_head<5>, attend_head<6>, attend_head<7>, attend_head<8>};
    BY_VECTORS[head.head_dim / LANES - 1](head, scores, score_stride, to, to_stride);
}

}  // namespace transduce
