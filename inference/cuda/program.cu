// The whole decode step of one row as one kernel: token -> embedding -> layers -> logits -> next token.
//
// One block on each multiprocessor, all of them at once (a cooperative launch), phase by phase with a barrier of the grid between: QKV,
// attention, O, gate and up, down for each layer, then the head. `ring.cuh` fetches weights across the barriers. Every block recomputes what
// all need (residual stream, norms, the row to multiply): that is cheaper than a further barrier. Sums run in float32 and are rounded to
// bfloat16 where the plain model rounds. Phases `first` ... `last` - 1 are run: where blocks can't all be there at once, one launch a phase.

constexpr int PHASES = 5 * LAYERS + 1;

struct Room {  // in device memory, made once
    const Memory* memory;
    const Layer* layers;
    const u32* pairs;
    const u16* embedding;
    float *qkv_sums, *sums;  // [2, rows]: a tile that two blocks share has a sum in each
    float* answers;          // [Q_HEADS, MOST_SPLITS, HEAD_DIM + 4]: largest score, sum of weights, -, -, weighted sum of values
    u16* inner;              // [INNER]
    u16* streams;            // [2, HIDDEN]: the residual stream between launches
    float *logits, *best;
    int* best_index;
    u32* counters;           // [2]: barriers passed, blocks that are through
};

constexpr int MOST(int a, int b) { return a > b ? a : b; }
constexpr int TABLE_BYTES = FORMATS ? (WIDE_TABLE ? 65536 : 8192) : 0;
constexpr int X_BLOCKS = MOST(128, (MOST(MOST(HIDDEN, INNER), Q_HEADS * HEAD_DIM) + 255) / 256 * 4);
constexpr int X_AT = WIDE_TABLE ? 128 : TABLE_BYTES, LAYERS_AT = WIDE_TABLE ? TABLE_BYTES : TABLE_BYTES + X_BLOCKS * 128;
constexpr int STREAM_AT = LAYERS_AT + (LAYERS + 1) * (int)sizeof(Layer), WORK_AT = STREAM_AT + HIDDEN * 2;
constexpr int WORK_BYTES = MOST((MOST_TILES + WARPS) * 64, (QUERIES + 3) * HEAD_DIM * 4);
constexpr int SMALL_AT = WORK_AT + WORK_BYTES, RING_AT = SMALL_AT + 1024;

// What a block keeps in shared memory.
struct Shared {
    u8 *table, *x;
    Layer* layers;
    u16* stream;
    float *work, *small;
    u8* ring;  // this warp's slots
};

DEVICE Shared shared_parts(u8* base) {
    return {base, base + X_AT, (Layer*)(base + LAYERS_AT), (u16*)(base + STREAM_AT), (float*)(base + WORK_AT), (float*)(base + SMALL_AT),
            base + RING_AT + threadIdx.x / 32 * DEPTH * SLOT};
}

// ---------------------------------------------------------------- barriers of the grid

DEVICE void arrive(const Room& room) {
    __syncthreads();
    if (threadIdx.x == 0) signal(room.counters);
}

DEVICE void await(const Room& room, int barriers) {  // barriers since the launch; the last block of a step sets the counter back
    if (threadIdx.x == 0 && barriers) while (!reached(room.counters, barriers * gridDim.x)) {}
    __syncthreads();
}

DEVICE float block_sum(float v, float* scratch) {  // every thread gets the sum; scratch holds 16 floats, free again after the next barrier
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    const float4* all = (const float4*)scratch;
    const float4 a = all[0], b = all[1], c = all[2], d = all[3];
    return (a.x + a.y + a.z + a.w) + (b.x + b.y + b.z + b.w) + (c.x + c.y + c.z + c.w) + (d.x + d.y + d.z + d.w);
}

// ---------------------------------------------------------------- the residual stream, in fours of a thread

constexpr int FOURS = (HIDDEN / 4 + THREADS - 1) / THREADS;
struct Four { float v[4]; };

DEVICE Four unpacked(uint2 v) { return {low_of(v.x), high_of(v.x), low_of(v.y), high_of(v.y)}; }
DEVICE uint2 packed(const Four& f) { return make_uint2(pack(f.v[0], f.v[1]), pack(f.v[2], f.v[3])); }

// Norm weights of this thread, fetched before a barrier.
struct Norm { bool there; uint2 weight[FOURS]; };

DEVICE Norm norm_of(const u16* weight) {
    Norm norm = {weight != 0, {}};
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        norm.weight[i] = weight && e < HIDDEN ? *(const uint2*)(weight + e) : make_uint2(0, 0);
    }
    return norm;
}

DEVICE void apply(const Norm& norm, Four* v, float* scratch) {
    if (!norm.there) return;
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < FOURS; ++i)
        for (int c = 0; c < 4; ++c) squares += v[i].v[c] * v[i].v[c];
    const float inverse = rsqrtf(block_sum(squares, scratch) / HIDDEN + EPS);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const Four weight = unpacked(norm.weight[i]);
        for (int c = 0; c < 4; ++c) v[i].v[c] = normed(v[i].v[c], inverse, weight.v[c]);
    }
}

DEVICE void embed(const Room& room, const Shared& at) {
    const i64 token = *room.memory->token;
    for (int e = threadIdx.x; e < HIDDEN; e += THREADS)
        at.stream[e] = bits_of(rounded(value(room.embedding[token * HIDDEN + e]) * EMBED_SCALE) * THEN_SCALE);
    __syncthreads();
}

// stream += residual scale * after(sums + bias), if there are sums; x = before(stream).
DEVICE void stream_to_x(const Shared& at, const float* sums, const u16* bias, const Norm& after, const Norm& before) {
    Four v[FOURS], old[FOURS];
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        v[i] = old[i] = {};
        if (e >= HIDDEN) continue;
        old[i] = unpacked(*(const uint2*)(at.stream + e));
        if (!sums) continue;
        const float4 a = fresh4(sums + e), b = fresh4(sums + HIDDEN + e);
        const Four more = bias ? unpacked(*(const uint2*)(bias + e)) : Four{};
        v[i] = {rounded(a.x + b.x + more.v[0]), rounded(a.y + b.y + more.v[1]), rounded(a.z + b.z + more.v[2]), rounded(a.w + b.w + more.v[3])};
    }
    if (sums) apply(after, v, at.small);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        for (int c = 0; c < 4; ++c) v[i].v[c] = sums ? rounded(old[i].v[c] + (RESIDUAL_SCALE == 1.f ? v[i].v[c] : rounded(v[i].v[c] * RESIDUAL_SCALE))) : old[i].v[c];
        if (e < HIDDEN) *(uint2*)(at.stream + e) = packed(v[i]);
    }
    apply(before, v, at.small + 16);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        if (e < HIDDEN) *(uint2*)x_place(at.x, e) = packed(v[i]);
    }
}

DEVICE void clear_rest(const Shared& at, int columns) {  // up to a whole piece
    for (int e = columns + threadIdx.x * 4; RAGGED && e < (columns + 255) / 256 * 256; e += THREADS * 4) *(uint2*)x_place(at.x, e) = make_uint2(0, 0);
}

DEVICE void inner_to_x(const Room& room, const Shared& at) {
    constexpr int EACH = (INNER / 4 + THREADS - 1) / THREADS;
    uint2 v[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        if (e < INNER) v[i] = fresh_pairs(room.inner + e);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        if (e < INNER) *(uint2*)x_place(at.x, e) = v[i];
    }
}

// ---------------------------------------------------------------- products

// This warp's pieces; the sum over its part of a tile is left at work[tile + warp], 16 rows: no two meet there.
template <bool FOUR> DEVICE void multiply_share(const Shared& at, Feed& feed, const Span& block) {
    const Span mine = warp_share(block);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = block.low / block.pieces;
    int tile = mine.low / mine.pieces, piece = mine.low % mine.pieces;
    float sum[2] = {};
    uint4 x[4] = {};
    for (int n = mine.low; n < mine.high; ++n) {
        wait_groups<DEPTH - 1>();
        const u8* slot = at.ring + feed.slot * SLOT;
        if (FOUR) multiply_codes(sum, slot, at.table, at.x, piece, x);
        else multiply_values(sum, slot, at.x, piece, x);
        fetch(feed, at.ring, at.layers);
        if (++piece < mine.pieces && n + 1 < mine.high) continue;
        if (lane % 4 == 0) {
            float* to = at.work + (tile - first + warp) * 16 + lane / 4;
            to[0] = sum[0], to[8] = sum[1], sum[0] = sum[1] = 0.f;
        }
        piece = 0, ++tile;
    }
    __syncthreads();
}

// Row `row` of tile `tile` of this block's share, added up over its warps.
DEVICE float total_of(const Shared& at, const Span& block, int tile, int row, float unscale) {
    const int first = block.low / block.pieces, count = block.high - block.low;
    int low = (first + tile) * block.pieces - block.low, high = low + block.pieces;
    low = low > 0 ? low : 0, high = high < count ? high : count;
    const int warps = warps_for(count), last_warp = (high * warps - 1) / count;
    float total = 0.f;
    for (int warp = ((low + 1) * warps - 1) / count; warp <= last_warp; ++warp) total += at.work[(tile + warp) * 16 + row];
    return total * unscale;
}

DEVICE int tiles_in(const Span& block) { return block.high > block.low ? (block.high - 1) / block.pieces - block.low / block.pieces + 1 : 0; }

// Sums of a matrix whose tiles are cut anywhere: the half with a tile's first piece goes to sums[0], the other to sums[1].
template <int KIND> DEVICE void multiply_cut(const Shared& at, Feed& feed, int layer, float* sums) {
    const Span block = share_of(layer * 4 + KIND);
    multiply_share<is_four_bit(KIND)>(at, feed, block);
    const int first = block.low / block.pieces;
    for (int i = threadIdx.x; i < tiles_in(block) * 16; i += THREADS) {
        const int tile = i / 16, row = (first + tile) * 16 + i % 16;
        const float total = total_of(at, block, tile, i % 16, is_four_bit(KIND) ? UNSCALE : 1.f);
        const bool starts = (first + tile) * block.pieces >= block.low, ends = (first + tile + 1) * block.pieces <= block.high;
        if (row >= rows_of(KIND)) continue;
        sums[(starts ? 0 : rows_of(KIND)) + row] = total;
        if (starts && ends) sums[rows_of(KIND) + row] = 0.f;
    }
}

DEVICE void multiply_gated(const Room& room, const Shared& at, Feed& feed, int index) {
    const Span block = share_of(index * 4 + GATED);
    const Layer& layer = at.layers[index];
    multiply_share<is_four_bit(GATED)>(at, feed, block);
    for (int i = threadIdx.x; i < tiles_in(block) * 8; i += THREADS) {
        const int row = block.low / block.pieces * 8 + i;
        if (row >= INNER) continue;
        float gate = total_of(at, block, i / 8, i % 8, is_four_bit(GATED) ? UNSCALE : 1.f), up = total_of(at, block, i / 8, i % 8 + 8, is_four_bit(GATED) ? UNSCALE : 1.f);
        if (layer.bias[4]) gate += value(layer.bias[4][row]);
        if (layer.bias[5]) up += value(layer.bias[5][row]);
        room.inner[row] = bits_of(activated(rounded(gate)) * rounded(up));
    }
}
