// Attention of a few rows (`attend`), the head's logits, and the next id.

// ---------------------------------------------------------------- attention

// A key's columns are shared out among LANES lanes of a warp, 8 to each; where a head has no such power of two, the last ones are idle.
constexpr int LANES = HEAD_DIM > 128 ? 32 : HEAD_DIM > 64 ? 16 : HEAD_DIM > 32 ? 8 : 4;
constexpr int GROUPS = 32 / LANES, WARPS = 16, ALL_GROUPS = WARPS * GROUPS, AT_ONCE = WIDE ? 2 : 4, LEAST_KEYS = 256;

struct Answer { float best, weight, part[8]; };  // a running softmax: largest score, sum of weights, weighted sum of 8 columns

DEVICE float score_of(float s, float scale) {  // in units of ln 2
    return HAS_ATTENTION_CAP ? capped(s * scale, ATTENTION_CAP) * 1.4426950408889634f : s * (scale * 1.4426950408889634f);
}

// `fresh` holds key and value of `place` where the cache may not have them yet.
DEVICE Answer look_at(const float* q, const act* keys, const act* values, const act* fresh, int place, int low, int high, float scale) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % LANES * 8;
    const bool idle = column >= HEAD_DIM;
    float query[8];
    Answer a = {-1e30f, 0.f, {}};
    for (int c = 0; c < 8; ++c) query[c] = idle ? 0.f : q[column + c];
    for (int base = low + warp * GROUPS + lane / LANES; base - lane / LANES < high; base += ALL_GROUPS * AT_ONCE) {
        Eight k[AT_ONCE], v[AT_ONCE];
        float score[AT_ONCE], best = a.best;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            int j = base + u * ALL_GROUPS;
            k[u] = v[u] = Eight{};
            if (j >= high || idle) continue;
            k[u] = load8((fresh && j == place ? fresh : keys + (i64)j * HEAD_DIM) + column);
            v[u] = load8((fresh && j == place ? fresh + HEAD_DIM : values + (i64)j * HEAD_DIM) + column);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            float of[8], s = 0.f;
            unpack(k[u], of);
            for (int c = 0; c < 8; ++c) s += query[c] * of[c];
            s = score_of(warp_sum(s, LANES), scale);
            score[u] = base + u * ALL_GROUPS < high ? s : -1e30f;
            best = fmaxf(best, score[u]);
        }
        float keep = exp2f(a.best - best);
        a.weight *= keep;
        for (int c = 0; c < 8; ++c) a.part[c] *= keep;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            float p = base + u * ALL_GROUPS < high ? exp2f(score[u] - best) : 0.f, of[8];
            unpack(v[u], of);
            a.weight += p;
            for (int c = 0; c < 8; ++c) a.part[c] += p * of[c];
        }
        a.best = best;
    }
    return a;
}

// Grid (splits, Q_HEADS, T), 512 threads. T == 1 with parts: this step's row is projected, rotated and cached here too. Otherwise
// rotated `queries` are read and everything is in the cache. Keys position - window + 1 ... position (window 0: all). Up to
// LEAST_KEYS keys one block answers; beyond, the last of the splits to finish adds the answers up (`scratch`, `arrived` zeroed once).
extern "C" __global__ void __launch_bounds__(512) attend(const float* parts, int chunks, const act* q_norm, const act* k_norm,
        float eps, const act* queries, const Memory* memory, int layer, int kind, int window, float scale, float* scratch, int* arrived, act* out) {
    __shared__ float row[3][HEAD_DIM], best[ALL_GROUPS], weight[ALL_GROUPS], part[ALL_GROUPS][HEAD_DIM];
    __shared__ __align__(16) act fresh[2][HEAD_DIM];
    __shared__ int is_last;
    const int head = blockIdx.y, t = blockIdx.z, kv = head / (Q_HEADS / KV_HEADS), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    let_next_start();
    if (!parts) wait_for_previous();
    const Place here(memory, layer, kind, kv);
    const int place = *memory->position + t, first = window && place >= window ? place - window + 1 : 0, count = place + 1 - first;
    const int share = (count + gridDim.x - 1) / gridDim.x, each = share > LEAST_KEYS ? share : LEAST_KEYS, used = (count + each - 1) / each;
    if (blockIdx.x >= used) {
        wait_for_previous();
        return;
    }
    const int low = first + blockIdx.x * each, high = low + each < place + 1 ? low + each : place + 1;
    act *keys = here.keys, *values = here.values;
    if (parts) {  // older keys and values are at rest: fetch them while the projection is still running
        constexpr int LINE = 128 / sizeof(act);
        for (int j = low * HEAD_DIM + threadIdx.x * LINE; j < (high < place ? high : place) * HEAD_DIM; j += 512 * LINE) prefetch(keys + j), prefetch(values + j);
        wait_for_previous();
    }
    if (parts && warp < 3) {
        int source = warp == 0 ? head : warp == 1 ? Q_HEADS + kv : Q_HEADS + KV_HEADS + kv;
        here.head(row[warp], {parts, 0, chunks, 1}, 0, source, place, {q_norm, k_norm, eps}, lane);
        bool writes = warp && head % (Q_HEADS / KV_HEADS) == 0 && blockIdx.x == used - 1;
        for (int e = lane; e < HEAD_DIM && warp; e += 32) {
            fresh[warp - 1][e] = stored(row[warp][e]);
            if (writes) (warp == 1 ? keys : values)[(i64)place * HEAD_DIM + e] = fresh[warp - 1][e];
        }
    } else if (!parts) {
        for (int e = threadIdx.x; e < HEAD_DIM; e += 512) row[0][e] = value(queries[((i64)t * Q_HEADS + head) * HEAD_DIM + e]);
    }
    __syncthreads();
    Answer a = look_at(row[0], keys, values, parts ? fresh[0] : 0, place, low, high, scale);
    const int group = warp * GROUPS + lane / LANES;
    if (lane % LANES == 0) best[group] = a.best, weight[group] = a.weight;
    for (int c = 0; c < 8 && lane % LANES * 8 < HEAD_DIM; ++c) part[group][lane % LANES * 8 + c] = a.part[c];
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
    act* target = out + ((i64)t * Q_HEADS + head) * HEAD_DIM;
    if (used == 1) {
        if (e < HEAD_DIM) target[e] = stored(answer / total);
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
    target[e] = stored(answer / total);
}

// ---------------------------------------------------------------- head and next id

DEVICE bool better(float v, int index, float than, int than_index) { return v > than || (v == than && index < than_index); }

#if HEAD_BITS == 16  // also beside float32 activations: where every value is a bf16 value, nothing is lost
typedef u16 head_value;
typedef uint4 HeadEight;
DEVICE uint4 load_head(const u16* p) { return stream16(p); }
#else
typedef float head_value;
typedef Eight HeadEight;
DEVICE Eight load_head(const float* p) { return load8(p); }
#endif

// 8 warps a block, 4 rows of the head a warp: logits as float32, rounded where the model rounds, and each block's largest with its index
// (-1: one of them is NaN or infinite).
extern "C" __global__ void __launch_bounds__(256) head_logits(const head_value* w, const act* bias, const act* x, float* logits, float* best, int* best_index,
        int vocabulary, int k) {
    __shared__ float top[8];
    __shared__ int top_index[8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (blockIdx.x * 8 + warp) * 4;
    float sum[4] = {};
    let_next_start();
    wait_for_previous();
#pragma unroll 2
    for (int i = lane * 8; i < k; i += 256) {
        float b[8];
        HeadEight a[4];
        unpack(load8(x + i), b);
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = load_head(w + (i64)(first + r < vocabulary ? first + r : vocabulary - 1) * k + i);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            float of[8];
            unpack(a[r], of);
            for (int c = 0; c < 8; ++c) sum[r] += of[c] * b[c];
        }
    }
    float mine = -INFINITE;
    int mine_index = 0x7fffffff;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        float v = warp_sum(sum[r]);
        if (first + r >= vocabulary) continue;
        v = rounded(bias ? v + value(bias[first + r]) : v);
        if (HAS_LOGIT_SCALE) v = rounded(v * LOGIT_SCALE);
        if (HAS_LOGIT_CAP) v = rounded(rounded(tanhf(rounded(v / LOGIT_CAP))) * LOGIT_CAP);
        if (lane == 0) logits[first + r] = v;
        if (!(v < INFINITE)) mine = INFINITE, mine_index = -1;
        if (better(v, first + r, mine, mine_index)) mine = v, mine_index = first + r;
    }
    if (lane == 0) top[warp] = mine, top_index[warp] = mine_index;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; ++i)
        if (better(top[i], top_index[i], mine, mine_index)) mine = top[i], mine_index = top_index[i];
    best[blockIdx.x] = mine, best_index[blockIdx.x] = mine_index;
}

// -1 (`NO_ID` in `sampling.py`) says in the history that no id follows from the logits; the next step goes on from some id all the same, and is not looked at.
DEVICE void commit(i64 id, const Memory* memory) {
    *memory->token = id < 0 ? 0 : id;
    *memory->position += 1;
    memory->history[*memory->position] = id;
}

// The largest logit's index (the lowest of equals, as torch.argmax) becomes the next id; one block of 1024 threads.
extern "C" __global__ void __launch_bounds__(1024) take_best(const float* best, const int* best_index, int blocks, const Memory* memory) {
    __shared__ float top[32];
    __shared__ int top_index[32];
    float mine = -INFINITE;
    int mine_index = 0x7fffffff;
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
    if (threadIdx.x == 0) commit(mine > -INFINITE ? mine_index : -1, memory);
}

// An id chosen elsewhere (-1: there was none to choose).
extern "C" __global__ void take_given(const i64* id, const Memory* memory) {
    let_next_start();
    wait_for_previous();
    commit(*id, memory);
}
