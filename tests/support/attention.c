/* `attention.h` as a test calls it: keys row by row, laid into tiles here. */
#include "attention.h"
#include <stdlib.h>

/* The answers [rows, columns] of q [rows, columns] at positions `at`, each seeing what it may of the keys and values `from` <= position < `to`;
 * `from` is a multiple of 16. */
void answer(long rows, long columns, const float *q, const long *at, long window, float cap, const float *keys, const float *values, long from,
            long to, float *out) {
    long wide = (columns + 2 * W - 1) / (2 * W) * (2 * W), tiles = (to + 2 * KEYS - 1) / KEYS * KEYS / W;
    float *laid = malloc(tiles * W * columns * sizeof *laid), *sums = malloc(rows * wide * sizeof *sums);
    for (long i = 0; i < tiles * W * columns; i++) laid[i] = NAN; /* what was not written is not read */
    for (long p = 0; p < to; p++)
        for (long c = 0; c < columns; c++) laid[(p / W * columns + c) * W + p % W] = keys[p * columns + c];
    struct queries a = {.rows = rows, .columns = columns, .wide = wide, .q = q, .window = window, .cap = cap, .out = sums};
    memcpy(a.at, at, rows * sizeof *at);
    begin_queries(&a);
    long middle = (from + to) / 2 / W * W; /* in two pieces: sums go on from what was summed before */
    if (middle > from) attend(&a, laid, values, from, middle);
    attend(&a, laid, values, middle > from ? middle : from, to);
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) out[r * columns + c] = sums[r * wide + c] / a.sum[r];
    free(laid);
    free(sums);
}

void tanh_many(const float *x, long n, float *y) {
    for (long i = 0; i < n; i += W) store(y + i, tanh_of(load(x + i)));
}

void exp_many(const float *x, long n, float *y) {
    for (long i = 0; i < n; i += W) store(y + i, exp_of(load(x + i)));
}
