// Beam search between two decoder steps on a GPU. app/decoding/beam.py defines the rules. As native/beams.cpp on a CPU,
// this kernel takes only steps that rank continuations and do nothing else. app/runtime/cuda_beams.py launches it, and
// defines the same layouts.

constexpr int MAX_BEAM_SIZE = 16;
constexpr int CONTINUES = 0, DONE = 1, UNDECIDED = 2;  // BeamOutcome in app/runtime/beams.py

// One sentence's beam. Before the first step one hypothesis is live, in rows[0], and the other rows hold its source.
//
// max_length: the number of steps after which the next one is undecided. max_complete: the search ends when this many
// hypotheses are complete. first_entry: the beam has the entries first_entry..first_entry + beam_size - 1 of each step.
// rows, tokens, sums: the cache row, last subword and summed log-probability of each live hypothesis, best first.
struct DeviceBeam {
    int beam_size, end_id, max_length, length, max_complete, num_complete, first_entry, outcome;
    int rows[MAX_BEAM_SIZE], tokens[MAX_BEAM_SIZE];
    double sums[MAX_BEAM_SIZE];
};

// The result of a step for one beam. Its i-th entry describes two hypotheses.
//
// sum, token, parent, row: the i-th live hypothesis after the step, if `outcome` is CONTINUES. ended_sum, ended_parent:
// the i-th hypothesis that has ended in the step; ended_parent is -1 if there is none. outcome: that of the beam.
struct BeamEntry {
    double sum, ended_sum;
    int token, parent, row, ended_parent, outcome, unused;
};

// Continuations of the live hypotheses: i-th hypothesis, j-th candidate at i * (beam_size + 1) + j. order: the best
// 2 * beam_size of them. Of equal sums the first continuation comes first. has_scores: 0 if the best score of a live
// hypothesis is not finite, or if any score is NaN.
struct Continuations {
    double sums[MAX_BEAM_SIZE * (MAX_BEAM_SIZE + 1)];
    int tokens[MAX_BEAM_SIZE * (MAX_BEAM_SIZE + 1)];
    int order[2 * MAX_BEAM_SIZE];
    int has_scores;
};

// Returns the index in `ids` of a row's j-th candidate, not counting end_id if `skips_end`. Returns num_candidates or
// more if there is no such candidate. ids: (num_candidates,) of the row.
__device__ int place_of(const long long* ids, int j, int num_candidates, bool skips_end, int end_id) {
    for (int place = 0; place <= j && skips_end; ++place) {
        if (place < num_candidates && ids[place] == end_id) return min(j + 1, num_candidates);
    }
    return j;
}

// Sets the sums and tokens of all continuations. One thread sets one of them.
__device__ void add_candidates(const DeviceBeam& beam, const long long* top_ids, const float* top_scores,
                               int num_candidates, bool skips_end, Continuations& all) {
    const int k = beam.beam_size + 1, num_live = beam.length ? beam.beam_size : 1;
    for (int index = threadIdx.x; index < num_live * k; index += blockDim.x) {
        const int i = index / k, j = index % k;
        const long long begin = (long long)beam.rows[i] * num_candidates;
        const int place = place_of(top_ids + begin, j, num_candidates, skips_end, beam.end_id);
        const bool is_absent = place >= num_candidates;
        const float score = is_absent ? __int_as_float(0xff800000) : top_scores[begin + place];  // negative infinity
        // x - x is 0 for a finite x, and NaN for infinity and NaN.
        if (j == 0 ? !(score - score == 0.0f) : score != score) all.has_scores = 0;
        all.sums[index] = (beam.length ? beam.sums[i] : 0.0) + double(score);
        all.tokens[index] = is_absent ? beam.end_id : int(top_ids[begin + place]);
    }
}

// Sets `order`. One thread counts the continuations that come before one of them.
__device__ void rank(int num_continuations, int num_ranked, Continuations& all) {
    for (int index = threadIdx.x; index < num_continuations; index += blockDim.x) {
        const double sum = all.sums[index];
        int num_before = 0;
        for (int other = 0; other < num_continuations; ++other) {
            num_before += all.sums[other] > sum || (all.sums[other] == sum && other < index);
        }
        if (num_before < num_ranked) all.order[num_before] = index;
    }
}

// Gives each hypothesis a row. A parent's first child keeps the parent's row. The other children take the rows of
// parents without a child, and need a move: source row, target row, number of columns. No target is a source.
__device__ void assign_rows(DeviceBeam& beam, const int* parents, int num_columns, int* moves) {
    int before[MAX_BEAM_SIZE];
    bool is_alive[MAX_BEAM_SIZE] = {}, has_row[MAX_BEAM_SIZE] = {};
    for (int i = 0; i < beam.beam_size; ++i) {
        before[i] = beam.rows[i];
        is_alive[parents[i]] = true;
    }
    int free_row = 0;
    for (int child = 0; child < beam.beam_size; ++child) {
        const int parent = parents[child];
        if (!has_row[parent]) {
            has_row[parent] = true;
            beam.rows[child] = before[parent];
            continue;
        }
        while (is_alive[free_row]) ++free_row;
        beam.rows[child] = before[free_row];
        int* move = moves + 3 * child;
        move[0] = before[parent];
        move[1] = before[free_row];
        move[2] = num_columns;
        ++free_row;
    }
}

// Takes the step, in one thread. Returns its outcome. An undecided step changes nothing.
__device__ int take_step(DeviceBeam& beam, const Continuations& all, int num_ranked, int first_position,
                         BeamEntry* entries, int* moves) {
    const int b = beam.beam_size, k = b + 1;
    int selected[MAX_BEAM_SIZE], parents[MAX_BEAM_SIZE], num_selected = 0;
    for (int place = 0; place < num_ranked && num_selected < b; ++place) {
        if (all.tokens[all.order[place]] != beam.end_id) selected[num_selected++] = all.order[place];
    }
    if (num_selected < b || all.sums[selected[b - 1]] == double(__int_as_float(0xff800000))) return UNDECIDED;
    int num_ended = 0;
    for (int place = 0; place < b; ++place) {
        const int index = all.order[place];
        if (all.tokens[index] != beam.end_id) continue;
        entries[num_ended].ended_sum = all.sums[index];
        entries[num_ended++].ended_parent = index / k;
    }
    beam.num_complete += num_ended;
    if (beam.num_complete >= beam.max_complete) return DONE;
    for (int i = 0; i < b; ++i) parents[i] = selected[i] / k;
    assign_rows(beam, parents, first_position + beam.length + 1, moves);
    ++beam.length;
    for (int i = 0; i < b; ++i) {
        beam.tokens[i] = entries[i].token = all.tokens[selected[i]];
        beam.sums[i] = entries[i].sum = all.sums[selected[i]];
        entries[i].parent = parents[i];
        entries[i].row = beam.rows[i];
    }
    return CONTINUES;
}

// Advances each beam, by one block, after a step of the decoder.
//
// top_ids, top_scores: (rows, num_candidates) the decoder's candidates, descending in each row.
// ids, positions: (rows,) the decoder's inputs. A beam that is done or undecided keeps its last inputs, so its last
// candidates stay the same.
// entries: (steps, num_entries), of which row `step` is written. moves: (num_entries, 3) for copy_rows; those without
// columns copy nothing. ended_at: (beams,) on the host: gets the step in which a beam is done or undecided.
// must_end: on the host: gets 1 if a beam is undecided.
// In a beam's first step end_id is not chosen if the start token is start_id, or if start_id is -1.
extern "C" __global__ void advance_beams(const long long* top_ids, const float* top_scores, int* ids, int* positions,
                                         DeviceBeam* beams, BeamEntry* entries, int* moves, int* ended_at,
                                         int* must_end, int num_entries, int num_candidates, int first_position,
                                         int start_id, int step) {
    __shared__ Continuations all;
    DeviceBeam& beam = beams[blockIdx.x];
    const int b = beam.beam_size, outcome = beam.outcome;
    const int num_continuations = (beam.length ? b : 1) * (b + 1), num_ranked = min(2 * b, num_continuations);
    const bool skips_end = beam.length == 0 && (start_id < 0 || beam.tokens[0] == start_id);
    entries += (long long)step * num_entries + beam.first_entry;
    moves += 3 * beam.first_entry;
    for (int i = threadIdx.x; i < b; i += blockDim.x) {
        entries[i].ended_parent = -1;
        entries[i].outcome = outcome;
        moves[3 * i] = moves[3 * i + 1] = moves[3 * i + 2] = 0;
    }
    if (outcome != CONTINUES) return;
    if (threadIdx.x == 0) all.has_scores = 1;
    __syncthreads();
    add_candidates(beam, top_ids, top_scores, num_candidates, skips_end, all);
    __syncthreads();
    if (all.has_scores) rank(num_continuations, num_ranked, all);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const bool can_step = all.has_scores && beam.length < beam.max_length;
    beam.outcome = can_step ? take_step(beam, all, num_ranked, first_position, entries, moves) : UNDECIDED;
    for (int i = 0; i < b; ++i) entries[i].outcome = beam.outcome;
    if (beam.outcome != CONTINUES) ended_at[blockIdx.x] = step;
    if (beam.outcome == UNDECIDED) *must_end = 1;
    for (int i = 0; i < b && beam.outcome == CONTINUES; ++i) {
        ids[beam.rows[i]] = beam.tokens[i];
        positions[beam.rows[i]] = first_position + beam.length;
    }
}
