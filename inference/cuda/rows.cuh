// Attention of one row within the step: a block takes QUERIES heads that share keys and values, and a range of keys.
//
// Every block of a group norms and rotates its queries anew; the one whose range ends with this position makes its key and value and writes
// them to the cache. What a block found goes to `answers`; the phase after (`answers_to_x`) adds the ranges up.

constexpr int LANES = HEAD_DIM / 8, GROUPS = 32 / LANES, ALL_GROUPS = WARPS * GROUPS, AT_ONCE = 4, HEAD_GROUPS = Q_HEADS / QUERIES;
constexpr int ANSWER = HEAD_DIM + 4;

// The keys `first` ... `first + count - 1` of a row, `each` a block, `used` blocks.
struct Keys { int first, count, each, used; };

DEVICE Keys keys_of(int place, int window) {
    const int first = window && place >= window ? place - window + 1 : 0, count = place + 1 - first;
    const int room = gridDim.x / HEAD_GROUPS, splits = room < 1 ? 1 : room < MOST_SPLITS ? room : MOST_SPLITS;
    const int share = (count + splits - 1) / splits, each = share > LEAST_KEYS ? share : LEAST_KEYS;
    return {first, count, each, (count + each - 1) / each};
}

DEVICE void cache_of(const Memory& memory, int layer, int kv, u16*& keys, u16*& values) {
    const i64 at = ((i64)layer * KV_HEADS + kv) * memory.rows * HEAD_DIM;
    keys = memory.keys + at, values = memory.values + at;
}

// Bring this block's keys and values of a layer, all but the newest, nearer: into L2.
DEVICE void prefetch_keys(const Room& room, const Layer& layer, int index, int place) {
    const Keys k = keys_of(place, layer.window);
    const int group = blockIdx.x % HEAD_GROUPS, split = blockIdx.x / HEAD_GROUPS, low = k.first + split * k.each;
    if (split >= k.used) return;
    const int high = low + k.each < place ? low + k.each : place;
    u16 *keys, *values;
    cache_of(*room.memory, index, group * QUERIES / (Q_HEADS / KV_HEADS), keys, values);
    for (int j = low * HEAD_DIM + threadIdx.x * 64; j < high * HEAD_DIM; j += THREADS * 64) prefetch(keys + j), prefetch(values + j);
}

// One warp: the row of one head out of `qkv_sums`, normed and rotated where that is given, as bf16-rounded floats in `row`.
DEVICE void head_row(float* row, const float* sums, int head, const u16* bias, const u16* norm, const u16* cos, const u16* sin) {
    constexpr int EACH = HEAD_DIM / 32, WIDTH = rows_of(QKV);
    const int lane = threadIdx.x % 32, base = head * HEAD_DIM, matrix = head < Q_HEADS ? 0 : Q_HEADS;
    const int own = head < Q_HEADS + KV_HEADS ? head - matrix : head - Q_HEADS - KV_HEADS;
    float v[EACH], squares = 0.f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = lane + 32 * i;
        v[i] = rounded(fresh(sums + base + e) + fresh(sums + WIDTH + base + e) + (bias ? value(bias[own * HEAD_DIM + e]) : 0.f));
        squares += v[i] * v[i];
    }
    if (norm) {
        const int heads = head < Q_HEADS ? Q_HEADS : KV_HEADS;
        if (QK_WHOLE) {
            squares = 0.f;
            for (int e = lane; e < heads * HEAD_DIM; e += 32) {
                const float w = rounded(fresh(sums + matrix * HEAD_DIM + e) + fresh(sums + WIDTH + matrix * HEAD_DIM + e) + (bias ? value(bias[e]) : 0.f));
                squares += w * w;
            }
        }
        const float inverse = rsqrtf(warp_sum(squares) / (QK_WHOLE ? heads * HEAD_DIM : HEAD_DIM) + EPS);
#pragma unroll
        for (int i = 0; i < EACH; ++i) v[i] = normed(v[i], inverse, value(norm[(QK_WHOLE ? own * HEAD_DIM : 0) + lane + 32 * i]));
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
    __syncwarp();
    if (!cos) return;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = lane + 32 * i;
        if (e >= ROTATED) continue;
        const float other = e < ROTATED / 2 ? -row[e + ROTATED / 2] : row[e - ROTATED / 2];
        v[i] = rounded(rounded(v[i] * value(cos[e])) + rounded(other * value(sin[e])));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
}

// Running softmaxes of QUERIES heads: largest score, sum of weights, weighted sum of 8 columns; scores in units of ln 2.
struct Answer { float best[QUERIES], weight[QUERIES], part[QUERIES][8]; };

DEVICE float dot(const float* q, uint4 k) {
    return q[0] * low_of(k.x) + q[1] * high_of(k.x) + q[2] * low_of(k.y) + q[3] * high_of(k.y) + q[4] * low_of(k.z) + q[5] * high_of(k.z)
         + q[6] * low_of(k.w) + q[7] * high_of(k.w);
}

DEVICE void look_at(Answer& a, const float (*query)[8], const uint4* k, const uint4* v, const bool* seen) {
#pragma unroll
    for (int h = 0; h < QUERIES; ++h) {
        float score[AT_ONCE], best = a.best[h];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            score[u] = warp_sum(dot(query[h], k[u]), LANES) * ATTENTION_SCALE;
            if (ATTENTION_CAP > 0.f) score[u] = ATTENTION_CAP * tanhf(score[u] / ATTENTION_CAP);
            score[u] = seen[u] ? score[u] * 1.4426950408889634f : -1e30f;
            best = fmaxf(best, score[u]);
        }
        const float keep = exp2f(a.best[h] - best);
        a.weight[h] *= keep;
        for (int c = 0; c < 8; ++c) a.part[h][c] *= keep;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const float p = seen[u] ? exp2f(score[u] - best) : 0.f;
            a.weight[h] += p;
            a.part[h][0] += p * low_of(v[u].x), a.part[h][1] += p * high_of(v[u].x), a.part[h][2] += p * low_of(v[u].y), a.part[h][3] += p * high_of(v[u].y);
            a.part[h][4] += p * low_of(v[u].z), a.part[h][5] += p * high_of(v[u].z), a.part[h][6] += p * low_of(v[u].w), a.part[h][7] += p * high_of(v[u].w);
        }
        a.best[h] = best;
    }
}

// Keys `low` ... `high` - 1, shared out among the block; `newest` [2, HEAD_DIM] is the row of `place`, not in the cache yet.
DEVICE Answer look(const float* rows, const u16* keys, const u16* values, const u16* newest, int place, int low, int high) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % LANES * 8;
    float query[QUERIES][8];
    Answer a = {};
    for (int h = 0; h < QUERIES; ++h) {
        a.best[h] = -1e30f;
        for (int c = 0; c < 8; ++c) query[h][c] = rows[h * HEAD_DIM + column + c];
    }
    for (int base = low + warp * GROUPS + lane / LANES; base - lane / LANES < high; base += ALL_GROUPS * AT_ONCE) {
        uint4 k[AT_ONCE], v[AT_ONCE];
        bool seen[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int j = base + u * ALL_GROUPS;
            seen[u] = j < high, k[u] = v[u] = make_uint4(0, 0, 0, 0);
            if (!seen[u]) continue;
            k[u] = *(const uint4*)((j == place ? newest : keys + (i64)j * HEAD_DIM) + column);
            v[u] = *(const uint4*)((j == place ? newest + HEAD_DIM : values + (i64)j * HEAD_DIM) + column);
        }
        look_at(a, query, k, v, seen);
    }
    return a;
}

// Adds up what the block's groups of lanes found for its heads; `sums` is the room of x, 4,096 floats in its blocks.
DEVICE void add_up(const Room& room, const Shared& at, const Answer& a, int head, int split) {
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32 * GROUPS + lane / LANES, e = threadIdx.x;
    float *best = at.small + 64, *weight = at.small + 128;
#pragma unroll
    for (int h = 0; h < QUERIES; ++h) {
        __syncthreads();
        if (lane % LANES == 0) best[group] = a.best[h], weight[group] = a.weight[h];
        for (int c = 0; c < 8; ++c) {
            const int i = group * HEAD_DIM + lane % LANES * 8 + c;
            *(float*)(at.x + i / 32 * X_STRIDE + i % 32 * 4) = a.part[h][c];
        }
        __syncthreads();
        if (e >= HEAD_DIM) continue;
        float most = -1e30f, total = 0.f, answer = 0.f;
        for (int i = 0; i < ALL_GROUPS; ++i) most = fmaxf(most, best[i]);
        for (int i = 0; i < ALL_GROUPS; ++i) {
            const float share = exp2f(best[i] - most);
            const int word = i * HEAD_DIM + e;
            total += share * weight[i], answer += share * *(const float*)(at.x + word / 32 * X_STRIDE + word % 32 * 4);
        }
        float* mine = room.answers + ((i64)(head + h) * MOST_SPLITS + split) * ANSWER;
        mine[4 + e] = answer;
        if (e == 0) mine[0] = most, mine[1] = total;
    }
}

DEVICE void attend(const Room& room, const Shared& at, int index, int place) {
    const Layer& layer = at.layers[index];
    const Keys k = keys_of(place, layer.window);
    const int group = blockIdx.x % HEAD_GROUPS, split = blockIdx.x / HEAD_GROUPS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (split >= k.used) return;
    const int head = group * QUERIES, kv = head / (Q_HEADS / KV_HEADS), low = k.first + split * k.each;
    const int high = low + k.each < place + 1 ? low + k.each : place + 1;
    u16 *keys, *values, *newest = (u16*)(at.work + (QUERIES + 2) * HEAD_DIM);
    cache_of(*room.memory, index, kv, keys, values);
    const bool makes = high == place + 1, turns = layer.kind >= 0;
    if (warp < QUERIES + 2 * makes) {
        const int source = warp < QUERIES ? head + warp : warp == QUERIES ? Q_HEADS + kv : Q_HEADS + KV_HEADS + kv, what = warp < QUERIES ? 0 : 1 + warp - QUERIES;
        const u16 *cos = turns && what < 2 ? room.memory->cos[layer.kind] + (i64)place * ROTATED : 0, *sin = cos ? room.memory->sin[layer.kind] + (i64)place * ROTATED : 0;
        float* row = at.work + warp * HEAD_DIM;
        head_row(row, room.qkv_sums, source, layer.bias[what], what == 0 ? layer.q_norm : what == 1 ? layer.k_norm : 0, cos, sin);
        const bool writes = head % (Q_HEADS / KV_HEADS) == 0;
        for (int e = lane; what && e < HEAD_DIM; e += 32) {
            newest[(what - 1) * HEAD_DIM + e] = bits_of(row[e]);
            if (writes) (what == 1 ? keys : values)[(i64)place * HEAD_DIM + e] = bits_of(row[e]);
        }
    }
    __syncthreads();
    const Answer a = look(at.work, keys, values, newest, place, low, high);
    add_up(room, at, a, head, split);
}

// The heads' answers, added up over their ranges of keys, as the row for O.
DEVICE void answers_to_x(const Room& room, const Shared& at, int window, int place) {
    const int used = keys_of(place, window).used;
    for (int e = threadIdx.x * 4; e < Q_HEADS * HEAD_DIM; e += THREADS * 4) {
        const float* all = room.answers + (i64)(e / HEAD_DIM) * MOST_SPLITS * ANSWER;
        float best = -1e30f, total = 0.f, sum[4] = {};
        for (int i = 0; i < used; ++i) best = fmaxf(best, fresh(all + i * ANSWER));
#pragma unroll 4
        for (int i = 0; i < used; ++i) {
            const float4 head = fresh4(all + i * ANSWER), part = fresh4(all + i * ANSWER + 4 + e % HEAD_DIM);
            const float share = exp2f(head.x - best);
            total += share * head.y;
            sum[0] += share * part.x, sum[1] += share * part.y, sum[2] += share * part.z, sum[3] += share * part.w;
        }
        *(uint2*)x_place(at.x, e) = make_uint2(pack(sum[0] / total, sum[1] / total), pack(sum[2] / total, sum[3] / total));
    }
}
