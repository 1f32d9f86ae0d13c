/* One FP32 row times a matrix (`matrix.h`), each weight read once from memory: a decode step. */
#include "codes.h"

#define AHEAD 4096 /* bytes from what is read to what is fetched into the second cache: the processor's own prefetch ends at a page's border */
#define SPAN 4096 /* a multiple of STEP: columns whose x is laid out anew for codes, on the stack */

INLINE vf values_of(int kind, const char *p) {
    return kind == F32 ? load((const float *)p) : kind == BF16 ? load_bf16((const uint16_t *)p) : load_f16((const uint16_t *)p);
}

INLINE void dots(int kind, const struct matrix *w, const float *x, float *y, long first, long last) {
    long k = w->columns, size = kind == F32 ? 4 : 2;
    for (long r = first; r < last; r++) {
        const char *p = (const char *)w->data + r * k * size;
        vf s[4] = {all(0), all(0), all(0), all(0)};
        long c = 0;
        for (; c + 64 <= k; c += 64, p += 64 * size) {
            UNROLL for (int line = 0; line < size; line++) __builtin_prefetch(p + AHEAD + line * 64, 0, 2);
            UNROLL for (int i = 0; i < 64 / W; i++) s[i % 4] += load(x + c + i * W) * values_of(kind, p + i * W * size);
        }
        for (; c < k; c += W, p += W * size) s[0] += load(x + c) * values_of(kind, p);
        y[r] = total((s[0] + s[1]) + (s[2] + s[3])) + (w->bias ? w->bias[r] : 0);
    }
}

INLINE void dots_of_codes(int step, const struct matrix *w, const float *x, float *y, long first, long last) {
    float ordered[SPAN];
    const table t = table_of(w->levels);
    for (long c = 0; c < w->columns; c += SPAN) {
        long n = w->columns - c < SPAN ? w->columns - c : SPAN, turns = w->block / step;
        order(x + c, n, step, ordered);
        for (long r = first; r < last; r++) {
            const uint8_t *p = (const uint8_t *)place(w, r, c);
            const float *scale = w->scales + (r * w->columns + c) / w->block;
            vf s = all(0);
            for (long i = 0, turn = c / step % turns; i < n; i += step) {
                __builtin_prefetch(p + i / 2 + AHEAD / 2, 0, 3);
                __builtin_prefetch((const char *)scale + AHEAD / 16, 0, 3);
                s += codes_times(p + i / 2, ordered + i, step, &t) * all(*scale);
                if (++turn == turns) { turn = 0; scale++; }
            }
            y[r] = total(s) + (c ? y[r] : w->bias ? w->bias[r] : 0);
        }
    }
}

void multiply_row(const struct matrix *w, const float *x, float *y, long first, long last) {
    switch (w->kind) {
        case F32: dots(F32, w, x, y, first, last); break;
        case BF16: dots(BF16, w, x, y, first, last); break;
        case F16: dots(F16, w, x, y, first, last); break;
        default:
            if (w->block % STEP) dots_of_codes(16, w, x, y, first, last);
            else dots_of_codes(STEP, w, x, y, first, last);
    }
}
