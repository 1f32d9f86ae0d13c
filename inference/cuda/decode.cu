// The kernels of one decode or prefill step over 4-bit (NF4 or FP4) weights; compiled at load by `device_code.py`.
//
// In: bitsandbytes' own packed weights (two codes a byte, high nibble first; one float32 scale per 64 of them, no nested
// scales), bfloat16 activations of T rows, a bfloat16 K/V cache. Out: bfloat16 activations, float32 logits, the next id.
// Sums run in float32 and are rounded to bfloat16 where the plain model rounds. Knows no model: heads, head size, the norm's
// form and the activation are macros (HEAD_DIM, Q_HEADS, KV_HEADS, NORM_OFFSET, NORM_ROUNDS, ACTIVATION).
// No includes, so that NVRTC needs no toolkit. Every kernel waits for the one before it (`wait_for_previous`) before it
// touches anything that was not there at load; weights are fetched before that.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;

#ifndef EMULATED
#define DEVICE __device__ __forceinline__
DEVICE u32 pack(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE uint4 stream16(const void* p) {  // read once: keep it out of L1
    uint4 v; asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); return v;
}
DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
DEVICE void mma(float* c, const u32* a, u32 b0, u32 b1) {  // c[16x8] += a[16x16] b[16x8], bf16 in, float32 out
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#define ALL 0xffffffffu
#endif

DEVICE float low_of(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float value(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEVICE float rounded(float v) { return low_of(pack(v, 0.f)); }
DEVICE u16 bits_of(float v) { return (u16)(pack(v, 0.f) & 0xffffu); }

DEVICE float warp_sum(float v, int width = 32) {
    for (int step = width / 2; step; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

DEVICE float normed(float v, float inverse_rms, float weight) {
    v *= inverse_rms;
    return rounded((NORM_ROUNDS ? rounded(v) : v) * (NORM_OFFSET + weight));
}

DEVICE float activated(float v) {
#if ACTIVATION == 0
    return rounded(v / (1.f + expf(-v)));
#elif ACTIVATION == 1
    return rounded(0.5f * v * (1.f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v))));
#else
    return rounded(0.5f * v * (1.f + erff(v * 0.7071067811865476f)));
#endif
}

// ---------------------------------------------------------------- 4-bit weights times T <= 8 * NT rows of activations

// Up to three matrices with the same input, one below the other (q, k, v), or gate and up; `rows` of the first two.
struct Weights { const u8* w[3]; const float* absmax[3]; int rows[2]; };

// One warp multiplies a tile of 16 weight rows (TILES == 2: 16 gate rows and the 16 up rows beside them) by all T rows over its
// slice of K, in pairs of blocks of 64 weights with one scale each. Lane q of four holds a quarter of two rows; the order of k
// inside a matrix instruction is free as long as both operands agree on it, but its four lanes must be in one block: they swap
// halves of their 16 bytes, so that loads stay 16 bytes wide. A byte becomes two bfloat16 codes by a table of 256 words that each
// of the 32 banks holds a copy of: no conflicts.
// GATED writes bf16 act(gate) * up [T, n]; otherwise float32 parts [chunks, T, n], one for each chunk of K, for the next kernel to add.
template <int TILES> struct Stage { uint4 w[TILES][2]; float2 scale[TILES][2]; };

// `w` and `absmax` point, for each tile, at this lane's part of its first row; its other row is 8 rows further down.
template <int TILES>
DEVICE void fetch(Stage<TILES>& stage, const u8* const* w, const float* const* absmax, int k, int pair, int q) {
    const int blocks = k / 64;
    const bool whole = pair * 2 + 1 < blocks;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            stage.w[i][half] = make_uint4(0, 0, 0, 0);
            if (whole || q < 2) stage.w[i][half] = stream16(w[i] + half * (k * 4) + pair * 64);
            const float* scale = absmax[i] + half * (k / 8) + pair * 2;
            if (blocks % 2 == 0) stage.scale[i][half] = __ldg((const float2*)scale);
            else stage.scale[i][half] = make_float2(__ldg(scale), whole ? __ldg(scale + 1) : 0.f);
        }
}

DEVICE u32 codes(const u32* table, u32 word, int byte, int lane) {
    u32 offset = (byte ? word >> (8 * byte - 7) : word << 7) & 0x7f80u;
    return *(const u32*)((const u8*)table + (offset | lane * 4));
}

template <int NT, int TILES>
DEVICE void multiply(float (*sum)[NT][4], const uint2 (*w)[2], const float (*scale)[2], const u32* table, const u16* const* x, int block, int lane) {
    uint4 b[NT][2];
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        const uint4* source = (const uint4*)(x[j] + block * 64);
        b[j][0] = source[0], b[j][1] = source[1];
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        u32 a[4][4];
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                u32 word = s < 2 ? w[i][half].x : w[i][half].y;
                a[s][half] = codes(table, word, s % 2 * 2, lane);
                a[s][half + 2] = codes(table, word, s % 2 * 2 + 1, lane);
            }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            float c[4] = {0.f, 0.f, 0.f, 0.f};
            mma(c, a[0], b[j][0].x, b[j][0].y);
            mma(c, a[1], b[j][0].z, b[j][0].w);
            mma(c, a[2], b[j][1].x, b[j][1].y);
            mma(c, a[3], b[j][1].z, b[j][1].w);
            sum[i][j][0] += c[0] * scale[i][0], sum[i][j][1] += c[1] * scale[i][0];
            sum[i][j][2] += c[2] * scale[i][1], sum[i][j][3] += c[3] * scale[i][1];
        }
    }
}

template <int NT, int TILES>
DEVICE void multiply_pair(float (*sum)[NT][4], const Stage<TILES>& stage, const u32* table, const u16* const* x, int pair, int blocks, int lane) {
    const bool lower = lane % 4 < 2;
    uint2 first[TILES][2], second[TILES][2];
    float low[TILES][2], high[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint4 v = stage.w[i][half];
            uint2 got;
            got.x = __shfl_xor_sync(ALL, lower ? v.z : v.x, 2), got.y = __shfl_xor_sync(ALL, lower ? v.w : v.y, 2);
            first[i][half] = lower ? make_uint2(v.x, v.y) : got, second[i][half] = lower ? got : make_uint2(v.z, v.w);
            low[i][half] = stage.scale[i][half].x, high[i][half] = stage.scale[i][half].y;
        }
    multiply<NT, TILES>(sum, first, low, table, x, pair * 2, lane);
    if (pair * 2 + 1 < blocks) multiply<NT, TILES>(sum, second, high, table, x, pair * 2 + 1, lane);
}

template <int NT, int TILES, int DEPTH>
DEVICE void matmul(const Weights& weights, const u32* codes_of, float scale, const u16* input, void* out, int n, int k, int t,
                   int chunks, int per_block, int slices, u32* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4, tiles = n / 16, blocks = k / 64, pairs = (blocks + 1) / 2;
    const int item = blockIdx.x * per_block + warp / slices, tile = item % tiles, chunk = item / tiles;
    const bool busy = item < tiles * chunks;
    const int begin = pairs * chunk / chunks, span = pairs * (chunk + 1) / chunks - begin;
    const int low = begin + span * (warp % slices) / slices, high = busy ? begin + span * (warp % slices + 1) / slices : low;
    const u8* w[TILES];
    const float* absmax[TILES];
    int row = tile * 16;
    const bool second = TILES == 1 && row >= weights.rows[0], third = second && row - weights.rows[0] >= weights.rows[1];
    row += lane / 4 - (second ? weights.rows[0] : 0) - (third ? weights.rows[1] : 0);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {  // selected, not indexed: an index would put the struct into local memory
        w[i] = (third ? weights.w[2] : second || i ? weights.w[1] : weights.w[0]) + (i64)row * (k / 2) + q * 16;
        absmax[i] = (third ? weights.absmax[2] : second || i ? weights.absmax[1] : weights.absmax[0]) + (i64)row * blocks;
    }

    Stage<TILES> stage[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; ++d)
        if (low + d < high) fetch(stage[d], w, absmax, k, low + d, q);
    for (int i = threadIdx.x; i < 256 * 8; i += blockDim.x) {
        u32 pair = __ldg(codes_of + i / 8);
        ((uint4*)shared)[i] = make_uint4(pair, pair, pair, pair);
    }
    let_next_start();
    __syncthreads();
    wait_for_previous();

    const u16* x[NT];
#pragma unroll
    for (int j = 0; j < NT; ++j)  // rows beyond T repeat the last: their columns are never read
        x[j] = input + (i64)(lane / 4 + 8 * j < t ? lane / 4 + 8 * j : t - 1) * k + q % 2 * 32 + q / 2 * 16;
    float sum[TILES][NT][4] = {};
    for (int pair = low; pair < high; pair += DEPTH)
#pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            if (pair + d < high) {
                Stage<TILES> now = stage[d];
                if (pair + d + DEPTH < high) fetch(stage[d], w, absmax, k, pair + d + DEPTH, q);
                multiply_pair<NT, TILES>(sum, now, shared, x, pair + d, blocks, lane);
            }

    __syncthreads();  // the table is done with: its room takes the slices' sums
    float* parts = (float*)shared;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int j = 0; j < NT; ++j)
#pragma unroll
            for (int v = 0; v < 4; ++v)
                parts[((warp * TILES + i) * 16 + lane / 4 + v / 2 * 8) * (8 * NT) + j * 8 + lane % 4 * 2 + v % 2] = sum[i][j][v];
    __syncthreads();
    for (int i = threadIdx.x; i < per_block * 16 * t; i += blockDim.x) {
        int r = i % 16, token = i / 16 % t, local = i / 16 / t, which = blockIdx.x * per_block + local;
        if (which >= tiles * chunks) continue;
        float total[TILES] = {};
        for (int s = 0; s < slices; ++s)
            for (int part = 0; part < TILES; ++part)
                total[part] += parts[(((local * slices + s) * TILES + part) * 16 + r) * (8 * NT) + token];
        i64 column = which % tiles * 16 + r;
        if (TILES == 2) ((u16*)out)[token * (i64)n + column] = bits_of(activated(rounded(total[0] * scale)) * rounded(total[TILES - 1] * scale));
        else ((float*)out)[((i64)(which / tiles) * t + token) * n + column] = total[0] * scale;
    }
}

#define MATMUL_KERNEL(NAME, NT, TILES, WARPS, DEPTH)                                                                            \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME##_##NT(Weights weights, const u32* codes_of, float scale,       \
            const u16* x, void* out, int n, int k, int t, int chunks, int per_block, int slices) {                                \
        extern __shared__ __align__(16) u32 shared[];                                                                             \
        matmul<NT, TILES, DEPTH>(weights, codes_of, scale, x, out, n, k, t, chunks, per_block, slices, shared);                      \
    }
MATMUL_KERNEL(parts, 1, 1, 16, 2)
MATMUL_KERNEL(gated, 1, 2, 16, 1)
MATMUL_KERNEL(parts, 2, 1, 16, 2)
MATMUL_KERNEL(gated, 2, 2, 16, 1)
MATMUL_KERNEL(parts, 4, 1, 12, 1)
MATMUL_KERNEL(gated, 4, 2, 12, 1)

// ---------------------------------------------------------------- residual stream and norms

DEVICE float block_sum(float v, float* scratch) {  // every thread gets the sum; scratch holds 32 floats, used once
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0.f);
}

// One block a row: stream += norm(sum of parts) (the norm only if `after` is given; nothing is added if chunks == 0),
// then x = norm(stream) with `before`. Both [T, n] bf16; n <= 16 * threads, n % 4 == 0.
extern "C" __global__ void __launch_bounds__(1024) add_and_norm(const float* parts, int chunks, const u16* after, u16* stream,
        const u16* before, u16* x, int n, float eps) {
    __shared__ float scratch[2][32];
    const i64 base = (i64)blockIdx.x * n, stride = (i64)gridDim.x * n;
    float v[4][4];
    uint2 after_weight[4], before_weight[4];
    let_next_start();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        after_weight[i] = before_weight[i] = make_uint2(0, 0);
        if (e >= n) continue;
        before_weight[i] = __ldg((const uint2*)(before + e));
        if (after) after_weight[i] = __ldg((const uint2*)(after + e));
    }
    wait_for_previous();
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        for (int c = 0; c < 4; ++c) v[i][c] = 0.f;
        if (e >= n) continue;
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
        uint2 old = *(const uint2*)(stream + base + e), weight = after_weight[i];
        float o[4] = {low_of(old.x), high_of(old.x), low_of(old.y), high_of(old.y)};
        float w[4] = {low_of(weight.x), high_of(weight.x), low_of(weight.y), high_of(weight.y)};
        for (int c = 0; c < 4; ++c) {
            v[i][c] = rounded(o[c] + (after ? normed(v[i][c], inverse, w[c]) : v[i][c]));
            squares += v[i][c] * v[i][c];
        }
        *(uint2*)(stream + base + e) = make_uint2(pack(v[i][0], v[i][1]), pack(v[i][2], v[i][3]));
    }
    inverse = rsqrtf(block_sum(squares, scratch[1]) / n + eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int e = (i * blockDim.x + threadIdx.x) * 4;
        if (e >= n) continue;
        uint2 weight = before_weight[i];
        float w[4] = {low_of(weight.x), high_of(weight.x), low_of(weight.y), high_of(weight.y)};
        for (int c = 0; c < 4; ++c) v[i][c] = normed(v[i][c], inverse, w[c]);
        *(uint2*)(x + base + e) = make_uint2(pack(v[i][0], v[i][1]), pack(v[i][2], v[i][3]));
    }
}
