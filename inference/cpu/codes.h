/* One FP32 row times 4-bit codes, STEP or 16 columns at a time: `order` lays x out as the lanes of `codes_times` will meet it, so that
 * no code has to be put in its place. Knows no scales and no threads. */
#ifndef CODES_H
#define CODES_H
#include "unpack.h"

#define STEP 64

#if W == 16
typedef levels16 table;

INLINE table table_of(const float *levels) { return levels_of(levels); }

/* n values of x, for `step` columns at a time. */
INLINE void order(const float *x, long n, int step, float *out) {
    const __m512i turns = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15); /* two words, in turn in the lanes */
    (void)step;
    for (long i = 0; i < n; i += W) store(out + i, (vf)_mm512_permutexvar_ps(turns, (__m512)load(x + i)));
}

/* The products of `step` ordered values of x and the levels of the codes at p, in a few lanes' sums. */
INLINE vf codes_times(const uint8_t *p, const float *x, int step, const table *t) {
    const __m512i shifts = _mm512_setr_epi32(4, 4, 0, 0, 12, 12, 8, 8, 20, 20, 16, 16, 28, 28, 24, 24);
    vf s[2] = {all(0), all(0)};
    UNROLL for (int i = 0; i < step / W; i++) {
        int64_t two; memcpy(&two, p + i * 8, 8);
        vf v = load(x + i * W) * level_of((vi)_mm512_srlv_epi32(_mm512_set1_epi64(two), shifts), *t);
        s[i % 2] = i < 2 ? v : s[i % 2] + v;
    }
    return s[0] + s[1];
}
#elif W == 8
typedef struct { levels16 levels; __m256i bytes[4]; } table; /* byte i of every level, in both halves */

INLINE table table_of(const float *levels) {
    table t = {levels_of(levels), {_mm256_setzero_si256()}};
    unsigned char bytes[4][16];
    for (int i = 0; i < 64; i++) bytes[i % 4][i / 4] = ((const unsigned char *)levels)[i];
    for (int i = 0; i < 4; i++) t.bytes[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes[i]));
    return t;
}

INLINE void order(const float *x, long n, int step, float *out) {
    if (step < STEP) memcpy(out, x, n * sizeof *x);
    else for (; n > 0; n -= STEP, x += STEP, out += STEP) for (int i = 0; i < 4; i++) {
        /* the levels of bytes 4 i to 4 i + 3 and of those 16 further: high halves have the even columns */
        __m256 a = (__m256)load(x + 8 * i), b = (__m256)load(x + 32 + 8 * i);
        __m256 l = _mm256_permute2f128_ps(a, b, 0x20), h = _mm256_permute2f128_ps(a, b, 0x31);
        store(out + 8 * i, (vf)_mm256_shuffle_ps(l, h, 0x88)); store(out + 32 + 8 * i, (vf)_mm256_shuffle_ps(l, h, 0xdd));
    }
}

/* x times the levels of 32 codes, a byte each: the levels' bytes are looked up and put together. */
INLINE vf bytes_times(__m256i codes, const float *x, const table *t) {
    __m256i b[4], l[2], h[2];
    UNROLL for (int i = 0; i < 4; i++) b[i] = _mm256_shuffle_epi8(t->bytes[i], codes);
    UNROLL for (int i = 0; i < 2; i++) {
        l[i] = _mm256_unpacklo_epi8(b[2 * i], b[2 * i + 1]); h[i] = _mm256_unpackhi_epi8(b[2 * i], b[2 * i + 1]);
    }
    vf s = load(x) * (vf)_mm256_unpacklo_epi16(l[0], l[1]), u = load(x + 8) * (vf)_mm256_unpackhi_epi16(l[0], l[1]);
    s += load(x + 16) * (vf)_mm256_unpacklo_epi16(h[0], h[1]); u += load(x + 24) * (vf)_mm256_unpackhi_epi16(h[0], h[1]);
    return s + u;
}

INLINE vf codes_times(const uint8_t *p, const float *x, int step, const table *t) {
    if (step == STEP) {
        __m256i codes = _mm256_loadu_si256((const __m256i *)p), low = _mm256_set1_epi8(15);
        return bytes_times(_mm256_and_si256(_mm256_srli_epi16(codes, 4), low), x, t) + bytes_times(_mm256_and_si256(codes, low), x + 32, t);
    }
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    vf s = all(0);
    UNROLL for (int i = 0; i < step / W; i++) {
        int32_t word; memcpy(&word, p + i * 4, 4);
        s += load(x + i * W) * level_of((vi)_mm256_srlv_epi32(_mm256_set1_epi32(word), shifts), t->levels);
    }
    return s;
}
#else
typedef struct { float pair[256][2]; } table; /* the two levels of a byte */

INLINE table table_of(const float *levels) {
    table t;
    for (int i = 0; i < 256; i++) { t.pair[i][0] = levels[i >> 4]; t.pair[i][1] = levels[i & 15]; }
    return t;
}

INLINE void order(const float *x, long n, int step, float *out) { (void)step; memcpy(out, x, n * sizeof *x); }

INLINE vf codes_times(const uint8_t *p, const float *x, int step, const table *t) {
    vf s = all(0);
    UNROLL for (int i = 0; i < step; i += W) {
        float v[W];
        memcpy(v, t->pair[p[i / 2]], 8); memcpy(v + 2, t->pair[p[i / 2 + 1]], 8);
        s += load(x + i) * load(v);
    }
    return s;
}
#endif
#endif
