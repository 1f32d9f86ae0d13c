/* A layer of one row: a decode step, and the last row of a prompt. What each thread can do again for less than a wait costs, it does. */
#ifndef ROW_H
#define ROW_H
#include "call.h"

#define UNIT 8 /* rows of a matrix that are taken together */

/* What this thread takes of the rows of several matrices, one after the other, times one row. */
static void multiply(const struct call *c, struct pile *pile, const struct matrix *const *w, float *const *y, int n, const float *x) {
    long rows = 0;
    for (int i = 0; i < n; i++) rows += w[i]->rows;
    for (long first, last; take(c->team, pile, rows, UNIT, &first, &last);)
        for (long i = 0, from = 0; i < n; from += w[i++]->rows) {
            long begin = first > from ? first - from : 0, end = last - from < w[i]->rows ? last - from : w[i]->rows;
            if (begin < end) multiply_row(w[i], x, y[i], begin, end);
        }
}

/* One row's attention over the keys that are this thread's: of all keys of all sets of heads an equal share, in tiles. */
static void attend_row(const struct call *c, long me, const struct layer *l, long layer, long position) {
    const struct model *m = c->model;
    struct mine *mine = c->work.mine + me;
    struct sets sets = sets_of(m);
    long d = m->head_dim, low = l->window && position >= l->window ? (position - l->window + 1) / W : 0, tiles = position / W - low + 1, first, last;
    struct turn qs = query_turn(c, l, c->work.q, position), ks = key_turn(c, l, c->work.k, position);
    share(c->team, me, sets.count * tiles, 1, &first, &last);
    for (long set = first / tiles; set * tiles < last; set++) {
        long begin = first > set * tiles ? first - set * tiles : 0, end = last < (set + 1) * tiles ? last - set * tiles : tiles, head;
        long rows = set_heads(&sets, set, &head), kv = set / sets.each;
        struct queries a = new_queries(c, l, mine, rows);
        for (long r = 0; r < rows; r++) {
            turn_head(m, &qs, c->work.q, head + r, mine->queries + r * d);
            a.at[r] = position;
        }
        if (end == tiles) keep(c, layer, &ks, c->work.k, c->work.v, kv, position, mine->sums);
        a.out = mine->parts + head * a.wide;
        begin_queries(&a);
        attend(&a, cached(c, c->run->keys, layer, kv), cached(c, c->run->values, layer, kv), (low + begin) * W,
               end == tiles ? position + 1 : (low + end) * W);
        memcpy(mine->part_most + head, a.most, rows * sizeof(float));
        memcpy(mine->part_sum + head, a.sum, rows * sizeof(float));
    }
}

/* All threads' parts of one row's attention, brought together: each thread does all of it for itself. */
static void bring_together(const struct call *c, long me, const struct layer *l, long position) {
    const struct model *m = c->model;
    struct mine *mine = c->work.mine + me;
    struct sets sets = sets_of(m);
    long d = m->head_dim, wide = wide_of(d), low = l->window && position >= l->window ? (position - l->window + 1) / W : 0, tiles = position / W - low + 1;
    float weight[c->team->size];
    for (long h = 0; h < m->q_heads; h++) {
        long set = h / sets.group * sets.each + h % sets.group / sets.size;
        float most = NEVER, sum = 0, *out = mine->attended + h * d;
        for (long t = 0; t < c->team->size; t++) {
            long first, last;
            share(c->team, t, sets.count * tiles, 1, &first, &last);
            weight[t] = first < (set + 1) * tiles && last > set * tiles && first < last ? c->work.mine[t].part_most[h] : 2 * NEVER;
            if (weight[t] > most) most = weight[t];
        }
        memset(out, 0, d * sizeof(float));
        for (long t = 0; t < c->team->size; t++) {
            if (weight[t] <= 2 * NEVER) continue;
            float w = expf(weight[t] - most);
            const float *part = c->work.mine[t].parts + h * wide;
            sum += w * c->work.mine[t].part_sum[h];
            for (long i = 0; i < d; i++) out[i] += w * part[i];
        }
        for (long i = 0; i < d; i++) out[i] /= sum;
    }
}

/* A layer of one row. Each thread keeps the whole residual of the row for itself, so that nothing but products and attention is waited for. */
static void row_layer(struct call *c, long me, long layer, long position) {
    const struct model *m = c->model;
    const struct layer *l = m->layers + layer;
    const struct work *w = &c->work;
    struct mine *mine = w->mine + me;
    struct pile *piles = begin_layer(c, me);
    norm_row(mine->x, l->before_attention, m->hidden, m->eps, mine->a);
    multiply(c, piles + Q, (const struct matrix *[]){&l->q, &l->k, &l->v}, (float *[]){w->q, w->k, w->v}, 3, mine->a);
    barrier(c->team, me);
    attend_row(c, me, l, layer, position);
    barrier(c->team, me);
    bring_together(c, me, l, position);
    multiply(c, piles + O, (const struct matrix *[]){&l->o}, (float *[]){w->y}, 1, mine->attended);
    barrier(c->team, me);
    add_row(m, mine->x, w->y, l->after_attention, mine->a);
    norm_row(mine->x, l->before_mlp, m->hidden, m->eps, mine->a);
    for (long first, last; take(c->team, piles + GATE, l->gate.rows, UNIT, &first, &last);) {
        multiply_row(&l->gate, mine->a, w->gate, first, last);
        multiply_row(&l->up, mine->a, w->up, first, last);
        gate_row(m->activation, w->gate + first, w->up + first, last - first);
    }
    barrier(c->team, me);
    multiply(c, piles + DOWN, (const struct matrix *[]){&l->down}, (float *[]){w->y}, 1, w->gate);
    if (me == 0) ask(c, layer);
    barrier(c->team, me);
    add_row(m, mine->x, w->y, l->after_mlp, mine->a);
}
#endif
