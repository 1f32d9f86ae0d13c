/* The room of one run, cut out of one stretch of floats: what all threads share, and what each has for itself. Sizes only. */
#ifndef WORK_H
#define WORK_H
#include "attention.h"
#include "model.h"

struct mine {
    float *x, *a, *attended;         /* [hidden], [hidden], [heads * head_dim]: of one row */
    float *queries, *sums;           /* of attention: [ROWS, head_dim], [ROWS, wide] */
    float *parts, *part_most, *part_sum; /* of one row's heads over this thread's keys: [heads, wide], [heads], [heads] */
    float *scratch;                  /* of products */
    float best;
    long best_id;
    long turn; /* layers begun in this call: the last one is begun twice, for keys and for the last row */
};

struct work {
    float *x, *a, *q, *k, *v, *y, *gate, *up, *packed; /* [block, ...] */
    struct mine *mine;                                 /* of each thread */
};

static inline float *cut(float **from, long floats) {
    float *found = *from;
    *from += (floats + 15) / 16 * 16; /* a line of the cache each */
    return found;
}

static inline long wide_of(long head_dim) { return (head_dim + 2 * W - 1) / (2 * W) * (2 * W); }

/* Cuts `from` into the work of a run; with NULL as the first the result is the number of floats that it takes. */
static inline long lay_out(struct work *w, const struct model *m, long block, long threads, float *from) {
    float *start = from;
    long d = m->head_dim, heads = m->q_heads, largest = m->widest > m->hidden ? m->widest : m->hidden;
    if (heads * d > largest) largest = heads * d;
    w->x = cut(&from, block * m->hidden);
    w->a = cut(&from, block * m->hidden);
    w->q = cut(&from, block * heads * d);
    w->k = cut(&from, block * m->kv_heads * d);
    w->v = cut(&from, block * m->kv_heads * d);
    w->y = cut(&from, block * m->hidden);
    w->gate = cut(&from, block * m->widest);
    w->up = cut(&from, block * m->widest);
    w->packed = cut(&from, packed_floats(block, largest));
    w->mine = (struct mine *)cut(&from, threads * (sizeof(struct mine) / sizeof(float) + 1));
    for (long t = 0; t < threads; t++) {
        struct mine n = {0};
        n.x = cut(&from, m->hidden);
        n.a = cut(&from, m->hidden);
        n.attended = cut(&from, heads * d);
        n.queries = cut(&from, ROWS * d);
        n.sums = cut(&from, ROWS * wide_of(d));
        n.parts = cut(&from, heads * wide_of(d));
        n.part_most = cut(&from, heads);
        n.part_sum = cut(&from, heads);
        n.scratch = cut(&from, scratch_floats(block) + 16);
        if (start) w->mine[t] = n;
    }
    return from - start;
}
#endif
