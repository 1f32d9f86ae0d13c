// Weights stored as bfloat16 for `products.cu`, by matrix instructions; what `weights4.cu` is for packed ones.
//
// Lane q of four reads columns q * 8 and 32 + q * 8 of each block of 64, 8 at a time, of two rows: the order of k inside a matrix
// instruction is free as long as both operands agree on it, and so every load is of whole sectors.

constexpr int UNIT = 64;

template <int TILES> struct Stage { uint4 w[TILES][2][2]; };
template <int NT> struct Input { const act* x[NT]; };
template <int NT, int TILES> struct Sums { float of[TILES][NT][4] = {}; };

DEVICE i64 row_bytes(int k) { return (i64)k * 2; }

template <int NT> DEVICE void point(Input<NT>& in, const act* input, int k, int t, int lane) {
#pragma unroll
    for (int j = 0; j < NT; ++j)  // rows beyond T repeat the last: their columns are never read
        in.x[j] = input + (i64)(lane / 4 + 8 * j < t ? lane / 4 + 8 * j : t - 1) * k + lane % 4 * 8;
}

template <int TILES>
DEVICE void fetch(Stage<TILES>& stage, const u8* const* w, const float* const*, int k, int block, int) {
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int part = 0; part < 2; ++part) stage.w[i][half][part] = stream16(w[i] + (i64)half * k * 16 + block * 128 + part * 64);
}

DEVICE void fill_table(u32*, const u32*) {}

template <int NT, int TILES>
DEVICE void multiply_unit(Sums<NT, TILES>& sum, const Stage<TILES>& stage, const u32*, const Input<NT>& in, int block, int, int) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
        uint4 b[NT];
#pragma unroll
        for (int j = 0; j < NT; ++j) b[j] = *(const uint4*)(in.x[j] + block * 64 + part * 32);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const uint4 upper = stage.w[i][0][part], lower = stage.w[i][1][part];
            const u32 first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                mma(sum.of[i][j], first, b[j].x, b[j].y);
                mma(sum.of[i][j], second, b[j].z, b[j].w);
            }
        }
    }
}
