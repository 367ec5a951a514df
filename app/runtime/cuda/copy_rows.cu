// Copies the valid columns of cache rows. app/runtime/cuda_copies.py launches it.

// A thread block copies one head in one plane for one move. A move is three numbers: source row, target row, number of
// columns. source, target: (planes, rows, num_heads, capacity) columns. column_vectors: int4 vectors of a column.
extern "C" __global__ void copy_rows(const int4* source, int4* target, const int* moves, int source_rows,
                                     int source_capacity, int target_rows, int target_capacity, int num_heads,
                                     int column_vectors) {
    const int* move = moves + 3 * blockIdx.z;
    const long long plane = blockIdx.y, head = blockIdx.x;
    const long long from = ((plane * source_rows + move[0]) * num_heads + head) * source_capacity;
    const long long to = ((plane * target_rows + move[1]) * num_heads + head) * target_capacity;
    const int4* in = source + from * column_vectors;
    int4* out = target + to * column_vectors;
    const int end = move[2] * column_vectors;
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        out[i] = in[i];
    }
}
