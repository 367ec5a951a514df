// Greedy search between two decoder steps on a GPU: chooses each row's next subword and makes it the next step's input.
// app/runtime/cuda_greedy.py launches it. The rules are those of StepInput.num_steps in app/runtime/interface.py.

// The result of one step of one row.
struct Chosen {
    int id;
    float score;
};

// Chooses the next subword of a row, without end_id if `is_first`. Of equal scores the lowest id is chosen.
// ids, scores: (num_candidates,). If no candidate is left, the choice is end_id with negative infinity.
__device__ Chosen choose(const long long* ids, const float* scores, int num_candidates, bool is_first, int end_id) {
    Chosen best = {end_id, __int_as_float(0xff800000)};  // negative infinity
    bool is_found = false;
    for (int i = 0; i < num_candidates; ++i) {
        const int id = int(ids[i]);
        if (is_first && id == end_id) continue;
        if (is_found && !(scores[i] > best.score || (scores[i] == best.score && id < best.id))) continue;
        best = {id, scores[i]};
        is_found = true;
    }
    return best;
}

// Advances num_rows rows, each by one thread.
//
// top_ids, top_scores: (num_rows, num_candidates) the decoder's candidates.
// ids, positions: (num_rows,) the decoder's inputs. A row that has ended keeps its last inputs.
// has_ended: (num_rows,) 1 for a row that takes no further step. Its results are end_id with a score of 0.
// ended_at: (num_rows,) on the host: gets the step in which a row ends, by end_id or by a NaN or infinite score.
// chosen: (steps, num_rows), of which row `step` is written.
// In a row's first step end_id is not chosen. A first step has the position first_position and the id start_id, or any
// id if start_id is -1.
extern "C" __global__ void advance_greedy(const long long* top_ids, const float* top_scores, int* ids, int* positions,
                                          int* has_ended, int* ended_at, Chosen* chosen, int num_rows,
                                          int num_candidates, int first_position, int start_id, int end_id, int step) {
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < num_rows; row += gridDim.x * blockDim.x) {
        Chosen* to = chosen + (long long)step * num_rows + row;
        if (has_ended[row]) {
            *to = {end_id, 0.0f};
            continue;
        }
        const bool is_first = positions[row] == first_position && (start_id < 0 || ids[row] == start_id);
        const long long begin = (long long)row * num_candidates;
        const Chosen best = choose(top_ids + begin, top_scores + begin, num_candidates, is_first, end_id);
        *to = best;
        const bool is_number = best.score - best.score == 0.0f;
        if (best.id == end_id || !is_number) {
            has_ended[row] = 1;
            ended_at[row] = step;
            continue;
        }
        ids[row] = best.id;
        positions[row] += 1;
    }
}
