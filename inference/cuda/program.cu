// The whole decode step of one row as one kernel: token -> embedding -> layers -> logits -> next token.
//
// One block on each multiprocessor, all of them at once (a cooperative launch), phase by phase with a barrier of the grid between: QKV,
// attention, O, gate and up, down for each layer, then the head. `ring.cuh` fetches weights across the barriers. Every block recomputes what
// all need (residual stream, norms, the row to multiply): that is cheaper than a further barrier. Sums run in float32 and are rounded to
// bfloat16 where the plain model rounds. Phases `first` ... `last` - 1 are run: where blocks can't all be there at once, one launch a phase.

struct Room {  // in device memory, made once
    const Memory* memory;
    const Weights* weights;
    const Layer* layers;
    const u32* pairs;
    const u16* embedding;
    float *qkv_sums, *sums;  // [2, rows]: a tile that two blocks share has a sum in each
    u16* answers;            // [Q_HEADS, MOST_SPLITS, HEAD_DIM]: of a range of keys
    float2* marks;           // [Q_HEADS, MOST_SPLITS]: its largest score, and its sum of weights
    u16* inner;              // [INNER]
    u16* streams;            // [2, HIDDEN]: the residual stream between launches
    float *logits, *best;
    int* best_index;
    u32* counters;           // [2]: blocks that came to a barrier, blocks that are through
    int layer_count;
    float embed_scale, then_scale, unscale;  // of the embedding, with a rounding after each; of 4-bit products
};

// Addresses (`program.py` lays them out): of the ring, the first LOW_WARPS warps' slots lie below the table.
DEVICE Shared shared_parts(u8* base, int layer_count) {
    u8* origin = base - shared_address(base);
    const int warp = threadIdx.x / 32;
    return {(int)threadIdx.x, layer_count, origin + TABLE_AT, origin + X_AT, (Weights*)(origin + WEIGHTS_AT), (Layer*)(origin + LAYERS_AT), (Memory*)(origin + MEMORY_AT),
            (Part*)(origin + PARTS_AT), (Share*)(origin + SHARES_AT), origin + ENDS_AT, (u16*)(origin + STREAM_AT), (float*)(origin + WORK_AT),
            (float*)(origin + SMALL_AT), origin + (warp < LOW_WARPS ? RING_LOW_AT : RING_AT - LOW_WARPS * DEPTH * SLOT) + warp * DEPTH * SLOT};
}

// ---------------------------------------------------------------- barriers of the grid

DEVICE void arrive(const Room& room, const Shared& at) {
    __syncthreads();
    if (at.t == 0) signal(room.counters);
}

DEVICE void await(const Room& room, const Shared& at, int barriers) {  // barriers since the launch; the last block of a step sets the count back
    if (at.t == 0 && barriers) while (counted(room.counters) < barriers * gridDim.x) {}
    __syncthreads();
}

DEVICE float block_sum(float v, float* scratch, int t) {  // every thread gets the sum; scratch holds WARPS floats, free again after the next barrier
    v = warp_sum(v);
    if (t % 32 == 0) scratch[t / 32] = v;
    __syncthreads();
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; i += 2) {
        const float2 two = *(const float2*)(scratch + i);
        sum += two.x + two.y;
    }
    return sum;
}

// ---------------------------------------------------------------- the residual stream, in fours of a thread

constexpr int FOURS = (HIDDEN / 4 + THREADS - 1) / THREADS;
struct Four { float v[4]; };

DEVICE Four unpacked(uint2 v) { return {low_of(v.x), high_of(v.x), low_of(v.y), high_of(v.y)}; }
DEVICE uint2 packed(const Four& f) { return make_uint2(pack(f.v[0], f.v[1]), pack(f.v[2], f.v[3])); }

// Norm weights of this thread, fetched before a barrier.
struct Norm { bool there; uint2 weight[FOURS]; };

DEVICE Norm norm_of(const u16* weight, int t) {
    Norm norm = {weight != 0, {}};
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + t) * 4;
        norm.weight[i] = weight && e < HIDDEN ? *(const uint2*)(weight + e) : make_uint2(0, 0);
    }
    return norm;
}

DEVICE void apply(const Norm& norm, Four* v, float* scratch, int t) {
    if (!norm.there) return;
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < FOURS; ++i)
        for (int c = 0; c < 4; ++c) squares += v[i].v[c] * v[i].v[c];
    const float inverse = rsqrtf(block_sum(squares, scratch, t) * (1.f / HIDDEN) + EPS);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const Four weight = unpacked(norm.weight[i]);
        for (int c = 0; c < 4; ++c) v[i].v[c] = normed(v[i].v[c], inverse, weight.v[c]);
    }
}

DEVICE void embed(const Room& room, const Shared& at) {
    const i64 token = *at.memory->token;
    for (int e = at.t; e < HIDDEN; e += THREADS)
        at.stream[e] = stored(rounded(value(room.embedding[token * HIDDEN + e]) * room.embed_scale) * room.then_scale);
}

// stream += residual scale * after(sums + bias), if there are sums; x = before(stream).
DEVICE void stream_to_x(const Shared& at, const float* sums, const u16* bias, const Norm& after, const Norm& before) {
    const int t = at.t;
    Four v[FOURS], old[FOURS];
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + t) * 4;
        v[i] = old[i] = {};
        if (e >= HIDDEN) continue;
        old[i] = unpacked(*(const uint2*)(at.stream + e));
        if (!sums) continue;
        const float4 a = fresh4(sums + e), b = fresh4(sums + HIDDEN + e);
        const Four more = bias ? unpacked(*(const uint2*)(bias + e)) : Four{};
        v[i] = {rounded(a.x + b.x + more.v[0]), rounded(a.y + b.y + more.v[1]), rounded(a.z + b.z + more.v[2]), rounded(a.w + b.w + more.v[3])};
    }
    if (sums) apply(after, v, at.small, t);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + t) * 4;
        for (int c = 0; c < 4; ++c) v[i].v[c] = sums ? rounded(old[i].v[c] + (!HAS_RESIDUAL_SCALE ? v[i].v[c] : rounded(v[i].v[c] * RESIDUAL_SCALE))) : old[i].v[c];
        if (e < HIDDEN) *(uint2*)(at.stream + e) = packed(v[i]);
    }
    apply(before, v, at.small + 16, t);
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
        const int e = (i * THREADS + t) * 4;
        if (e < HIDDEN) *(uint2*)x_place(at.x, e) = packed(v[i]);
    }
}

DEVICE void clear_rest(const Shared& at, int columns) {  // up to a whole piece
    for (int e = columns + at.t * 4; RAGGED && e < (columns + 255) / 256 * 256; e += THREADS * 4) *(uint2*)x_place(at.x, e) = make_uint2(0, 0);
}

DEVICE void inner_to_x(const Room& room, const Shared& at) {
    constexpr int EACH = (INNER / 4 + THREADS - 1) / THREADS;
    const int t = at.t;
    uint2 v[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = (i * THREADS + t) * 4;
        if (e < INNER) v[i] = fresh_pairs(room.inner + e);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int e = (i * THREADS + t) * 4;
        if (e < INNER) *(uint2*)x_place(at.x, e) = v[i];
    }
}

// ---------------------------------------------------------------- products

// This warp's pieces; the sum over its part of a tile is left at work[tile + warp], 16 rows: no two meet there.
DEVICE void multiply_share(const Shared& at, Feed& feed, int kind) {
    const int lane = at.t % 32, warp = at.t / 32, pieces = at.parts[kind].pieces;
    const bool four = FORMATS >> (kind < HEAD ? kind : HEAD) & 1;
    const Share share = at.shares[kind * WARPS + warp];
    float* to = at.work + (share.tile - at.parts[kind].first + warp) * 16 + lane / 4;
    int piece = share.in_tile;
    float sum[2] = {};
    uint4 x[4] = {};
    feed.lane = lane;
    for (int left = share.count; left; --left) {
        wait_groups<DEPTH - 1>();
        const u8* slot = at.ring + feed.slot * SLOT;
        if (four) multiply_codes(sum, slot, at.x, piece, x, lane);
        else multiply_values(sum, slot, at.x, piece, x, lane);
        fetch(feed, at);
        if (++piece < pieces && left > 1) continue;
        if (lane % 4 == 0) to[0] = sum[0], to[8] = sum[1];
        piece = 0, to += 16, sum[0] = sum[1] = 0.f;
    }
    __syncthreads();
}

struct Top { float value; int index; };  // index -1, value infinite: some logit is NaN or infinite

DEVICE float finished_logit(float v) {
    v = rounded(v);
    if (HAS_LOGIT_SCALE) v = rounded(v * LOGIT_SCALE);
    if (HAS_LOGIT_CAP) v = rounded(rounded(tanhf(rounded(v / LOGIT_CAP))) * LOGIT_CAP);
    return v;
}

DEVICE void take(Top& top, float v, int index) {
    if (better(v, index, top.value, top.index)) top = {v, index};
}

// The sums of a block's rows, to where the next phase looks for them. A tile that is cut: the half with its first piece to sums[0], the
// other to sums[1].
DEVICE void write_sums(const Room& room, const Shared& at, const Layer& layer, int kind, int from_tile, Top& top) {
    const Part part = at.parts[kind];
    const u8* ends = at.ends + kind * MOST_TILES * 2;
    const int rows = kind == QKV ? rows_of(QKV) : HIDDEN;
    float* sums = kind == QKV ? room.qkv_sums : room.sums;
    for (int i = at.t; i < (part.tiles * 16 + 31) / 32 * 32; i += THREADS) {
        const int local = i / 16, tile = part.first + local, row = i % 16;
        float v = 0.f;
        if (local < part.tiles)
            for (int warp = ends[local * 2]; warp <= ends[local * 2 + 1]; ++warp) v += at.work[(local + warp) * 16 + row];
        v *= part.four ? room.unscale : 1.f;
        const float up = __shfl_xor_sync(ALL, v, 8);
        if (local >= part.tiles) continue;
        if (kind == GATED) {
            const int e = tile * 8 + row;
            if (row >= 8 || e >= INNER) continue;
            const float b = layer.bias[4] ? value(layer.bias[4][e]) : 0.f, c = layer.bias[5] ? value(layer.bias[5][e]) : 0.f;
            room.inner[e] = stored(activated(rounded(v + b)) * rounded(up + c));
        } else if (kind >= HEAD) {
            const int e = (from_tile + tile) * 16 + row;
            if (e >= VOCABULARY) continue;
            v = finished_logit(v + (layer.bias[0] ? value(layer.bias[0][e]) : 0.f));
            room.logits[e] = v;
            if (v < INFINITE) take(top, v, e);
            else top = {INFINITE, -1};
        } else if (tile * 16 + row < rows) {
            const bool starts = tile * part.pieces >= part.low, ends_here = (tile + 1) * part.pieces <= part.high;
            sums[(starts ? 0 : rows) + tile * 16 + row] = v;
            if (starts && ends_here) sums[rows + tile * 16 + row] = 0.f;
        }
    }
}
