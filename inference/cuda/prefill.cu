// Attention of many rows at once, straight from the cache: tiles of ROWS rows of one head, over tiles of KEYS keys, with a running softmax.
//
// Tiles that no row of a block can see (the future, and beyond the window) are not looked at. Rows and keys past the end are zeros.
// Grid (tiles of rows, Q_HEADS); `queries` are rotated, keys and values are in the cache from 0 to position + T - 1.

#if !WIDE
constexpr int ROWS = 64, KEYS = 64, STRIDE = HEAD_DIM + 8;  // 16 bytes more a row, so that eight rows of a tile lie in different banks

// `count` rows from `first` of a matrix [end, HEAD_DIM] (rows `step` values apart) into shared memory, zeros from `end` on.
DEVICE void copy_tile(u16* to, const u16* from, i64 step, int first, int end) {
    for (int i = threadIdx.x; i < 64 * (HEAD_DIM / 8); i += 128) {
        const int r = i / (HEAD_DIM / 8), c = i % (HEAD_DIM / 8) * 8, row = first + r;
        copy16(to + r * STRIDE + c, from + (row < end ? row : 0) * step + c, row < end);
    }
    close_copies();
}

// A warp has 16 rows; a thread two of them, `lane / 4` and 8 further down, and of each 8 keys (or columns) the two at `lane % 4 * 2`.
DEVICE void score_tile(float (*s)[4], const u16* q, const u16* k, int lane) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.f;
#pragma unroll
    for (int c = 0; c < HEAD_DIM; c += 16) {
        u32 a[4];
        load_tiles(a, q + lane % 16 * STRIDE + c + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j += 2) {
            u32 b[4];
            load_tiles(b, k + (j * 8 + lane / 16 * 8 + lane % 8) * STRIDE + c + lane / 8 % 2 * 8);
            mma(s[j], a, b[0], b[1]);
            mma(s[j + 1], a, b[2], b[3]);
        }
    }
}

DEVICE void add_values(float (*sum)[4], const float (*p)[4], const u16* v, int lane) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; j += 2) {
        const u32 a[4] = {pack(p[j][0], p[j][1]), pack(p[j][2], p[j][3]), pack(p[j + 1][0], p[j + 1][1]), pack(p[j + 1][2], p[j + 1][3])};
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 8; c += 2) {
            u32 b[4];
            load_tiles_turned(b, v + (j * 8 + lane / 8 % 2 * 8 + lane % 8) * STRIDE + c * 8 + lane / 16 * 8);
            mma(sum[c], a, b[0], b[1]);
            mma(sum[c + 1], a, b[2], b[3]);
        }
    }
}

// Scores into weights, in place; the running maximum (in units of ln 2), total and sums of the thread's two rows follow.
DEVICE void soften(float (*s)[4], float* best, float* total, float (*sum)[4], int first_key, const int* place, int window, float scale, int lane) {
    float most[2] = {best[0], best[1]};
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            const int key = first_key + j * 8 + lane % 4 * 2 + v % 2, at = place[v / 2];
            const bool seen = key <= at && (!window || key > at - window);
            s[j][v] = seen ? score_of(s[j][v], scale) : -1e38f;
            most[v / 2] = fmaxf(most[v / 2], s[j][v]);
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        most[half] = fmaxf(most[half], __shfl_xor_sync(ALL, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(ALL, most[half], 2));
        const float keep = exp2f(best[half] - most[half]);
        best[half] = most[half], total[half] *= keep;
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 8; ++c) sum[c][half * 2] *= keep, sum[c][half * 2 + 1] *= keep;
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) s[j][v] = exp2f(s[j][v] - best[v / 2]), total[v / 2] += s[j][v];
}

extern "C" __global__ void __launch_bounds__(128) attend_rows(const u16* queries, const Memory* memory, int layer, int window, float scale, u16* out, int t) {
    extern __shared__ __align__(16) u32 shared[];
    u16 *q = (u16*)shared, *k = q + ROWS * STRIDE, *v = k + KEYS * STRIDE;
    const int head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row0 = (gridDim.x - 1 - blockIdx.x) * ROWS;  // those with the most keys begin first
    let_next_start();
    wait_for_previous();
    const Place here(memory, layer, -1, head / (Q_HEADS / KV_HEADS));
    const int start = *memory->position, end = start + (row0 + ROWS < t ? row0 + ROWS : t);
    const int low = window && start + row0 >= window ? (start + row0 - window + 1) / KEYS * KEYS : 0;
    const int row = row0 + warp * 16 + lane / 4, place[2] = {start + row, start + row + 8};
    float best[2] = {-1e30f, -1e30f}, total[2] = {}, sum[HEAD_DIM / 8][4] = {}, s[KEYS / 8][4];
    copy_tile(q, queries + head * HEAD_DIM, Q_HEADS * HEAD_DIM, row0, t);
    copy_tile(k, here.keys, HEAD_DIM, low, end);
    for (int first = low; first < end; first += KEYS) {
        wait_for_copies();
        __syncthreads();
        copy_tile(v, here.values, HEAD_DIM, first, end);
        score_tile(s, q + warp * 16 * STRIDE, k, lane);
        soften(s, best, total, sum, first, place, window, scale, lane);
        wait_for_copies();
        __syncthreads();
        if (first + KEYS < end) copy_tile(k, here.keys, HEAD_DIM, first + KEYS, end);
        add_values(sum, s, v, lane);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float all = warp_sum(total[half], 4);
        if (row + half * 8 >= t) continue;
        u16* target = out + ((i64)(row + half * 8) * Q_HEADS + head) * HEAD_DIM + lane % 4 * 2;
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 8; ++c) *(u32*)(target + c * 8) = pack(sum[c][half * 2] / all, sum[c][half * 2 + 1] / all);
    }
}
#else
constexpr int ROWS = 16, KEYS = 16, EACH = HEAD_DIM / 16;  // 256 threads: for a score a row and a key, for an answer a row and EACH columns

extern "C" __global__ void __launch_bounds__(256) attend_rows(const float* queries, const Memory* memory, int layer, int window, float scale, float* out, int t) {
    __shared__ float q[ROWS][HEAD_DIM], kv[KEYS][HEAD_DIM + 1], weight[ROWS][KEYS + 1];
    const int head = blockIdx.y, r = threadIdx.x / 16, c = threadIdx.x % 16, row0 = (gridDim.x - 1 - blockIdx.x) * ROWS;
    wait_for_previous();
    const Place here(memory, layer, -1, head / (Q_HEADS / KV_HEADS));
    const int start = *memory->position, end = start + (row0 + ROWS < t ? row0 + ROWS : t), place = start + row0 + r;
    const int low = window && start + row0 >= window ? (start + row0 - window + 1) / KEYS * KEYS : 0;
    float best = -1e30f, total = 0.f, sum[EACH] = {};
    for (int i = 0; i < EACH; ++i) q[r][c + i * 16] = row0 + r < t ? queries[((i64)(row0 + r) * Q_HEADS + head) * HEAD_DIM + c + i * 16] : 0.f;
    for (int first = low; first < end; first += KEYS) {
        __syncthreads();
        for (int i = 0; i < EACH; ++i) kv[r][c + i * 16] = first + r < end ? here.keys[(i64)(first + r) * HEAD_DIM + c + i * 16] : 0.f;
        __syncthreads();
        float s = 0.f;
        for (int i = 0; i < HEAD_DIM; ++i) s += q[r][i] * kv[c][i];
        const int key = first + c;
        s = key <= place && (!window || key > place - window) ? score_of(s, scale) : -1e38f;
        float most = fmaxf(best, s);
        for (int step = 8; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, step));
        const float keep = exp2f(best - most);
        weight[r][c] = exp2f(s - most);
        best = most, total = total * keep + weight[r][c];
        __syncthreads();
        for (int i = 0; i < EACH; ++i) kv[r][c + i * 16] = first + r < end ? here.values[(i64)(first + r) * HEAD_DIM + c + i * 16] : 0.f;
        __syncthreads();
        for (int i = 0; i < EACH; ++i) {
            sum[i] *= keep;
            for (int j = 0; j < KEYS; ++j) sum[i] += weight[r][j] * kv[j][c + i * 16];
        }
    }
    total = warp_sum(total, 16);
    for (int i = 0; i < EACH && row0 + r < t; ++i) out[((i64)(row0 + r) * Q_HEADS + head) * HEAD_DIM + c + i * 16] = sum[i] / total;
}
#endif
