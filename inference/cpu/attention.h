/* Causal attention in FP32 over a cache whose keys lie in tiles: W positions side by side for each column, so that W scores are one
 * vector and no sum runs across one. Values lie row by row. Both of one head of keys; positions in the cache count from its first.
 * Up to ROWS query rows that share the head go over the keys together, in blocks of KEYS, with a softmax that is mended as it goes. */
#ifndef ATTENTION_H
#define ATTENTION_H
#include "vectors.h"
#include <math.h>

#define TILE 6   /* query rows in registers, times two vectors of keys or columns: 12 sums */
#define ROWS 24  /* a multiple of TILE */
#define KEYS 128 /* a multiple of 2 W */
#define NEVER -1e30f

struct queries {
    long rows, columns, wide; /* `rows` up to ROWS; `wide`: columns up to a multiple of 2 W */
    const float *q;           /* [rows, columns], times the scale of attention */
    long at[ROWS];      /* position of each row */
    long window;        /* keys it sees, its own among them; 0: all */
    float cap;          /* c tanh(score / c); 0: none */
    float most[ROWS], sum[ROWS];
    float *out; /* [rows, wide]: sum of e^(score - most) times the value; divided by `sum` it is the answer */
};

static inline vf tanh_of(vf x) {
    vi sign = (vi)x & (vi)all(-0.0f);
    vf a = (vf)((vi)x ^ sign), z = x * x, e = exp_of(at_most(a, 9) * all(2)), small = z * all(-5.70498872745e-3f) + all(2.06390887954e-2f);
    small = (small * z - all(5.37397155531e-2f)) * z + all(1.33314422036e-1f);
    small = (small * z - all(3.33332819422e-1f)) * z * a + a; /* Cephes' */
    return (vf)((vi)chosen(a < all(0.625f), small, all(1) - all(2) / (e + all(1))) ^ sign);
}

static inline const float *key_tile(const float *keys, long position, long columns) { return keys + position / W * W * columns; }

/* c[r][0..2W) = or += sum over i < n of a[r][i] * (b0[i], b1[i]), R rows at once. */
#define SUMS(R)                                                                                                                     \
    static inline void sums_##R(const float *a, long a_stride, const float *b0, const float *b1, long b_stride, long n, float *c,     \
                                long c_stride, int add) {                                                                            \
        vf s[R][2];                                                                                                                  \
        for (int r = 0; r < R; r++)                                                                                                  \
            for (int v = 0; v < 2; v++) s[r][v] = add ? load(c + r * c_stride + v * W) : (vf){0};                               \
        for (long i = 0; i < n; i++) {                                                                                               \
            vf x = load(b0 + i * b_stride), y = load(b1 + i * b_stride);                                                  \
            _Pragma("GCC unroll 6") for (int r = 0; r < R; r++) {                                                                    \
                vf w = all(a[r * a_stride + i]);                                                                                \
                s[r][0] += w * x;                                                                                                    \
                s[r][1] += w * y;                                                                                                    \
            }                                                                                                                        \
        }                                                                                                                            \
        for (int r = 0; r < R; r++)                                                                                                  \
            for (int v = 0; v < 2; v++) store(c + r * c_stride + v * W, s[r][v]);                                               \
    }
SUMS(1)
SUMS(2)
SUMS(3)
SUMS(4)
SUMS(5)
SUMS(6)

/* The same for any number of rows. */
static inline void sums_of(long rows, const float *a, long a_stride, const float *b0, const float *b1, long b_stride, long n, float *c,
                         long c_stride, int add) {
    for (long r = 0; r < rows; r += TILE) {
        const float *from = a + r * a_stride;
        float *to = c + r * c_stride;
        switch (rows - r) {
        case 1: sums_1(from, a_stride, b0, b1, b_stride, n, to, c_stride, add); break;
        case 2: sums_2(from, a_stride, b0, b1, b_stride, n, to, c_stride, add); break;
        case 3: sums_3(from, a_stride, b0, b1, b_stride, n, to, c_stride, add); break;
        case 4: sums_4(from, a_stride, b0, b1, b_stride, n, to, c_stride, add); break;
        case 5: sums_5(from, a_stride, b0, b1, b_stride, n, to, c_stride, add); break;
        default: sums_6(from, a_stride, b0, b1, b_stride, n, to, c_stride, add);
        }
    }
}

static inline void begin_queries(struct queries *a) {
    for (long r = 0; r < a->rows; r++) a->most[r] = NEVER, a->sum[r] = 0;
    memset(a->out, 0, a->rows * a->wide * sizeof(float));
}

static inline vf seen_of(vf s, long j, long low, long high) {
    float kept[W];
    store(kept, s);
    for (int i = 0; i < W; i++) kept[i] = j + i >= low && j + i < high ? kept[i] : 2 * NEVER;
    return load(kept);
}

/* Scores of row r for the keys from `j` on become weights e^(score - most); what was summed before is brought to the new maximum. */
static inline void weigh(struct queries *a, long r, float *s, long j, long count) {
    long low = a->window && a->at[r] >= a->window ? a->at[r] - a->window + 1 : 0, high = a->at[r] + 1;
    vf top = all(a->most[r]), parts = {0};
    for (long i = 0; i < count; i += W) {
        vf v = load(s + i);
        if (a->cap) v = tanh_of(v / all(a->cap)) * all(a->cap);
        if (j + i < low || j + i + W > high) v = seen_of(v, j + i, low, high);
        store(s + i, v);
        top = chosen(v > top, v, top);
    }
    float most = largest(top);
    for (long i = 0; i < count; i += W) {
        vf v = load(s + i) - all(most);
        v = chosen(v < all(-87), all(0), exp_of(at_least(v, -87))); /* NaN stays */
        store(s + i, v);
        parts += v;
    }
    if (most > a->most[r]) {
        float less = a->most[r] > NEVER ? expf(a->most[r] - most) : 0;
        for (long c = 0; c < a->wide; c++) a->out[r * a->wide + c] *= less;
        a->sum[r] *= less;
        a->most[r] = most;
    }
    a->sum[r] += total(parts);
}

/* Goes on over the keys `from` <= position < `to`, all of which are written; `from` is a multiple of W. */
static inline void attend(struct queries *a, const float *keys, const float *values, long from, long to) {
    float s[ROWS * KEYS] __attribute__((aligned(64)));
    long d = a->columns;
    for (long j = from; j < to; j += KEYS) {
        long count = to - j < KEYS ? to - j : KEYS, whole = (count + W - 1) / W * W;
        for (long i = 0; i < whole; i += 2 * W) {
            const float *b0 = key_tile(keys, j + i, d), *b1 = i + W < whole ? b0 + W * d : b0;
            sums_of(a->rows, a->q, d, b0, b1, W, d, s + i, KEYS, 0);
        }
        for (long r = 0; r < a->rows; r++) weigh(a, r, s + r * KEYS, j, whole);
        for (long c = 0; c < d; c += 2 * W) {
            const float *v = values + j * d + c;
            sums_of(a->rows, s, KEYS, v, c + W < d ? v + W : v, d, count, a->out + c, a->wide, 1);
        }
    }
}
#endif
