/* A matrix [rows, columns] as it is stored, row by row, and its products with FP32 rows. Every weight becomes an FP32 value in
 * registers, and all sums are FP32. What a caller shares out among threads it says itself: nothing here knows of threads. */
#ifndef MATRIX_H
#define MATRIX_H
#include <stddef.h>
#include <stdint.h>

enum kind { F32, BF16, F16, NF4 };

struct matrix {
    const void *data;    /* F32: float; BF16, F16: uint16_t; NF4: two codes a byte, the first in the high half */
    const float *scales; /* NF4: one for each `block` weights of a row */
    const float *levels; /* NF4: the 16 values of a code */
    const float *bias;   /* [rows], or NULL */
    long rows, columns, block; /* columns: a multiple of 16; of `block` in NF4, and block of 16 */
    int kind;
};

/* y[r] = w[r] x + bias[r] for first <= r < last; x has `columns` values. Each weight is read once, in order. */
void multiply_row(const struct matrix *w, const float *x, float *y, long first, long last);

/* Many rows: x (m rows of k, `stride` apart) is packed once, by each thread some rows first <= j < last, then, after a barrier, multiplied. */
size_t packed_floats(long m, long k);
void pack_rows(const float *x, long stride, long m, long k, float *packed, long first, long last);

/* y[j * stride + r] = w[r] x[j] + bias[r] for j < m and first <= r < last; `scratch` is the thread's own. */
size_t scratch_floats(long m);
void multiply_rows(const struct matrix *w, const float *packed, long m, float *y, long stride, long first, long last, float *scratch);
#endif
