// Attention of one query for each row of a decoder step. The custom operator RowAttention launches it
// (app/runtime/native/gpu_attention.cpp). ONNX Runtime's own kernels are made for many queries, or for long sequences.
//
// Halves (fp16) are read and written in vectors of eight, and all sums are fp32.

constexpr int VECTOR = 8;
// Threads of a block, at most. tests/runtime/host_kernels.py runs the kernel with fewer.
constexpr int MAX_THREADS = 128;
// Columns that a thread reads before it uses the first one. If larger, more reads are under way and more registers are
// used.
constexpr int COLUMNS_AHEAD = 4;

#ifdef __CUDACC__
__device__ float to_float(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ unsigned short to_half(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
#endif

__device__ void unpack(int4 vector, float* to) {
    const int words[] = {vector.x, vector.y, vector.z, vector.w};
    for (int i = 0; i < 4; ++i) {
        to[2 * i] = to_float((unsigned short)(words[i] & 0xffff));
        to[2 * i + 1] = to_float((unsigned short)((unsigned)words[i] >> 16));
    }
}

__device__ int pack_two(float low, float high) { return int(to_half(low) | (unsigned)to_half(high) << 16); }

__device__ int4 pack(const float* from) {
    return {pack_two(from[0], from[1]), pack_two(from[2], from[3]), pack_two(from[4], from[5]),
            pack_two(from[6], from[7])};
}

// Eight values of a product plus those of its bias.
__device__ void add_bias(int4 product, int4 bias, float* to) {
    float values[VECTOR];
    unpack(product, to);
    unpack(bias, values);
    for (int i = 0; i < VECTOR; ++i) to[i] += values[i];
}

// softmax(q k^T) v of one head of one row: equation (1) of the paper, with a scale that is part of q.
// Grid: (num_heads, rows). A group of threads attends to every n-th column of the row, where n is the number of groups.
// A thread of the group has eight of a column's head_dim numbers. The softmax is computed in one pass: a group keeps
// the largest score so far, and scales its sums when a larger one is found. The result of a row does not depend on
// other rows.
//
// appends: 1 for self-attention: the key and value of the last column are new, and are written before they are read. 0
//   for cross-attention.
// projected: without its bias. If `appends`, (rows, 3 * width) queries, keys and values, else (rows, width) queries;
//   width = num_heads * head_dim.
// bias: the bias of `projected`, the same for all rows. keys, values: (rows, num_heads, capacity, head_dim).
// last_columns: (rows,) the last column that a row attends to.
// heads: (rows, width) the result. head_dim: a multiple of 8, at most 128. The number of threads of a group is the
// least power of two that is at least head_dim / 8. blockDim is a multiple of this number.
extern "C" __global__ void attend_rows(const int4* projected, const int4* bias, int4* keys, int4* values,
                                       const int* last_columns, unsigned short* heads, int head_dim, int capacity,
                                       int appends) {
    __shared__ float sums[MAX_THREADS * VECTOR];
    __shared__ float largest[MAX_THREADS], totals[MAX_THREADS];
    const int num_vectors = head_dim / VECTOR;
    int group_size = 1;
    while (group_size < num_vectors) group_size *= 2;
    const int lane = threadIdx.x % group_size, group = threadIdx.x / group_size;
    const int num_groups = blockDim.x / group_size;
    const bool is_used = lane < num_vectors;
    const long long row = blockIdx.y, head = blockIdx.x, num_heads = gridDim.x;
    const long long width = num_heads * num_vectors;  // in vectors, as all offsets
    const int4* own = projected + row * (appends ? 3 * width : width) + head * num_vectors + lane;
    const int4* own_bias = bias + head * num_vectors + lane;
    const long long cache = (row * num_heads + head) * capacity * num_vectors + lane;
    const int last = last_columns[row];

    float query[VECTOR] = {};
    if (is_used) add_bias(*own, *own_bias, query);
    if (appends) {
        if (is_used && group == 0) {
            float added[VECTOR];
            add_bias(own[width], own_bias[width], added);
            keys[cache + (long long)last * num_vectors] = pack(added);
            add_bias(own[2 * width], own_bias[2 * width], added);
            values[cache + (long long)last * num_vectors] = pack(added);
        }
        __syncthreads();
    }

    float best = -1e30f, total = 0, sum[VECTOR] = {};
    for (int first = 0; first <= last; first += num_groups * COLUMNS_AHEAD) {
        int4 key[COLUMNS_AHEAD] = {}, value[COLUMNS_AHEAD] = {};
        for (int i = 0; i < COLUMNS_AHEAD; ++i) {
            const int column = first + i * num_groups + group;
            if (!is_used || column > last) continue;
            key[i] = keys[cache + (long long)column * num_vectors];
            value[i] = values[cache + (long long)column * num_vectors];
        }
        for (int i = 0; i < COLUMNS_AHEAD; ++i) {
            float numbers[VECTOR], score = 0;
            unpack(key[i], numbers);
            for (int j = 0; j < VECTOR; ++j) score += query[j] * numbers[j];
            // All threads of a warp take part, also those without a column.
            for (int other = group_size / 2; other; other /= 2) score += __shfl_xor_sync(0xffffffff, score, other);
            if (first + i * num_groups + group > last) continue;
            const float larger = score > best ? score : best;
            const float rescaled = expf(best - larger), weight = expf(score - larger);
            unpack(value[i], numbers);
            for (int j = 0; j < VECTOR; ++j) sum[j] = sum[j] * rescaled + weight * numbers[j];
            total = total * rescaled + weight;
            best = larger;
        }
    }
    for (int j = 0; j < VECTOR; ++j) sums[threadIdx.x * VECTOR + j] = sum[j];
    if (lane == 0) largest[group] = best, totals[group] = total;
    __syncthreads();

    for (int column = threadIdx.x; column < head_dim; column += blockDim.x) {
        float over_all = largest[0], numerator = 0, denominator = 0;
        for (int i = 1; i < num_groups; ++i) over_all = largest[i] > over_all ? largest[i] : over_all;
        for (int i = 0; i < num_groups; ++i) {
            const float weight = expf(largest[i] - over_all);
            numerator += weight * sums[i * group_size * VECTOR + column];
            denominator += weight * totals[i];
        }
        heads[(row * num_heads + head) * head_dim + column] = to_half(numerator / denominator);
    }
}
