/* Weights as they are stored -> FP32 vectors: along a row, or GROUP rows side by side. Every value is converted exactly; one in
 * NF4 is its level times its block's scale, rounded once, as everywhere. Knows no product. */
#ifndef UNPACK_H
#define UNPACK_H
#include "matrix.h"
#include "vectors.h"

#define GROUP (2 * W) /* rows of weights side by side: two vectors */

/* Code i of 8 in a word of 32 bits (little-endian, high half of each byte first) ends at bit SHIFT(i). */
#define SHIFT(i) (4 * ((i) ^ 1))

static inline size_t bytes_of(const struct matrix *w, long weights) {
    return w->kind == F32 ? weights * 4 : w->kind == NF4 ? weights / 2 : weights * 2;
}

static inline const char *place(const struct matrix *w, long row, long column) {
    return (const char *)w->data + bytes_of(w, row * w->columns + column);
}

/* The level of the 4 lowest bits of each lane, whatever stands above them. */
#if W == 16
typedef vf levels16;
INLINE levels16 levels_of(const float *p) { return load(p); }
INLINE vf level_of(vi codes, levels16 l) { return (vf)_mm512_permutexvar_ps((__m512i)codes, (__m512)l); }
#elif W == 8
typedef struct { vf low, high; } levels16;
INLINE levels16 levels_of(const float *p) { return (levels16){load(p), load(p + 8)}; }
INLINE vf level_of(vi codes, levels16 l) {
    __m256 low = _mm256_permutevar8x32_ps((__m256)l.low, (__m256i)codes), high = _mm256_permutevar8x32_ps((__m256)l.high, (__m256i)codes);
    return (vf)_mm256_blendv_ps(low, high, (__m256)_mm256_slli_epi32((__m256i)codes, 28));
}
#endif

#if W == 16
INLINE void transpose(vf v[16]) {
    __m512 a[16], b[16];
    UNROLL for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]); a[i + 1] = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) UNROLL for (int j = 0; j < 2; j++) {
        __m512d p = _mm512_castps_pd(a[i + j]), q = _mm512_castps_pd(a[i + 2 + j]);
        b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q)); b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    }
    UNROLL for (int i = 0; i < 4; i++) { /* b[4 g + i]: column i of each 128 bits of rows 4 g to 4 g + 3 */
        __m512 p = _mm512_shuffle_f32x4(b[i], b[4 + i], 0x88), q = _mm512_shuffle_f32x4(b[i], b[4 + i], 0xdd);
        __m512 r = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0x88), s = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0xdd);
        v[i] = (vf)_mm512_shuffle_f32x4(p, r, 0x88); v[8 + i] = (vf)_mm512_shuffle_f32x4(p, r, 0xdd);
        v[4 + i] = (vf)_mm512_shuffle_f32x4(q, s, 0x88); v[12 + i] = (vf)_mm512_shuffle_f32x4(q, s, 0xdd);
    }
}
#elif W == 8
INLINE void transpose(vf v[8]) {
    __m256 a[8], b[8];
    UNROLL for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]); a[i + 1] = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) UNROLL for (int j = 0; j < 2; j++) {
        b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0x44); b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0xee);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = (vf)_mm256_permute2f128_ps(b[i], b[4 + i], 0x20); v[4 + i] = (vf)_mm256_permute2f128_ps(b[i], b[4 + i], 0x31);
    }
}
#else
INLINE void transpose(vf v[4]) {
    vf a = v[0], b = v[1], c = v[2], d = v[3];
    UNROLL for (int i = 0; i < 4; i++) v[i] = (vf){a[i], b[i], c[i], d[i]};
}
#endif

/* The words `i` to `i` + W of a row, zeros past `words`. */
#if W == 16
INLINE vi words_of(const char *p, long words) {
    return (vi)_mm512_maskz_loadu_epi32(words >= W ? 0xffff : (1u << words) - 1, p);
}
#elif W == 8
INLINE vi words_of(const char *p, long words) {
    if (words >= W) return (vi)_mm256_loadu_si256((const __m256i *)p);
    return (vi)_mm256_maskload_epi32((const int *)p, (__m256i)((vi){0, 1, 2, 3, 4, 5, 6, 7} < (vi){0} + (int)words));
}
#endif

/* What follows: n columns (a multiple of 16) from `column` on of the W rows `row` -> out[c * GROUP], a vector for each column c. */
INLINE void columns_of_values(const struct matrix *w, const long row[W], long column, long n, float *out) {
    for (long c = 0; c < n; c += W) {
        vf v[W];
        UNROLL for (int i = 0; i < W; i++) {
            const void *p = place(w, row[i], column + c);
            v[i] = w->kind == F32 ? load(p) : w->kind == F16 ? load_f16(p) : load_bf16(p);
        }
        transpose(v);
        UNROLL for (int i = 0; i < W; i++) store(out + (c + i) * GROUP, v[i]);
    }
}

#if W > 4
/* Words of two values are transposed, and then parted: half the shuffles. */
INLINE void columns_of_bf16(const struct matrix *w, const long row[W], long column, long n, float *out) {
    for (long c = 0; c < n; c += 2 * W) {
        vf v[W];
        UNROLL for (int i = 0; i < W; i++) v[i] = (vf)words_of(place(w, row[i], column + c), (n - c) / 2);
        transpose(v);
        UNROLL for (int i = 0; i < W; i++) if (c + 2 * i < n) {
            store(out + (c + 2 * i) * GROUP, (vf)((vu)v[i] << 16));
            store(out + (c + 2 * i + 1) * GROUP, (vf)((vu)v[i] & 0xffff0000u));
        }
    }
}

INLINE void columns_of_nf4(const struct matrix *w, const long row[W], long column, long n, float *out) {
    long blocks = w->columns / w->block;
    const levels16 levels = levels_of(w->levels);
    for (long c = 0; c < n; c += 8 * W) {
        vf v[W], scale = all(0);
        UNROLL for (int i = 0; i < W; i++) v[i] = (vf)words_of(place(w, row[i], column + c), (n - c) / 8);
        transpose(v);
        UNROLL for (int i = 0; i < W; i++) if (c + 8 * i < n) {
            long at = column + c + 8 * i;
            if (i == 0 || at % w->block == 0) for (int j = 0; j < W; j++) scale[j] = w->scales[row[j] * blocks + at / w->block];
            UNROLL for (int j = 0; j < 8; j++)
                store(out + (c + 8 * i + j) * GROUP, level_of((vi)((vu)v[i] >> SHIFT(j)), levels) * scale);
        }
    }
}
#else
INLINE void columns_of_nf4(const struct matrix *w, const long row[W], long column, long n, float *out) {
    for (int i = 0; i < W; i++) for (long c = 0; c < n; c += 2) {
        long at = row[i] * w->columns + column + c;
        unsigned char codes = ((const unsigned char *)w->data)[at / 2];
        float scale = w->scales[at / w->block];
        out[c * GROUP + i] = w->levels[codes >> 4] * scale; out[(c + 1) * GROUP + i] = w->levels[codes & 15] * scale;
    }
}
#define columns_of_bf16 columns_of_values
#endif

/* n columns from `column` on of the GROUP rows from `first` on, the last of `rows` repeated past it -> out[c * GROUP + i]. */
static void unpack(const struct matrix *w, long first, long rows, long column, long n, float *out) {
    for (int half = 0; half < 2; half++, out += W) {
        long row[W];
        for (int i = 0; i < W; i++) row[i] = first + half * W + i < rows ? first + half * W + i : rows - 1;
        struct matrix v = *w;
        switch (w->kind) {
            case F32: v.kind = F32; columns_of_values(&v, row, column, n, out); break;
            case F16: v.kind = F16; columns_of_values(&v, row, column, n, out); break;
            case BF16: v.kind = BF16; columns_of_bf16(&v, row, column, n, out); break;
            default: v.kind = NF4; columns_of_nf4(&v, row, column, n, out);
        }
    }
}
#endif
