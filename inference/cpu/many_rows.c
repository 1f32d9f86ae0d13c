/* Many FP32 rows times a matrix (`matrix.h`): GROUP rows of weights at a time become FP32 in `scratch`, a weight of each side by
 * side, and meet every row of x there: sums of up to TILE rows stay in registers over a block of columns. The next weights are
 * fetched meanwhile. In: x as `pack_rows` left it. */
#include "unpack.h"

#define BLOCK 256 /* columns at a time, at most: rows of x of these stay in the second cache, weights in the first */
#define LINE (BLOCK + 16) /* between packed rows: not a power of two, or all would share a few sets of the cache */
#define CHUNK 256         /* rows of weights whose results stay in the second cache while the columns go by */
#define TILE (W == 16 ? 14 : 6)
#define FEW 2 /* rows of x up to which unpacking gains nothing: one product each */

static inline long count_blocks(long k) { return (k + BLOCK - 1) / BLOCK; }

/* Columns of a block but the last: even shares, whole cache lines of 16 bits. */
static inline long block_columns(long k) { return (k / 16 + 2 * count_blocks(k) - 1) / (2 * count_blocks(k)) * 32; }

size_t packed_floats(long m, long k) { return m <= FEW ? (size_t)(m * k) : (size_t)(m * LINE) * count_blocks(k); }

void pack_rows(const float *x, long stride, long m, long k, float *packed, long first, long last) {
    long columns = m <= FEW ? k : block_columns(k), line = m <= FEW ? k : LINE;
    for (long from = 0; from < k; from += columns, packed += m * line) {
        long n = k - from < columns ? k - from : columns;
        for (long j = first; j < last; j++) memcpy(packed + j * line, x + j * stride + from, n * sizeof *x);
    }
}

size_t scratch_floats(long m) { return GROUP * BLOCK + GROUP * m + GROUP + 16; }

/* Lines of the cache still to be fetched of weights that come next. */
struct ahead { const char *p; long row_bytes, row_lines, line, left, step; };

INLINE void fetch(struct ahead *a) {
    for (long i = a->left < a->step ? a->left : a->step; i > 0; i--, a->left--) {
        __builtin_prefetch(a->p + a->line * 64, 0, 2);
        if (++a->line == a->row_lines) { a->line = 0; a->p += a->row_bytes; }
    }
}

static struct ahead look_ahead(const struct matrix *w, long row, long rows, long column, long n, long turns) {
    struct ahead a = {place(w, row, column), bytes_of(w, w->columns), bytes_of(w, n) / 64 + 1, 0, 0, 0};
    a.left = a.row_lines * rows; a.step = (a.left + turns - 1) / turns;
    return a;
}

/* `rows` rows of x (a constant after inlining) times GROUP rows of weights, added to `bias` where it is given, else to y: sums
 * of a block are added up by themselves first, which keeps their rounding errors small. */
INLINE void tile(int rows, const float *x, const float *weights, long n, const float *bias, float *y, long stride, struct ahead *next) {
    vf s[14][2];
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int h = 0; h < 2; h++) s[j][h] = all(0);
    UNROLL for (int j = 0; j < rows; j++) { __builtin_prefetch(y + j * stride, 1, 3); __builtin_prefetch(y + j * stride + GROUP - 1, 1, 3); }
    for (long c = 0; c < n; c += 16) {
        fetch(next);
        for (int i = 0; i < 16; i++, weights += GROUP, x++) {
            vf a = load(weights), b = load(weights + W);
            UNROLL for (int j = 0; j < rows; j++) { vf v = all(x[j * LINE]); s[j][0] += v * a; s[j][1] += v * b; }
        }
    }
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int h = 0; h < 2; h++) {
        float *to = y + j * stride + h * W;
        store(to, load(bias ? bias + h * W : to) + s[j][h]);
    }
}

static void tiles(long m, const float *x, const float *weights, long n, const float *bias, float *y, long stride, struct ahead next) {
    long count = (m + TILE - 1) / TILE;
    for (long t = 0; t < count; t++) {
        long j = m * t / count;
        const float *from = x + j * LINE; float *to = y + j * stride;
#define CASE(R) case R: tile(R, from, weights, n, bias, to, stride, &next); break;
        switch (m * (t + 1) / count - j) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if W == 16
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#endif
        }
    }
}

/* The rows one after another, over weights that stay in the first cache. */
static void few_rows(const struct matrix *w, const float *x, long m, float *y, long stride, long first, long last) {
    long step = 16384 / bytes_of(w, w->columns) + 1;
    for (long r = first; r < last; r += step)
        for (long j = 0; j < m; j++) multiply_row(w, x + j * w->columns, y + j * stride, r, r + step < last ? r + step : last);
}

void multiply_rows(const struct matrix *w, const float *packed, long m, float *y, long stride, long first, long last, float *scratch) {
    if (m <= FEW) { few_rows(w, packed, m, y, stride, first, last); return; }
    long k = w->columns, columns = block_columns(k), turns = (m + TILE - 1) / TILE * (columns / 16);
    float *weights = (float *)(((uintptr_t)scratch + 63) / 64 * 64), *bias = weights + GROUP * BLOCK, *edge = bias + GROUP;
    for (long chunk = first, end; chunk < last; chunk = end) {
        end = chunk + CHUNK < last ? chunk + CHUNK : last;
        for (long c = 0; c < k; c += columns) for (long r = chunk; r < end; r += GROUP) {
            long n = k - c < columns ? k - c : columns, whole = r + GROUP <= end, new_r = r + GROUP, new_c = c;
            if (new_r >= end) { new_c = c + columns < k ? c + columns : 0; new_r = new_c ? chunk : end; }
            struct ahead next = look_ahead(w, new_r, last - new_r < GROUP ? last - new_r : GROUP, new_c, k - new_c < columns ? k - new_c : columns, turns);
            if (!c) for (int i = 0; i < GROUP; i++) bias[i] = w->bias && r + i < last ? w->bias[r + i] : 0;
            unpack(w, r, last, c, n, weights);
            tiles(m, packed + c / columns * m * LINE, weights, n, c ? NULL : bias, whole ? y + r : edge, whole ? stride : GROUP, next);
            if (!whole && c + columns >= k) for (long j = 0; j < m; j++) memcpy(y + j * stride + r, edge + j * GROUP, (end - r) * sizeof *y);
        }
    }
}
