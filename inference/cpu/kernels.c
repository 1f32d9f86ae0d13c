/* Products of FP32 rows with a matrix kept in FP32, bf16, fp16 or NF4; every weight is converted to FP32 in registers
 * and all sums are FP32. x: m rows of k; w: n rows of k; y: m rows of n. The one-row product streams w once; the
 * many-row one converts six rows of w at a time into a scratch that stays in the first-level cache. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define W 8       /* floats in a vector */
#define BLOCK 768 /* columns of w converted at a time */
#define GROUP 6   /* rows of w converted at a time */
#ifndef P         /* rows of x side by side in a panel: a whole vector of the widest kind */
#if defined(__AVX512F__)
#define P 16
#else
#define P 8
#endif
#endif

#define UNROLL _Pragma("GCC unroll 6")

typedef float vf __attribute__((vector_size(W * 4)));
typedef float pf __attribute__((vector_size(P * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));

static inline vf load_f32(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }

static inline vf load_bf16(const uint16_t *p) {
    vh h; memcpy(&h, p, sizeof h);
    vu u = __builtin_convertvector(h, vu) << 16;
    return (vf)u;
}

#if defined(__F16C__)
static inline vf load_f16(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
#else
static inline float one_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, mantissa = h & 1023, u; float f;
    if (exponent == 31) u = sign | 0x7f800000u | mantissa << 13;
    else if (exponent) u = sign | (exponent + 112) << 23 | mantissa << 13;
    else { f = mantissa * (1.0f / 16777216.0f); return sign ? -f : f; }
    memcpy(&f, &u, 4); return f;
}
static inline vf load_f16(const uint16_t *p) { vf v; for (int i = 0; i < W; i++) v[i] = one_f16(p[i]); return v; }
#endif

static inline float total(vf v) { float s = 0; for (int i = 0; i < W; i++) s += v[i]; return s; }

static inline pf load_panel(const float *p) { pf v; memcpy(&v, p, sizeof v); return v; }

/* x (m rows of k) as panels of P rows, a panel's P values of a column side by side; rows past m are 0. */
static void pack(const float *x, long m, long k, float *panels, int threads) {
    #pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
    for (long p = 0; p < (m + P - 1) / P; p++) for (long i = 0; i < k; i += W) {
        float *out = panels + p * k * P + i * P;
        for (int r = 0; r < P; r++) for (int j = 0; j < W; j++) out[j * P + r] = p * P + r < m ? x[(p * P + r) * k + i + j] : 0;
    }
}

/* GROUP rows of FP32 scratch against one or two panels (`two`, a constant), added to the sums of each row and panel. One panel takes
 * two columns at a time instead. Either way 12 sums, 2 vectors of x and a weight fill the registers: 95 % of the processor's peak. */
static inline __attribute__((always_inline)) void tile(
    const int two, const float *panels, long k, const float *s, long width, float *sums, long stride) {
    pf a[2][GROUP];
    for (int r = 0; r < GROUP; r++) for (int p = 0; p < 2; p++) a[p][r] = two || p == 0 ? load_panel(sums + r * stride + p * P) : (pf){0};
    for (long i = 0; i < width; i += 2 - two) {
        pf x[2] = {load_panel(panels + i * P), load_panel(panels + (two ? k * P + i * P : i * P + P))};
        UNROLL for (int r = 0; r < GROUP; r++) for (int p = 0; p < 2; p++) a[p][r] += (s[r * BLOCK + i + (two ? 0 : p)] - (pf){0}) * x[p];
    }
    if (!two) for (int r = 0; r < GROUP; r++) a[0][r] += a[1][r];
    for (int r = 0; r < GROUP; r++) for (int p = 0; p <= two; p++) memcpy(sums + r * stride + p * P, &a[p][r], sizeof(pf));
}

/* y = x w' for many rows: GROUP rows of w at a time are converted by WEIGHTS into a scratch that stays in the first-level cache. */
#define MANY_ROWS(WEIGHTS)                                                                                               \
    long count = (m + P - 1) / P, stride = count * P;                                                                     \
    float *panels = aligned_alloc(64, (size_t)(count * k * P * 4 + 63) / 64 * 64);                                         \
    pack(x, m, k, panels, threads);                                                                                       \
    _Pragma("omp parallel num_threads(threads)")                                                                          \
    {                                                                                                                     \
        float s[GROUP * BLOCK] __attribute__((aligned(64)));                                                              \
        float *sums = aligned_alloc(64, ((size_t)GROUP * stride * 4 + 63) & ~(size_t)63);                                                 \
        _Pragma("omp for schedule(static)")                                                                               \
        for (long q = 0; q < (n + GROUP - 1) / GROUP; q++) {                                                              \
            long r0 = q * GROUP, rows = n - r0 < GROUP ? n - r0 : GROUP;                                                  \
            for (long r = 0; r < GROUP; r++) for (long j = 0; j < stride; j++) sums[r * stride + j] = bias && r < rows ? bias[r0 + r] : 0; \
            for (long c = 0; c < k; c += BLOCK) {                                                                         \
                long width = k - c < BLOCK ? k - c : BLOCK;                                                               \
                for (long r = 0; r < rows; r++) for (long i = 0; i < width; i += W) {                                     \
                    vf v = WEIGHTS; memcpy(s + r * BLOCK + i, &v, sizeof v);                                              \
                }                                                                                                         \
                for (long p = 0; p < count; p += 2) {                                                                     \
                    if (p + 1 < count) tile(1, panels + (p * k + c) * P, k, s, width, sums + p * P, stride);              \
                    else tile(0, panels + (p * k + c) * P, k, s, width, sums + p * P, stride);                            \
                }                                                                                                         \
            }                                                                                                             \
            for (long j = 0; j < m; j++) for (long r = 0; r < rows; r++) y[j * n + r0 + r] = sums[r * stride + j];       \
        }                                                                                                                 \
        free(sums);                                                                                                       \
    }                                                                                                                     \
    free(panels);

/* k must be a multiple of W: the caller checks. */
#define PRODUCTS(NAME, TYPE)                                                                                             \
    void one_row_##NAME(const float *x, const TYPE *w, const float *bias, float *y, long n, long k, int threads) {        \
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                                 \
        for (long r = 0; r < n; r++) {                                                                                    \
            const TYPE *p = w + r * k; vf a = {0}, b = {0}, c = {0}, d = {0}; long i = 0;                                 \
            for (; i + 4 * W <= k; i += 4 * W) {                                                                          \
                a += load_f32(x + i) * load_##NAME(p + i); b += load_f32(x + i + W) * load_##NAME(p + i + W);             \
                c += load_f32(x + i + 2 * W) * load_##NAME(p + i + 2 * W);                                                \
                d += load_f32(x + i + 3 * W) * load_##NAME(p + i + 3 * W);                                                \
            }                                                                                                             \
            for (; i < k; i += W) a += load_f32(x + i) * load_##NAME(p + i);                                              \
            y[r] = total((a + b) + (c + d)) + (bias ? bias[r] : 0);                                                       \
        }                                                                                                                 \
    }                                                                                                                     \
    void many_rows_##NAME(const float *x, const TYPE *w, const float *bias, float *y, long m, long n, long k, int threads) { \
        MANY_ROWS(load_##NAME(w + (r0 + r) * k + c + i))                                                                  \
    }

PRODUCTS(f32, float)
PRODUCTS(bf16, uint16_t)
PRODUCTS(f16, uint16_t)

/* NF4: two weights a byte, the first in the high half; one scale for `block` weights of a row (k % block == 0,
 * block % W == 0). The products are those of the dequantized weight: level times scale is rounded first, as there. */
typedef struct { float level[16]; float pair[256][2]; } levels;

void fill_levels(levels *t, const float *code) {
    memcpy(t->level, code, sizeof t->level);
    for (int b = 0; b < 256; b++) { t->pair[b][0] = code[b >> 4]; t->pair[b][1] = code[b & 15]; }
}

#if defined(__AVX2__)
static inline vf load_nf4(const uint8_t *p, const levels *t) {
    uint32_t four; memcpy(&four, p, 4);
    /* a lane of 32 bits for each weight: byte i/2, its high half first */
    __m128i packed = _mm_cvtsi32_si128((int)four), doubled = _mm_unpacklo_epi8(packed, packed);
    __m256i bytes = _mm256_cvtepu8_epi32(doubled);
    __m256i index = _mm256_and_si256(_mm256_srlv_epi32(bytes, _mm256_setr_epi32(4, 0, 4, 0, 4, 0, 4, 0)), _mm256_set1_epi32(15));
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t->level), index);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(t->level + 8), index);
    return (vf)_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
#else
static inline vf load_nf4(const uint8_t *p, const levels *t) {
    float v[W]; for (int i = 0; i < W / 2; i++) memcpy(v + 2 * i, t->pair[p[i]], 8);
    return load_f32(v);
}
#endif

void one_row_nf4(const float *x, const uint8_t *w, const float *scale, const levels *t, const float *bias, float *y,
                 long n, long k, long block, int threads) {
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < n; r++) {
        const uint8_t *p = w + r * k / 2; const float *sc = scale + r * k / block;
        vf a = {0}, b = {0};
        for (long i = 0; i < k; i += block) {
            vf s = (vf){0} + sc[i / block]; long j = i;
            for (; j + 2 * W <= i + block; j += 2 * W) {
                a += load_f32(x + j) * (load_nf4(p + j / 2, t) * s);
                b += load_f32(x + j + W) * (load_nf4(p + (j + W) / 2, t) * s);
            }
            for (; j < i + block; j += W) a += load_f32(x + j) * (load_nf4(p + j / 2, t) * s);
        }
        y[r] = total(a + b) + (bias ? bias[r] : 0);
    }
}

void many_rows_nf4(const float *x, const uint8_t *w, const float *scale, const levels *t, const float *bias, float *y,
                   long m, long n, long k, long block, int threads) {
    MANY_ROWS(load_nf4(w + ((r0 + r) * k + c + i) / 2, t) * ((vf){0} + scale[((r0 + r) * k + c + i) / block]))
}

/* The rest of a layer: what else would be a dozen small operators, each with its own pass and its own dispatch. */

typedef int32_t vi __attribute__((vector_size(W * 4)));

static inline vf all(float f) { return (vf){f, f, f, f, f, f, f, f}; }

/* e^x for x from -87 to 88: 2^n times Cephes' polynomial on the rest. */
static inline vf exp_of(vf x) {
    vf n = (x * all(1.44269504f) + all(12582912.0f)) - all(12582912.0f);
    vf r = x - n * all(0.693359375f) - n * all(-2.12194440e-4f), p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f); p = p * r + all(8.3334519073e-3f); p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f); p = p * r + all(5.0000001201e-1f);
    vi scale = (__builtin_convertvector(n, vi) + 127) << 23;
    return (p * r * r + r + all(1)) * (vf)scale;
}

static inline vf at_least(vf x, float low) { vi keep = x > all(low); return (vf)(((vi)x & keep) | ((vi)all(low) & ~keep)); }

/* y = x / rms(x) * (weight + plus) for m rows of n. */
void rms_norm(const float *x, const float *weight, float plus, float eps, float *y, long m, long n) {
    for (long r = 0; r < m; r++) {
        const float *in = x + r * n; float *out = y + r * n;
        vf a = {0}, b = {0}; long i = 0;
        for (; i + 2 * W <= n; i += 2 * W) { vf v = load_f32(in + i), u = load_f32(in + i + W); a += v * v; b += u * u; }
        for (; i < n; i += W) { vf v = load_f32(in + i); a += v * v; }
        float scale = 1 / __builtin_sqrtf(total(a + b) / n + eps);
        for (i = 0; i < n; i += W) { vf v = load_f32(in + i) * all(scale) * (load_f32(weight + i) + all(plus)); memcpy(out + i, &v, sizeof v); }
    }
}

/* Rotary embedding: x and y are (rows, heads, width), x with the given strides; cos and sin are (rows, width). */
void rotate(const float *x, const float *cos, const float *sin, float *y, long rows, long heads, long width, long row_stride, long head_stride) {
    long half = width / 2;
    for (long r = 0; r < rows; r++) for (long h = 0; h < heads; h++) {
        const float *in = x + r * row_stride + h * head_stride, *c = cos + r * width, *s = sin + r * width;
        float *out = y + (r * heads + h) * width;
        for (long i = 0; i < half; i += W) {
            vf a = load_f32(in + i), b = load_f32(in + half + i);
            vf left = a * load_f32(c + i) - b * load_f32(s + i), right = b * load_f32(c + half + i) + a * load_f32(s + half + i);
            memcpy(out + i, &left, sizeof left); memcpy(out + half + i, &right, sizeof right);
        }
    }
}

/* y = silu(gate) * up, n numbers. */
void silu_times(const float *gate, const float *up, float *y, long n, int threads) {
    #pragma omp parallel for num_threads(threads) schedule(static) if (n > 32768)
    for (long i = 0; i < n; i += W) {
        vf g = load_f32(gate + i), minus = -at_least(-at_least(-g, -87), -88), v = g / (all(1) + exp_of(minus)) * load_f32(up + i);
        memcpy(y + i, &v, sizeof v);
    }
}

/* Causal attention: row i of `rows` sees the keys up to `keys - rows + i`; q (rows, heads), k and v (keys, groups) of `width`,
 * each with its row and head stride; y is (rows, heads, width), width at most 256. */
void attend(const float *q, const float *k, const float *v, float *y, long rows, long heads, long keys, long groups, long width, float scaling,
            const long *strides, int threads) {
    #pragma omp parallel num_threads(threads)
    {
        float *s = aligned_alloc(64, (size_t)(keys + 16) / 16 * 64);
        #pragma omp for schedule(static, 1)
        for (long task = 0; task < rows * heads; task++) {
            long i = task / heads, h = task % heads, g = h / (heads / groups), seen = keys - rows + i + 1;
            const float *query = q + i * strides[0] + h * strides[1], *key = k + g * strides[3], *value = v + g * strides[5];
            float most = -3e38f, sum = 0; vf a[32], parts = {0};
            for (long j = 0; j < seen; j++) {
                vf d = {0}, e = {0}; const float *p = key + j * strides[2]; long c = 0;
                for (; c + 2 * W <= width; c += 2 * W) { d += load_f32(query + c) * load_f32(p + c); e += load_f32(query + c + W) * load_f32(p + c + W); }
                for (; c < width; c += W) d += load_f32(query + c) * load_f32(p + c);
                s[j] = total(d + e) * scaling; most = s[j] > most ? s[j] : most;
            }
            long padded = (seen + W - 1) / W * W;
            for (long j = seen; j < padded; j++) s[j] = -3e38f;
            for (long j = 0; j < padded; j += W) {
                vf e = exp_of(at_least(load_f32(s + j) - all(most), -87)); memcpy(s + j, &e, sizeof e);
            }
            for (long j = seen; j < padded; j++) s[j] = 0;
            for (long j = 0; j < padded; j += W) parts += load_f32(s + j);
            sum = total(parts);
            for (long c = 0; c < width / W; c++) a[c] = all(0);
            for (long j = 0; j < seen; j++) for (long c = 0; c < width / W; c++) a[c] += all(s[j]) * load_f32(value + j * strides[4] + c * W);
            for (long c = 0; c < width / W; c++) { vf o = a[c] / all(sum); memcpy(y + (i * heads + h) * width + c * W, &o, sizeof o); }
        }
        free(s);
    }
}
