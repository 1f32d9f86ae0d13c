// Attention of one step and the head; the second half of `decode.cu`'s translation unit.

// ---------------------------------------------------------------- one head's row: projection, norm, rotation

// One warp: adds the parts of one head's projection (and its bias), normalizes it if `norm` is given, rotates it by `cos` and
// `sin` ([HEAD_DIM] of this position) if given; leaves HEAD_DIM bf16-rounded floats in `row` (shared).
DEVICE void head_row(float* row, const float* parts, int chunks, i64 stride, const u16* bias, const u16* norm, float eps,
                     const u16* cos, const u16* sin, int lane) {
    constexpr int EACH = HEAD_DIM / 32;
    float v[EACH], squares = 0.f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        int e = lane + 32 * i;
        v[i] = bias ? value(bias[e]) : 0.f;
        for (int c = 0; c < chunks; ++c) v[i] += parts[c * stride + e];
        v[i] = rounded(v[i]);
        squares += v[i] * v[i];
    }
    if (norm) {
        float inverse = rsqrtf(warp_sum(squares) / HEAD_DIM + eps);
#pragma unroll
        for (int i = 0; i < EACH; ++i) v[i] = normed(v[i], inverse, value(norm[lane + 32 * i]));
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
    __syncwarp();
    if (!cos) return;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        int e = lane + 32 * i;
        float other = e < HEAD_DIM / 2 ? -row[e + HEAD_DIM / 2] : row[e - HEAD_DIM / 2];
        v[i] = rounded(rounded(v[i] * value(cos[e])) + rounded(other * value(sin[e])));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
    __syncwarp();
}

// For prefill, one warp per (head, row): rotated queries to `queries` [T, Q_HEADS, HEAD_DIM], keys and values to the cache
// ([KV_HEADS, rows, HEAD_DIM] each) at *position + row.
extern "C" __global__ void __launch_bounds__(32) place_rows(const float* parts, int chunks, const u16* bias, const u16* q_norm,
        const u16* k_norm, float eps, const u16* cos, const u16* sin, u16* queries, u16* keys, u16* values, int rows, const int* position) {
    __shared__ float row[HEAD_DIM];
    const int head = blockIdx.x, t = blockIdx.y, lane = threadIdx.x, width = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
    let_next_start();
    wait_for_previous();
    const int place = *position + t;
    const bool is_q = head < Q_HEADS, is_v = head >= Q_HEADS + KV_HEADS;
    head_row(row, parts + (i64)t * width + head * HEAD_DIM, chunks, (i64)gridDim.y * width, bias ? bias + head * HEAD_DIM : 0,
             is_v ? 0 : is_q ? q_norm : k_norm, eps, is_v ? 0 : cos + (i64)place * HEAD_DIM, sin + (i64)place * HEAD_DIM, lane);
    u16* target = is_q ? queries + ((i64)t * Q_HEADS + head) * HEAD_DIM
                       : is_v ? values + ((i64)(head - Q_HEADS - KV_HEADS) * rows + place) * HEAD_DIM
                              : keys + ((i64)(head - Q_HEADS) * rows + place) * HEAD_DIM;
    for (int e = lane; e < HEAD_DIM; e += 32) target[e] = bits_of(row[e]);
}

// ---------------------------------------------------------------- attention

constexpr int LANES = HEAD_DIM / 8, GROUPS = 32 / LANES, WARPS = 16, ALL_GROUPS = WARPS * GROUPS, AT_ONCE = 4, LEAST_KEYS = 256;

struct Answer { float best, weight, part[8]; };  // a running softmax: largest score, sum of weights, weighted sum of 8 columns

// Scores in units of ln 2; `fresh` holds key and value of `place` where the cache may not have them yet.
DEVICE Answer look_at(const float* q, const u16* keys, const u16* values, const u16* fresh, int place, int low, int high, float scale) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % LANES * 8;
    float query[8];
    Answer a = {-1e30f, 0.f, {}};
    for (int c = 0; c < 8; ++c) query[c] = q[column + c] * scale;
    for (int base = low + warp * GROUPS + lane / LANES; base - lane / LANES < high; base += ALL_GROUPS * AT_ONCE) {
        uint4 k[AT_ONCE], v[AT_ONCE];
        float score[AT_ONCE], best = a.best;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            int j = base + u * ALL_GROUPS;
            k[u] = v[u] = make_uint4(0, 0, 0, 0);
            if (j >= high) continue;
            k[u] = *(const uint4*)((fresh && j == place ? fresh : keys + (i64)j * HEAD_DIM) + column);
            v[u] = *(const uint4*)((fresh && j == place ? fresh + HEAD_DIM : values + (i64)j * HEAD_DIM) + column);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            float s = query[0] * low_of(k[u].x) + query[1] * high_of(k[u].x) + query[2] * low_of(k[u].y) + query[3] * high_of(k[u].y)
                    + query[4] * low_of(k[u].z) + query[5] * high_of(k[u].z) + query[6] * low_of(k[u].w) + query[7] * high_of(k[u].w);
            score[u] = base + u * ALL_GROUPS < high ? 0.f : -1e30f;
            score[u] += warp_sum(s, LANES);
            best = fmaxf(best, score[u]);
        }
        float keep = exp2f(a.best - best);
        a.weight *= keep;
        for (int c = 0; c < 8; ++c) a.part[c] *= keep;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            float p = base + u * ALL_GROUPS < high ? exp2f(score[u] - best) : 0.f;
            a.weight += p;
            a.part[0] += p * low_of(v[u].x), a.part[1] += p * high_of(v[u].x), a.part[2] += p * low_of(v[u].y), a.part[3] += p * high_of(v[u].y);
            a.part[4] += p * low_of(v[u].z), a.part[5] += p * high_of(v[u].z), a.part[6] += p * low_of(v[u].w), a.part[7] += p * high_of(v[u].w);
        }
        a.best = best;
    }
    return a;
}

// Grid (splits, Q_HEADS, T), 512 threads. T == 1 with parts: this step's row is projected, rotated and cached here too. Otherwise
// rotated `queries` are read and everything is in the cache. Keys *position - window + 1 ... *position (window 0: all). Up to
// LEAST_KEYS keys one block answers; beyond, the last of the splits to finish adds the answers up (`scratch`, `arrived` zeroed once).
extern "C" __global__ void __launch_bounds__(512) attend(const float* parts, int chunks, const u16* bias, const u16* q_norm, const u16* k_norm,
        float eps, const u16* cos, const u16* sin, const u16* queries, u16* keys, u16* values, int rows, const int* position, int window,
        float scale, float* scratch, int* arrived, u16* out) {
    __shared__ float row[3][HEAD_DIM], best[ALL_GROUPS], weight[ALL_GROUPS], part[ALL_GROUPS][HEAD_DIM];
    __shared__ __align__(16) u16 fresh[2][HEAD_DIM];
    __shared__ int is_last;
    const int head = blockIdx.y, t = blockIdx.z, kv = head / (Q_HEADS / KV_HEADS), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    let_next_start();
    if (!parts) wait_for_previous();
    const int place = *position + t, first = window && place >= window ? place - window + 1 : 0, count = place + 1 - first;
    const int share = (count + gridDim.x - 1) / gridDim.x, each = share > LEAST_KEYS ? share : LEAST_KEYS, used = (count + each - 1) / each;
    if (blockIdx.x >= used) {
        wait_for_previous();
        return;
    }
    const int low = first + blockIdx.x * each, high = low + each < place + 1 ? low + each : place + 1;
    keys += (i64)kv * rows * HEAD_DIM, values += (i64)kv * rows * HEAD_DIM;
    if (parts) {  // older keys and values are at rest: fetch them while the projection is still running
        for (int j = low * HEAD_DIM + threadIdx.x * 64; j < (high < place ? high : place) * HEAD_DIM; j += 512 * 64) prefetch(keys + j), prefetch(values + j);
        wait_for_previous();
    }
    if (parts && warp < 3) {
        int source = warp == 0 ? head : warp == 1 ? Q_HEADS + kv : Q_HEADS + KV_HEADS + kv;
        head_row(row[warp], parts + source * HEAD_DIM, chunks, (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, bias ? bias + source * HEAD_DIM : 0,
                 warp == 0 ? q_norm : warp == 1 ? k_norm : 0, eps, warp == 2 ? 0 : cos + (i64)place * HEAD_DIM, sin + (i64)place * HEAD_DIM, lane);
        bool writes = warp && head % (Q_HEADS / KV_HEADS) == 0 && blockIdx.x == used - 1;
        for (int e = lane; e < HEAD_DIM && warp; e += 32) {
            fresh[warp - 1][e] = bits_of(row[warp][e]);
            if (writes) (warp == 1 ? keys : values)[(i64)place * HEAD_DIM + e] = fresh[warp - 1][e];
        }
    } else if (!parts) {
        for (int e = threadIdx.x; e < HEAD_DIM; e += 512) row[0][e] = value(queries[((i64)t * Q_HEADS + head) * HEAD_DIM + e]);
    }
    __syncthreads();
    Answer a = look_at(row[0], keys, values, parts ? fresh[0] : 0, place, low, high, scale * 1.4426950408889634f);
    const int group = warp * GROUPS + lane / LANES;
    if (lane % LANES == 0) best[group] = a.best, weight[group] = a.weight;
    for (int c = 0; c < 8; ++c) part[group][lane % LANES * 8 + c] = a.part[c];
    __syncthreads();

    float most = -1e30f, total = 0.f, answer = 0.f;
    const int e = threadIdx.x;
    if (e < HEAD_DIM) {
        for (int i = 0; i < ALL_GROUPS; ++i) most = fmaxf(most, best[i]);
        for (int i = 0; i < ALL_GROUPS; ++i) {
            float share_of = exp2f(best[i] - most);
            total += share_of * weight[i], answer += share_of * part[i][e];
        }
    }
    u16* target = out + ((i64)t * Q_HEADS + head) * HEAD_DIM;
    if (used == 1) {
        if (e < HEAD_DIM) target[e] = bits_of(answer / total);
        return;
    }
    float* mine = scratch + ((i64)head * gridDim.x + blockIdx.x) * (HEAD_DIM + 2);
    if (e < HEAD_DIM) mine[2 + e] = answer;
    if (e == 0) mine[0] = most, mine[1] = total;
    __threadfence();
    __syncthreads();
    if (e == 0) is_last = atomicAdd(arrived + head, 1) == used - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (e == 0) arrived[head] = 0;
    if (e >= HEAD_DIM) return;
    const volatile float* all = scratch + (i64)head * gridDim.x * (HEAD_DIM + 2);
    most = -1e30f, total = 0.f, answer = 0.f;
    for (int i = 0; i < used; ++i) most = fmaxf(most, all[i * (HEAD_DIM + 2)]);
    for (int i = 0; i < used; ++i) {
        float share_of = exp2f(all[i * (HEAD_DIM + 2)] - most);
        total += share_of * all[i * (HEAD_DIM + 2) + 1], answer += share_of * all[i * (HEAD_DIM + 2) + 2 + e];
    }
    target[e] = bits_of(answer / total);
}

// ---------------------------------------------------------------- head and next id

DEVICE bool better(float v, int index, float than, int than_index) { return v > than || (v == than && index < than_index); }

// 8 warps a block, 4 rows of the bf16 head a warp: bf16-rounded logits as float32, and each block's largest with its index.
extern "C" __global__ void __launch_bounds__(256) head_logits(const u16* w, const u16* x, float* logits, float* best, int* best_index, int vocabulary, int k) {
    __shared__ float top[8];
    __shared__ int top_index[8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (blockIdx.x * 8 + warp) * 4;
    float sum[4] = {};
    let_next_start();
    wait_for_previous();
#pragma unroll 2
    for (int i = lane * 8; i < k; i += 256) {
        uint4 b = *(const uint4*)(x + i), a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = stream16(w + (i64)(first + r < vocabulary ? first + r : vocabulary - 1) * k + i);
#pragma unroll
        for (int r = 0; r < 4; ++r)
            sum[r] += low_of(a[r].x) * low_of(b.x) + high_of(a[r].x) * high_of(b.x) + low_of(a[r].y) * low_of(b.y) + high_of(a[r].y) * high_of(b.y)
                    + low_of(a[r].z) * low_of(b.z) + high_of(a[r].z) * high_of(b.z) + low_of(a[r].w) * low_of(b.w) + high_of(a[r].w) * high_of(b.w);
    }
    float mine = -3e38f;
    int mine_index = 0;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        float v = rounded(warp_sum(sum[r]));
        if (first + r >= vocabulary) continue;
        if (lane == 0) logits[first + r] = v;
        if (v > mine) mine = v, mine_index = first + r;
    }
    if (lane == 0) top[warp] = mine, top_index[warp] = mine_index;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; ++i)
        if (better(top[i], top_index[i], mine, mine_index)) mine = top[i], mine_index = top_index[i];
    best[blockIdx.x] = mine, best_index[blockIdx.x] = mine_index;
}

DEVICE void commit(i64 id, i64* token, int* position, i64* history) {
    *token = id;
    *position += 1;
    history[*position] = id;
}

// The largest logit's index (the lowest of equals, as torch.argmax) becomes the next id; one block of 1024 threads.
extern "C" __global__ void __launch_bounds__(1024) take_best(const float* best, const int* best_index, int blocks, i64* token, int* position, i64* history) {
    __shared__ float top[32];
    __shared__ int top_index[32];
    float mine = -3e38f;
    int mine_index = 0;
    let_next_start();
    wait_for_previous();
    for (int i = threadIdx.x; i < blocks; i += 1024)
        if (better(best[i], best_index[i], mine, mine_index)) mine = best[i], mine_index = best_index[i];
    for (int round = 0; round < 2; ++round) {
        for (int step = 16; step; step /= 2) {
            float v = __shfl_xor_sync(ALL, mine, step);
            int index = __shfl_xor_sync(ALL, mine_index, step);
            if (better(v, index, mine, mine_index)) mine = v, mine_index = index;
        }
        if (round) break;
        if (threadIdx.x % 32 == 0) top[threadIdx.x / 32] = mine, top_index[threadIdx.x / 32] = mine_index;
        __syncthreads();
        mine = top[threadIdx.x % 32], mine_index = top_index[threadIdx.x % 32];
    }
    if (threadIdx.x == 0) commit(mine_index, token, position, history);
}

extern "C" __global__ void take_given(const i64* id, i64* token, int* position, i64* history) {
    let_next_start();
    wait_for_previous();
    commit(*id, token, position, history);
}
