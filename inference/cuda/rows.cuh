// Attention of one row within the step: a block takes QUERIES heads that share keys and values, and a range of keys.
//
// Every block of a group norms and rotates its queries anew; the one whose range ends with this position makes its key and value and writes
// them to the cache. What a block found goes to `answers`; the phase after (`answers_to_x`) adds the ranges up.

constexpr int LANES = HEAD_DIM / 8, GROUPS = 32 / LANES, ALL_GROUPS = WARPS * GROUPS, AT_ONCE = 4, HEAD_GROUPS = Q_HEADS / QUERIES;

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
DEVICE void prefetch_keys(const Shared& at, const Layer& layer, int index, int place) {
    const Keys k = keys_of(place, layer.window);
    const int group = blockIdx.x % HEAD_GROUPS, split = blockIdx.x / HEAD_GROUPS, low = k.first + split * k.each;
    if (split >= k.used) return;
    const int high = low + k.each < place ? low + k.each : place;
    u16 *keys, *values;
    cache_of(*at.memory, index, group * QUERIES / (Q_HEADS / KV_HEADS), keys, values);
    for (int j = low * HEAD_DIM + at.t * 64; j < high * HEAD_DIM; j += THREADS * 64) prefetch(keys + j), prefetch(values + j);
}

// What one warp needs to norm and rotate a head's row, of its columns lane, lane + 32 ...: fetched before the barrier.
constexpr int EACH = HEAD_DIM / 32;
struct Turn { const u16* bias; bool normed, rotated; float norm[EACH], cos[EACH], sin[EACH]; };

DEVICE Turn turn_of(const Memory& memory, const Layer& layer, int what, int own, int place, int lane) {  // what: query, key, value
    const u16* norm = what == 0 ? layer.q_norm : what == 1 ? layer.k_norm : 0;
    Turn turn = {layer.bias[what], norm != 0, what < 2 && layer.kind >= 0, {}, {}, {}};
    if (norm && QK_WHOLE) norm += own * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = lane + 32 * i;
        if (norm) turn.norm[i] = value(norm[e]);
        if (!turn.rotated || e >= ROTATED) continue;
        turn.cos[i] = value(memory.cos[layer.kind][(i64)place * ROTATED + e]), turn.sin[i] = value(memory.sin[layer.kind][(i64)place * ROTATED + e]);
    }
    return turn;
}

// One warp: the row of one head out of `sums`, normed and rotated, as bf16-rounded floats in `row`.
DEVICE void head_row(float* row, const float* sums, int what, int own, const Turn& turn, int lane) {
    constexpr int WIDTH = rows_of(QKV);
    const int matrix = (what == 0 ? 0 : what == 1 ? Q_HEADS : Q_HEADS + KV_HEADS) * HEAD_DIM;
    float v[EACH], squares = 0.f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = own * HEAD_DIM + lane + 32 * i;
        v[i] = rounded(fresh(sums + matrix + e) + fresh(sums + WIDTH + matrix + e) + (turn.bias ? value(turn.bias[e]) : 0.f));
        squares += v[i] * v[i];
    }
    if (turn.normed) {
        const int width = (what == 0 ? Q_HEADS : KV_HEADS) * HEAD_DIM;
        if (QK_WHOLE) {
            squares = 0.f;
            for (int e = lane; e < width; e += 32) {
                const float w = rounded(fresh(sums + matrix + e) + fresh(sums + WIDTH + matrix + e) + (turn.bias ? value(turn.bias[e]) : 0.f));
                squares += w * w;
            }
        }
        const float inverse = rsqrtf(warp_sum(squares) * (QK_WHOLE ? 1.f / width : 1.f / HEAD_DIM) + EPS);
#pragma unroll
        for (int i = 0; i < EACH; ++i) v[i] = normed(v[i], inverse, turn.norm[i]);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
    if (!turn.rotated) return;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = lane + 32 * i;
        if (e >= ROTATED) continue;
        const float other = e < ROTATED / 2 ? -row[e + ROTATED / 2] : row[e - ROTATED / 2];
        v[i] = rounded(rounded(v[i] * turn.cos[i]) + rounded(other * turn.sin[i]));
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
            if (HAS_ATTENTION_CAP) score[u] = ATTENTION_CAP * tanhf(score[u] / ATTENTION_CAP);
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

// AT_ONCE keys and values of this lane's columns, from key `base` on; the newest, at `place`, is not in the cache yet.
struct Seen { uint4 k[AT_ONCE], v[AT_ONCE]; };

DEVICE void load_keys(Seen& s, const u16* keys, const u16* values, int base, int high, int place, int lane) {
    const int column = lane % LANES * 8;
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) {
        const i64 j = base + u * ALL_GROUPS;
        s.k[u] = s.v[u] = make_uint4(0, 0, 0, 0);
        if (j < high && j != place) s.k[u] = *(const uint4*)(keys + j * HEAD_DIM + column), s.v[u] = *(const uint4*)(values + j * HEAD_DIM + column);
    }
}

// Keys up to `high` - 1 from `base` on, shared out among the block; `s` holds the first, `newest` [2, HEAD_DIM] the row of `place`.
DEVICE Answer look(Seen& s, const float* rows, const u16* keys, const u16* values, const u16* newest, int place, int base, int high, int lane) {
    const int column = lane % LANES * 8;
    float query[QUERIES][8];
    Answer a = {};
    for (int h = 0; h < QUERIES; ++h) {
        a.best[h] = -1e30f;
        const float4 low = *(const float4*)(rows + h * HEAD_DIM + column), high4 = *(const float4*)(rows + h * HEAD_DIM + column + 4);
        query[h][0] = low.x, query[h][1] = low.y, query[h][2] = low.z, query[h][3] = low.w;
        query[h][4] = high4.x, query[h][5] = high4.y, query[h][6] = high4.z, query[h][7] = high4.w;
    }
#pragma unroll 1
    for (;;) {
        bool seen[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int j = base + u * ALL_GROUPS;
            seen[u] = j < high;
            if (seen[u] && j == place) s.k[u] = *(const uint4*)(newest + column), s.v[u] = *(const uint4*)(newest + HEAD_DIM + column);
        }
        look_at(a, query, s.k, s.v, seen);
        base += ALL_GROUPS * AT_ONCE;
        if (base - lane / LANES >= high) return a;
        load_keys(s, keys, values, base, high, place, lane);
    }
}

// Adds up what the block's groups of lanes found for its heads, in the room of x: QUERIES times ALL_GROUPS rows.
DEVICE void add_up(const Room& room, const Shared& at, Answer& a, int head, int split) {
    const int t = at.t, lane = t % 32, group = t / 32 * GROUPS + lane / LANES;
    float *best = at.small + 64, *weight = best + QUERIES * ALL_GROUPS;
    if (lane % LANES == 0)
        for (int h = 0; h < QUERIES; ++h) best[h * ALL_GROUPS + group] = a.best[h];
    __syncthreads();
#pragma unroll
    for (int h = 0; h < QUERIES; ++h) {
        float most = -1e30f;
#pragma unroll
        for (int i = 0; i < ALL_GROUPS; ++i) most = fmaxf(most, best[h * ALL_GROUPS + i]);
        const float keep = exp2f(a.best[h] - most);
        if (lane % LANES == 0) weight[h * ALL_GROUPS + group] = keep * a.weight[h];
        if (t == 0) best[QUERIES * ALL_GROUPS * 2 + h] = most;
        const int i = (h * ALL_GROUPS + group) * HEAD_DIM + lane % LANES * 8;
        float* to = (float*)(at.x + i / 32 * X_STRIDE + i % 32 * 4);
        *(float4*)to = make_float4(keep * a.part[h][0], keep * a.part[h][1], keep * a.part[h][2], keep * a.part[h][3]);
        *(float4*)(to + 4) = make_float4(keep * a.part[h][4], keep * a.part[h][5], keep * a.part[h][6], keep * a.part[h][7]);
    }
    __syncthreads();
    for (int e = t; e < QUERIES * HEAD_DIM; e += THREADS) {
        const int h = e / HEAD_DIM, word = h * ALL_GROUPS * HEAD_DIM + e % HEAD_DIM, to = (head + h) * MOST_SPLITS + split;
        const u8* from = at.x + word / 32 * X_STRIDE + word % 32 * 4;
        float total = 0.f, answer = 0.f;
#pragma unroll
        for (int i = 0; i < ALL_GROUPS; ++i) total += weight[h * ALL_GROUPS + i], answer += *(const float*)(from + i * (HEAD_DIM / 32) * X_STRIDE);
        room.answers[(i64)to * HEAD_DIM + e % HEAD_DIM] = stored(__fdividef(answer, total));
        if (e % HEAD_DIM == 0) room.marks[to] = make_float2(best[QUERIES * ALL_GROUPS * 2 + h], total);
    }
}

DEVICE void attend(const Room& room, const Shared& at, const Layer& layer, int index, int place, int barriers) {
    const Keys k = keys_of(place, layer.window);
    const int group = blockIdx.x % HEAD_GROUPS, split = blockIdx.x / HEAD_GROUPS, warp = at.t / 32, lane = at.t % 32;
    if (split >= k.used) return await(room, at, barriers);
    const int head = group * QUERIES, kv = head / (Q_HEADS / KV_HEADS), low = k.first + split * k.each;
    const int high = low + k.each < place + 1 ? low + k.each : place + 1, base = low + warp * GROUPS + lane / LANES;
    const int what = warp < QUERIES ? 0 : 1 + warp - QUERIES, own = what ? kv : head + warp;
    const bool busy = warp < QUERIES + 2 * (high == place + 1), writes = head % (Q_HEADS / KV_HEADS) == 0;
    u16 *keys, *values, *newest = (u16*)(at.work + (QUERIES + 2) * HEAD_DIM);
    cache_of(*at.memory, index, kv, keys, values);
    Seen s;
    load_keys(s, keys, values, base, high, place, lane);
    Turn turn;
    if (busy) turn = turn_of(*at.memory, layer, what, own, place, lane);
    await(room, at, barriers);
    if (busy) {
        float* row = at.work + warp * HEAD_DIM;
        head_row(row, room.qkv_sums, what, own, turn, lane);
        for (int e = lane; what && e < HEAD_DIM; e += 32) {
            newest[(what - 1) * HEAD_DIM + e] = stored(row[e]);
            if (writes) (what == 1 ? keys : values)[(i64)place * HEAD_DIM + e] = stored(row[e]);
        }
    }
    __syncthreads();
    Answer a = look(s, at.work, keys, values, newest, place, base, high, lane);
    add_up(room, at, a, head, split);
}

// The heads' answers, added up over their ranges of keys, as the row for O; eight columns a thread.
DEVICE void answers_to_x(const Room& room, const Shared& at, int window, int place) {
    const int used = keys_of(place, window).used;
    for (int e = at.t * 8; e < Q_HEADS * HEAD_DIM; e += THREADS * 8) {
        const int from = e / HEAD_DIM * MOST_SPLITS;
        float2 mark[MOST_SPLITS];
        uint4 part[MOST_SPLITS];
        float most = -1e30f, total = 0.f, sum[8] = {};
#pragma unroll
        for (int i = 0; i < MOST_SPLITS; ++i) {
            mark[i] = make_float2(-1e30f, 0.f), part[i] = make_uint4(0, 0, 0, 0);
            if (i < used) mark[i] = fresh2(room.marks + from + i), part[i] = fresh_eight(room.answers + (i64)(from + i) * HEAD_DIM + e % HEAD_DIM);
        }
#pragma unroll
        for (int i = 0; i < MOST_SPLITS; ++i) most = fmaxf(most, mark[i].x);
#pragma unroll
        for (int i = 0; i < MOST_SPLITS; ++i) {
            if (i >= used) break;
            const float share = exp2f(mark[i].x - most) * mark[i].y;
            total += share;
            sum[0] += share * low_of(part[i].x), sum[1] += share * high_of(part[i].x), sum[2] += share * low_of(part[i].y), sum[3] += share * high_of(part[i].y);
            sum[4] += share * low_of(part[i].z), sum[5] += share * high_of(part[i].z), sum[6] += share * low_of(part[i].w), sum[7] += share * high_of(part[i].w);
        }
        const float inverse = __fdividef(1.f, total);
        *(uint4*)x_place(at.x, e) = make_uint4(pack(sum[0] * inverse, sum[1] * inverse), pack(sum[2] * inverse, sum[3] * inverse),
                                               pack(sum[4] * inverse, sum[5] * inverse), pack(sum[6] * inverse, sum[7] * inverse));
    }
}
