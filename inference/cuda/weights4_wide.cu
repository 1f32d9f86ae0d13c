// Packed 4-bit weights for `products.cu`, in float32 throughout: for cards without bfloat16 arithmetic. What `weights4.cu` is elsewhere.
//
// Lane q of four holds a quarter of two rows (32 columns: half a block with its scale) and multiplies all T rows of activations with it.

constexpr int UNIT = 128;  // columns: two blocks with one scale each

template <int TILES> struct Stage { uint4 w[TILES][2]; float scale[TILES][2]; };
template <int NT> struct Input { const act* x; int k, t; };
template <int NT, int TILES> struct Sums { float of[TILES][2][8 * NT] = {}; };

DEVICE i64 row_bytes(int k) { return k / 2; }

template <int NT> DEVICE void point(Input<NT>& in, const act* input, int k, int t, int lane) { in.x = input + lane % 4 * 32, in.k = k, in.t = t; }

template <int TILES>
DEVICE void fetch(Stage<TILES>& stage, const u8* const* w, const float* const* absmax, int k, int pair, int q) {
    const bool real = pair * 2 + q / 2 < k / 64;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            stage.w[i][half] = real ? stream16(w[i] + half * (k * 4) + pair * 64) : make_uint4(0, 0, 0, 0);
            stage.scale[i][half] = real ? __ldg(absmax[i] + half * (k / 8) + pair * 2 + q / 2) : 0.f;
        }
}

DEVICE void fill_table(u32* shared, const u32* codes_of) {  // 16 codes, one copy for each bank
    for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x) shared[i] = __ldg(codes_of + i / 32);
}

DEVICE void decode8(float* v, u32 word, float scale, const u32* table, int lane) {
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = __uint_as_float(table[(word >> (e / 2 * 8 + (e % 2 ? 0 : 4)) & 15) * 32 + lane]) * scale;
}

template <int NT, int TILES>
DEVICE void multiply_unit(Sums<NT, TILES>& sum, const Stage<TILES>& stage, const u32* table, const Input<NT>& in, int pair, int k, int lane) {
    if (pair * 2 + lane % 4 / 2 >= k / 64) return;
#pragma unroll 1
    for (int part = 0; part < 4; ++part) {
        float w[TILES][2][8];
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint4 v = stage.w[i][half];
                decode8(w[i][half], part == 0 ? v.x : part == 1 ? v.y : part == 2 ? v.z : v.w, stage.scale[i][half], table, lane);
            }
#pragma unroll
        for (int token = 0; token < 8 * NT; ++token) {
            if (token >= in.t) continue;
            float x[8];
            unpack(load8(in.x + (i64)token * in.k + pair * 128 + part * 8), x);
#pragma unroll
            for (int i = 0; i < TILES; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int e = 0; e < 8; ++e) sum.of[i][half][token] += w[i][half][e] * x[e];
        }
    }
}
