// Weights times T <= 8 * NT rows of activations, as they are stored: `weights4.cu`, `weights16.cu` or `weights4_wide.cu` stands before.
//
// One warp multiplies a tile of 16 weight rows (TILES == 2: 16 gate rows and the 16 up rows beside them) by all T rows over its
// slice of K, a unit of columns at a time. Weights are fetched before the wait for the kernel that makes the activations.

// Up to three matrices with the same input, one below the other (q, k, v), or gate and up; `rows` of the first two. A bias may be null.
struct Weights { const u8* w[3]; const float* absmax[3]; const act* bias[3]; int rows[2]; };

DEVICE int matrix_of(const Weights& weights, int& row) {  // which of the three, and `row` within it
    if (row < weights.rows[0]) return 0;
    row -= weights.rows[0];
    if (row < weights.rows[1]) return 1;
    row -= weights.rows[1];
    return 2;
}

DEVICE float bias_of(const Weights& weights, int which, int row) {
    const act* bias = which == 0 ? weights.bias[0] : which == 1 ? weights.bias[1] : weights.bias[2];
    return bias ? value(bias[row]) : 0.f;
}

// A warp's sums into its 16 x 8 * NT floats of `parts` for each tile.
template <int NT, int TILES> DEVICE void keep(const Sums<NT, TILES>& sum, float* parts, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#if WIDE
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int token = 0; token < 8 * NT; ++token) {
                float v = warp_sum(sum.of[i][half][token], 4);
                if (lane % 4 == 0) parts[((warp * TILES + i) * 16 + lane / 4 + half * 8) * (8 * NT) + token] = v;
            }
#else
#pragma unroll
        for (int j = 0; j < NT; ++j)
#pragma unroll
            for (int v = 0; v < 4; ++v)
                parts[((warp * TILES + i) * 16 + lane / 4 + v / 2 * 8) * (8 * NT) + j * 8 + lane % 4 * 2 + v % 2] = sum.of[i][j][v];
#endif
    }
}

// TILES == 2 writes act(gate) * up [T, n]; otherwise float32 parts [chunks, T, n], one for each chunk of K, for the next kernel to add.
template <int NT, int TILES, int DEPTH>
DEVICE void matmul(const Weights& weights, const u32* codes_of, float scale, const act* input, void* out, int n, int k, int t,
                   int chunks, int per_block, int slices, u32* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4, tiles = n / 16, units = (k + UNIT - 1) / UNIT;
    const int item = blockIdx.x * per_block + warp / slices, tile = item % tiles, chunk = item / tiles;
    const bool busy = item < tiles * chunks;
    const int begin = units * chunk / chunks, span = units * (chunk + 1) / chunks - begin;
    const int low = begin + span * (warp % slices) / slices, high = busy ? begin + span * (warp % slices + 1) / slices : low;
    const u8* w[TILES];
    const float* absmax[TILES];
    int row = tile * 16;
    const int which = TILES == 1 ? matrix_of(weights, row) : 0;
    row += lane / 4;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {  // selected, not indexed: an index would put the struct into local memory
        w[i] = (which == 2 ? weights.w[2] : which || i ? weights.w[1] : weights.w[0]) + row * row_bytes(k) + q * 16;
        absmax[i] = (which == 2 ? weights.absmax[2] : which || i ? weights.absmax[1] : weights.absmax[0]) + (i64)row * (k / 64);
    }

    Stage<TILES> stage[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; ++d)
        if (low + d < high) fetch(stage[d], w, absmax, k, low + d, q);
    fill_table(shared, codes_of);
    let_next_start();
    __syncthreads();
    wait_for_previous();

    Input<NT> in;
    point<NT>(in, input, k, t, lane);
    Sums<NT, TILES> sum;
    for (int unit = low; unit < high; unit += DEPTH)
#pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            if (unit + d < high) {
                Stage<TILES> now = stage[d];
                if (unit + d + DEPTH < high) fetch(stage[d], w, absmax, k, unit + d + DEPTH, q);
                multiply_unit<NT, TILES>(sum, now, shared, in, unit + d, k, lane);
            }

    __syncthreads();  // the table is done with: its room takes the slices' sums
    float* parts = (float*)shared;
    keep<NT, TILES>(sum, parts, warp, lane);
    __syncthreads();
    for (int i = threadIdx.x; i < per_block * 16 * t; i += blockDim.x) {
        int r = i % 16, token = i / 16 % t, local = i / 16 / t, place = blockIdx.x * per_block + local;
        if (place >= tiles * chunks) continue;
        float total[TILES] = {};
        for (int s = 0; s < slices; ++s)
            for (int part = 0; part < TILES; ++part)
                total[part] += parts[(((local * slices + s) * TILES + part) * 16 + r) * (8 * NT) + token];
        int column = place % tiles * 16 + r, inner = column;
        if (TILES == 2) {
            float gate = rounded(total[0] * scale + bias_of(weights, 0, column)), up = rounded(total[TILES - 1] * scale + bias_of(weights, 1, column));
            ((act*)out)[token * (i64)n + column] = stored(activated(gate) * up);
        } else {
            const int owner = matrix_of(weights, inner);
            ((float*)out)[((i64)(place / tiles) * t + token) * n + column] = total[0] * scale + (place / tiles ? 0.f : bias_of(weights, owner, inner));
        }
    }
}

#define MATMUL_KERNEL(NAME, NT, TILES, WARPS, DEPTH)                                                                            \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME##_##NT(Weights weights, const u32* codes_of, float scale,       \
            const act* x, void* out, int n, int k, int t, int chunks, int per_block, int slices) {                                \
        extern __shared__ __align__(16) u32 shared[];                                                                             \
        matmul<NT, TILES, DEPTH>(weights, codes_of, scale, x, out, n, k, t, chunks, per_block, slices, shared);                      \
    }
#if WEIGHT_BITS == 16
MATMUL_KERNEL(parts, 1, 1, 16, 4)
MATMUL_KERNEL(gated, 1, 2, 16, 2)
MATMUL_KERNEL(parts, 2, 1, 16, 4)
MATMUL_KERNEL(gated, 2, 2, 16, 2)
MATMUL_KERNEL(parts, 4, 1, 12, 2)
MATMUL_KERNEL(gated, 4, 2, 12, 1)
#else
MATMUL_KERNEL(parts, 1, 1, 16, 2)
MATMUL_KERNEL(gated, 1, 2, 16, 1)
MATMUL_KERNEL(parts, 2, 1, 16, 2)
MATMUL_KERNEL(gated, 2, 2, 16, 1)
MATMUL_KERNEL(parts, 4, 1, 12, 1)
MATMUL_KERNEL(gated, 4, 2, 12, 1)
#endif
