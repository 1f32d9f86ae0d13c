/* One FP32 row times a matrix (`matrix.h`), each weight read once from memory: a decode step. */
#include "unpack.h"

#ifndef AHEAD
#define AHEAD 2048 /* bytes: the processor's own prefetch ends at a page's border */
#endif
#ifndef Q
#define Q 2
#endif
#define SPAN 4096 /* columns whose x is laid out anew for codes, on the stack */

INLINE vf values_of(int kind, const char *p) {
    return kind == F32 ? load((const float *)p) : kind == BF16 ? load_bf16((const uint16_t *)p) : load_f16((const uint16_t *)p);
}

/* `count` rows (a constant after inlining) from r on. */
INLINE void dots(int kind, int count, const struct matrix *w, const float *x, float *y, long r) {
    long k = w->columns, size = kind == F32 ? 4 : 2;
    const char *p = (const char *)w->data + r * k * size;
    vf s[4][4];
    UNROLL for (int i = 0; i < count; i++) UNROLL for (int u = 0; u < 4; u++) s[i][u] = all(0);
    long c = 0;
    for (; c + 64 <= k; c += 64) UNROLL for (int i = 0; i < count; i++) {
        const char *q = p + (i * k + c) * size;
        UNROLL for (int line = 0; line < size; line++) __builtin_prefetch(q + AHEAD + line * 64, 0, 3);
        UNROLL for (int u = 0; u < 64 / W; u++) s[i][u % 4] += load(x + c + u * W) * values_of(kind, q + u * W * size);
    }
    for (; c < k; c += W) UNROLL for (int i = 0; i < count; i++) s[i][0] += load(x + c) * values_of(kind, p + (i * k + c) * size);
    UNROLL for (int i = 0; i < count; i++)
        y[r + i] = total((s[i][0] + s[i][1]) + (s[i][2] + s[i][3])) + (w->bias ? w->bias[r + i] : 0);
}

INLINE void all_dots(int kind, const struct matrix *w, const float *x, float *y, long r, long last) {
    for (; r + Q <= last; r += Q) dots(kind, Q, w, x, y, r);
    for (; r < last; r++) dots(kind, 1, w, x, y, r);
}

#if W == 16
/* Words 0 and 1 lie in turn in the lanes, so the 16 values of x do too. */
INLINE void order_for_codes(const float *x, long n, float *out) {
    __m512i turns = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    for (long i = 0; i < n; i += 16) store(out + i, (vf)_mm512_permutexvar_ps(turns, (__m512)load(x + i)));
}

INLINE vf code_sum(const uint8_t *p, const float *x, long n, const float *levels) {
    const __m512i shifts = _mm512_setr_epi32(4, 4, 0, 0, 12, 12, 8, 8, 20, 20, 16, 16, 28, 28, 24, 24);
    vf s[2] = {all(0), all(0)};
    long i = 0;
#define CODES(AT, S) { int64_t two; memcpy(&two, p + (AT) / 2, 8); S += load(x + (AT)) * level_of((vi)_mm512_srlv_epi32(_mm512_set1_epi64(two), shifts), levels); }
    for (; i + 32 <= n; i += 32) { CODES(i, s[0]) CODES(i + 16, s[1]) }
    if (i < n) CODES(i, s[0])
    return s[0] + s[1];
}
#else
INLINE void order_for_codes(const float *x, long n, float *out) { memcpy(out, x, n * sizeof *x); }
INLINE vf code_sum(const uint8_t *p, const float *x, long n, const float *levels) {
    vf s = all(0);
    for (long i = 0; i < n; i += W) {
        vf v;
        for (int j = 0; j < W; j += 2) { uint8_t b = p[(i + j) / 2]; v[j] = levels[b >> 4]; v[j + 1] = levels[b & 15]; }
        s += v * load(x + i);
    }
    return s;
}
#endif

static void dots_of_codes(const struct matrix *w, const float *x, float *y, long first, long last) {
    float ordered[SPAN];
    long blocks = w->columns / w->block;
    for (long c = 0; c < w->columns; c += SPAN) {
        long n = w->columns - c < SPAN ? w->columns - c : SPAN;
        order_for_codes(x + c, n, ordered);
        for (long r = first; r < last; r++) {
            const uint8_t *p = (const uint8_t *)place(w, r, c);
            const float *scale = w->scales + r * blocks;
            vf s = all(0);
            if (w->block == 64) for (long i = 0; i < n; i += 64) s += code_sum(p + i / 2, ordered + i, 64, w->levels) * all(scale[(c + i) / 64]);
            else for (long i = 0, some; i < n; i += some) {
                some = w->block - (c + i) % w->block; some = some < n - i ? some : n - i;
                s += code_sum(p + i / 2, ordered + i, some, w->levels) * all(scale[(c + i) / w->block]);
            }
            y[r] = total(s) + (c ? y[r] : w->bias ? w->bias[r] : 0);
        }
    }
}

void multiply_row(const struct matrix *w, const float *x, float *y, long first, long last) {
    switch (w->kind) {
        case F32: all_dots(F32, w, x, y, first, last); break;
        case BF16: all_dots(BF16, w, x, y, first, last); break;
        case F16: all_dots(F16, w, x, y, first, last); break;
        default: dots_of_codes(w, x, y, first, last);
    }
}
