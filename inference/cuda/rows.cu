// What is done to rows of activations between the products: residual stream and norms, gate, projections into queries and cache.

DEVICE float block_sum(float v, float* scratch) {  // every thread gets the sum; scratch holds 32 floats, used once
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0.f);
}

#if WIDE
typedef float4 Four;
DEVICE Four zeros() { return {0.f, 0.f, 0.f, 0.f}; }
DEVICE void unpack(const Four& f, float* v) { v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w; }
#else
typedef uint2 Four;
DEVICE Four zeros() { return make_uint2(0, 0); }
DEVICE void unpack(const Four& u, float* v) { v[0] = low_of(u.x), v[1] = high_of(u.x), v[2] = low_of(u.y), v[3] = high_of(u.y); }
#endif

DEVICE void store4(act* p, const float* v) {
#if WIDE
    for (int c = 0; c < 4; ++c) p[c] = v[c];
#else
    *(uint2*)p = make_uint2(pack(v[0], v[1]), pack(v[2], v[3]));
#endif
}

// One block a row: stream += residual * norm(what comes in) (the norm only if `after` is given), then x = norm(stream) with `before`, or
// the stream itself without. In come float32 `parts` [chunks, T, n] to be added, or a product's whole rows `sums` [T, n]; with neither,
// nothing is added. n <= 16 * threads, n % 4 == 0.
extern "C" __global__ void __launch_bounds__(1024) add_and_norm(const float* parts, int chunks, const act* sums, const act* after, act* stream,
        const act* before, act* x, int n, float eps) {
    __shared__ float scratch[2][32];
    const i64 base = (i64)blockIdx.x * n, stride = (i64)gridDim.x * n;
    float v[4][4];
    Four after_weight[4], before_weight[4];
    let_next_start();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        before_weight[i] = e < n && before ? *(const Four*)(before + e) : zeros();
        after_weight[i] = e < n && after ? *(const Four*)(after + e) : zeros();
    }
    wait_for_previous();
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        for (int c = 0; c < 4; ++c) v[i][c] = 0.f;
        if (e >= n) continue;
        if (sums) unpack(*(const Four*)(sums + base + e), v[i]);
        for (int part = 0; part < chunks; ++part) {
            float4 p = *(const float4*)(parts + part * stride + base + e);
            v[i][0] += p.x, v[i][1] += p.y, v[i][2] += p.z, v[i][3] += p.w;
        }
        for (int c = 0; c < 4; ++c) v[i][c] = rounded(v[i][c]), squares += v[i][c] * v[i][c];
    }
    float inverse = after ? rsqrtf(block_sum(squares, scratch[0]) / n + eps) : 1.f;
    squares = 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        if (e >= n) continue;
        float o[4], w[4];
        unpack(*(const Four*)(stream + base + e), o), unpack(after_weight[i], w);
        for (int c = 0; c < 4; ++c) {
            float added = after ? normed(v[i][c], inverse, w[c]) : v[i][c];
            v[i][c] = rounded(o[c] + (HAS_RESIDUAL_SCALE ? rounded(added * RESIDUAL_SCALE) : added));
            squares += v[i][c] * v[i][c];
        }
        store4(stream + base + e, v[i]);
    }
    inverse = before ? rsqrtf(block_sum(squares, scratch[1]) / n + eps) : 1.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        if (e >= n) continue;
        float w[4];
        unpack(before_weight[i], w);
        for (int c = 0; c < 4 && before; ++c) v[i][c] = normed(v[i][c], inverse, w[c]);
        store4(x + base + e, v[i]);
    }
}

// act(gate) * up of rows [T, 2 * n] (gate, then up) into [T, n]; 8 columns a thread, n % 8 == 0.
extern "C" __global__ void __launch_bounds__(256) gate_rows(const act* both, act* out, int n, int items) {
    let_next_start();
    wait_for_previous();
    const int item = blockIdx.x * 256 + threadIdx.x;
    if (item >= items) return;
    const int each = n / 8;
    const i64 row = item / each, e = item % each * 8;
    float gate[8], up[8];
    unpack(load8(both + row * 2 * n + e), gate);
    unpack(load8(both + row * 2 * n + n + e), up);
#pragma unroll
    for (int i = 0; i < 8; ++i) gate[i] = activated(gate[i]) * up[i];
    store8(out + row * n + e, gate);
}

#if WEIGHT_BITS == 4
// Rows `first` ... of up to three matrices below one another, decoded as bitsandbytes does it: code times scale. 8 values a thread and
// turn; `codes_of` are the 16 codes, of which each lane of a warp holds one.
extern "C" __global__ void __launch_bounds__(256) decode_rows(Weights weights, const float* codes_of, int first, int k, int items, act* out) {
    constexpr int TURNS = 4;
    const int each = k / 8, start = blockIdx.x * 256 * TURNS + threadIdx.x;
    const float code = __ldg(codes_of + threadIdx.x % 16);
    u32 word[TURNS];
    float scale[TURNS];
    let_next_start();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int item = start + turn * 256;
        word[turn] = 0, scale[turn] = 0.f;
        if (item >= items) continue;
        int row = first + item / each, which = matrix_of(weights, row);
        const i64 place = (i64)row * each + item % each;
        word[turn] = __ldg((const u32*)(which == 2 ? weights.w[2] : which ? weights.w[1] : weights.w[0]) + place);
        scale[turn] = __ldg((which == 2 ? weights.absmax[2] : which ? weights.absmax[1] : weights.absmax[0]) + place / 8);
    }
    wait_for_previous();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = __shfl_sync(ALL, code, word[turn] >> (e / 2 * 8 + (e % 2 ? 0 : 4)) & 15) * scale[turn];
        if (start + turn * 256 < items) store8(out + (i64)(start + turn * 256) * 8, v);
    }
}
#endif

// ---------------------------------------------------------------- one head's row: projection, norm, rotation

// Where rows of q, k and v side by side are: float32 `parts` [chunks, T, QKV] to be added, or a product's whole rows `sums` [T, QKV].
constexpr int QKV = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
struct Projected {
    const float* parts;
    const act* sums;
    int chunks, rows;
    METHOD float at(int t, int e) const {
        if (sums) return value(sums[(i64)t * QKV + e]);
        float v = 0.f;
        for (int c = 0; c < chunks; ++c) v += parts[((i64)c * rows + t) * QKV + e];
        return rounded(v);
    }
};
struct Norms { const act *q, *k; float eps; };

// One warp: one head's projection, normalized if `norm` is given and rotated by `cos` and `sin` ([ROTATED] of this position) if given;
// leaves HEAD_DIM floats in `row` (shared). `first`, `heads`: those that WHOLE_NORM norms together.
DEVICE void head_row(float* row, const Projected& from, int t, int head, int first, int heads, const act* norm, float eps,
                     const act* cos, const act* sin, int lane) {
    constexpr int EACH = HEAD_DIM / 32;
    float v[EACH], squares = 0.f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) v[i] = from.at(t, head * HEAD_DIM + lane + 32 * i), squares += v[i] * v[i];
    if (norm) {
        int width = HEAD_DIM;
        if (WHOLE_NORM) {
            width = heads * HEAD_DIM, squares = 0.f;
            for (int e = lane; e < width; e += 32) {
                float other = from.at(t, first * HEAD_DIM + e);
                squares += other * other;
            }
            norm += (head - first) * HEAD_DIM;
        }
        float inverse = rsqrtf(warp_sum(squares) / width + eps);
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
        if (e >= ROTATED) continue;
        float other = e < ROTATED / 2 ? -row[e + ROTATED / 2] : row[e - ROTATED / 2];
        v[i] = rounded(rounded(v[i] * value(cos[e])) + rounded(other * value(sin[e])));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) row[lane + 32 * i] = v[i];
    __syncwarp();
}

// A layer's part of the cache and the tables of its kind (-1: it is not rotated).
struct Place {
    act *keys, *values;  // of one head of keys
    const act *cos, *sin;
    int rows;
    METHOD Place(const Memory* memory, int layer, int kind, int kv) {
        rows = (int)memory->rows;
        const i64 start = ((i64)layer * KV_HEADS + kv) * rows * HEAD_DIM;
        keys = (act*)memory->keys + start, values = (act*)memory->values + start;
        cos = kind < 0 ? 0 : (const act*)memory->cos[kind], sin = kind < 0 ? 0 : (const act*)memory->sin[kind];
    }
    METHOD void head(float* row, const Projected& from, int t, int head, int place, const Norms& norms, int lane) const {
        const bool is_q = head < Q_HEADS, is_v = head >= Q_HEADS + KV_HEADS;
        head_row(row, from, t, head, is_q ? 0 : Q_HEADS, is_q ? Q_HEADS : KV_HEADS, is_v ? 0 : is_q ? norms.q : norms.k, norms.eps,
                 is_v || !cos ? 0 : cos + (i64)place * ROTATED, sin + (cos ? (i64)place * ROTATED : 0), lane);
    }
};

// For prefill, one warp per (head, row), four rows a block: rotated queries to `queries` [T, Q_HEADS, HEAD_DIM], keys and values into the cache at position + row.
extern "C" __global__ void __launch_bounds__(128) place_rows(const float* parts, const act* sums, int chunks, const act* q_norm, const act* k_norm,
        float eps, act* queries, const Memory* memory, int layer, int kind, int rows) {
    __shared__ float shared_rows[4][HEAD_DIM];
    const int warp = threadIdx.x / 32, head = blockIdx.x, t = blockIdx.y * 4 + warp, lane = threadIdx.x % 32, kv = head < Q_HEADS ? 0 : (head - Q_HEADS) % KV_HEADS;
    let_next_start();
    const Place here(memory, layer, kind, kv);
    float* row = shared_rows[warp];
    wait_for_previous();
    if (t >= rows) return;
    const int place = *memory->position + t;
    here.head(row, {parts, sums, chunks, rows}, t, head, place, {q_norm, k_norm, eps}, lane);
    act* target = head < Q_HEADS ? queries + ((i64)t * Q_HEADS + head) * HEAD_DIM
                                 : (head < Q_HEADS + KV_HEADS ? here.keys : here.values) + (i64)place * HEAD_DIM;
    for (int e = lane; e < HEAD_DIM; e += 32) target[e] = stored(row[e]);
}
