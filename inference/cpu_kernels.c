/* Products of FP32 rows with a matrix kept in FP32, bf16, fp16 or NF4; every weight is converted to FP32 in registers
 * and all sums are FP32. x: m rows of k; w: n rows of k; y: m rows of n. The one-row product streams w once; the
 * many-row one converts four rows of w at a time into a scratch that stays in the first-level cache. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define W 8       /* floats in a vector */
#define BLOCK 768 /* columns of w converted at a time */

typedef float vf __attribute__((vector_size(W * 4)));
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

#if defined(__AVX__)
static inline void totals(const vf *a, float *out) {
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a[0], (__m256)a[1]), _mm256_hadd_ps((__m256)a[2], (__m256)a[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}
#else
static inline void totals(const vf *a, float *out) { for (int r = 0; r < 4; r++) out[r] = total(a[r]); }
#endif

/* Four rows of FP32 scratch (k columns, stride BLOCK) against `columns` (a constant) rows of x. */
static inline __attribute__((always_inline)) void tile_of(
    const int columns, const float *x, long xs, const float *s, long k, float *y, long ys, long rows, const float *bias, int first) {
    vf a[3][4];
    for (int c = 0; c < columns; c++) for (int r = 0; r < 4; r++) a[c][r] = (vf){0};
    for (long i = 0; i < k; i += W) {
        vf v[3];
        for (int c = 0; c < columns; c++) v[c] = load_f32(x + c * xs + i);
        for (int r = 0; r < 4; r++) {
            vf w = load_f32(s + r * BLOCK + i);
            for (int c = 0; c < columns; c++) a[c][r] += w * v[c];
        }
    }
    for (int c = 0; c < columns; c++) {
        float sums[4]; totals(a[c], sums);
        for (int r = 0; r < rows; r++) {
            float *out = y + c * ys + r;
            *out = sums[r] + (first ? (bias ? bias[r] : 0) : *out);
        }
    }
}

/* The same for m rows of x, added to what y holds unless `first`. */
static void tile(const float *x, long xs, const float *s, long k, float *y, long ys, long m, long rows, const float *bias, int first) {
    long j = 0;
    for (; j + 3 <= m; j += 3) tile_of(3, x + j * xs, xs, s, k, y + j * ys, ys, rows, bias, first);
    if (m - j == 2) tile_of(2, x + j * xs, xs, s, k, y + j * ys, ys, rows, bias, first);
    if (m - j == 1) tile_of(1, x + j * xs, xs, s, k, y + j * ys, ys, rows, bias, first);
}

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
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                                 \
        for (long q = 0; q < (n + 3) / 4; q++) {                                                                          \
            float s[4 * BLOCK] __attribute__((aligned(32)));                                                              \
            long r0 = q * 4, rows = n - r0 < 4 ? n - r0 : 4;                                                              \
            for (long c = 0; c < k; c += BLOCK) {                                                                         \
                long width = k - c < BLOCK ? k - c : BLOCK;                                                               \
                for (long r = 0; r < rows; r++) for (long i = 0; i < width; i += W) {                                     \
                    vf v = load_##NAME(w + (r0 + r) * k + c + i); memcpy(s + r * BLOCK + i, &v, sizeof v);                \
                }                                                                                                         \
                if (rows < 4) memset(s + rows * BLOCK, 0, sizeof(float) * BLOCK * (4 - rows));                            \
                tile(x + c, k, s, width, y + r0, n, m, rows, bias ? bias + r0 : 0, c == 0);                               \
            }                                                                                                             \
        }                                                                                                                 \
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
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (long q = 0; q < (n + 3) / 4; q++) {
        float s[4 * BLOCK] __attribute__((aligned(32)));
        long r0 = q * 4, rows = n - r0 < 4 ? n - r0 : 4;
        for (long c = 0; c < k; c += BLOCK) {
            long width = k - c < BLOCK ? k - c : BLOCK;
            for (long r = 0; r < rows; r++) for (long i = 0; i < width; i += W) {
                long at = (r0 + r) * k + c + i;
                vf v = load_nf4(w + at / 2, t) * ((vf){0} + scale[at / block]); memcpy(s + r * BLOCK + i, &v, sizeof v);
            }
            if (rows < 4) memset(s + rows * BLOCK, 0, sizeof(float) * BLOCK * (4 - rows));
            tile(x + c, k, s, width, y + r0, n, m, rows, bias ? bias + r0 : 0, c == 0);
        }
    }
}
