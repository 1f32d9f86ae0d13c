// Packed 4-bit weights for `products.cu`, by matrix instructions on bfloat16: two codes a byte, high nibble first, one float32 scale per 64.
//
// Lane q of four holds a quarter of two rows; the order of k inside a matrix instruction is free as long as both operands agree on it,
// but its four lanes must be in one block: they swap halves of their 16 bytes, so that loads stay 16 bytes wide. A byte becomes two
// bfloat16 codes by a table of 256 words that each of the 32 banks holds a copy of: no conflicts.

constexpr int UNIT = 128;  // columns: two blocks with one scale each

template <int TILES> struct Stage { uint4 w[TILES][2]; float2 scale[TILES][2]; };
template <int NT> struct Input { const act* x[NT]; };
template <int NT, int TILES> struct Sums { float of[TILES][NT][4] = {}; };

DEVICE i64 row_bytes(int k) { return k / 2; }

template <int NT> DEVICE void point(Input<NT>& in, const act* input, int k, int t, int lane) {
    const int q = lane % 4;
#pragma unroll
    for (int j = 0; j < NT; ++j)  // rows beyond T repeat the last: their columns are never read
        in.x[j] = input + (i64)(lane / 4 + 8 * j < t ? lane / 4 + 8 * j : t - 1) * k + q % 2 * 32 + q / 2 * 16;
}

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

DEVICE void fill_table(u32* shared, const u32* codes_of) {
    for (int i = threadIdx.x; i < 256 * 8; i += blockDim.x) {
        u32 pair = __ldg(codes_of + i / 8);
        ((uint4*)shared)[i] = make_uint4(pair, pair, pair, pair);
    }
}

DEVICE u32 codes(const u32* table, u32 word, int byte, int lane) {
    u32 offset = (byte ? word >> (8 * byte - 7) : word << 7) & 0x7f80u;
    return *(const u32*)((const u8*)table + (offset | lane * 4));
}

template <int NT, int TILES>
DEVICE void multiply(Sums<NT, TILES>& sum, const uint2 (*w)[2], const float (*scale)[2], const u32* table, const Input<NT>& in, int block, int lane) {
    uint4 b[NT][2];
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        const uint4* source = (const uint4*)(in.x[j] + block * 64);
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
            sum.of[i][j][0] += c[0] * scale[i][0], sum.of[i][j][1] += c[1] * scale[i][0];
            sum.of[i][j][2] += c[2] * scale[i][1], sum.of[i][j][3] += c[3] * scale[i][1];
        }
    }
}

template <int NT, int TILES>
DEVICE void multiply_unit(Sums<NT, TILES>& sum, const Stage<TILES>& stage, const u32* table, const Input<NT>& in, int pair, int k, int lane) {
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
    multiply<NT, TILES>(sum, first, low, table, in, pair * 2, lane);
    if (pair * 2 + 1 < k / 64) multiply<NT, TILES>(sum, second, high, table, in, pair * 2 + 1, lane);
}
