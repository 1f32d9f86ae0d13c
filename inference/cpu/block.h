/* A layer of a block of rows: a prompt. Rows of matrices are taken for products, rows of the block shared out for what lies between them. */
#ifndef BLOCK_H
#define BLOCK_H
#include "call.h"

#define BLOCK_UNIT 32 /* rows of a matrix that are taken together: whole groups of `multiply_rows` */

/* x [count, columns] times a matrix, after `pack`: the rows of it that this thread takes. */
static void multiply_block(const struct call *c, long me, struct pile *pile, const struct matrix *w, long count, float *y) {
    for (long first, last; take(c->team, pile, w->rows, BLOCK_UNIT, &first, &last);)
        multiply_rows(w, c->work.packed, count, y, w->rows, first, last, c->work.mine[me].scratch);
}

/* The same for a layer's gate and what it gates. */
static void multiply_gated(const struct call *c, long me, struct pile *pile, const struct layer *l, long count) {
    const struct work *w = &c->work;
    float *scratch = w->mine[me].scratch;
    long inner = l->gate.rows;
    for (long first, last; take(c->team, pile, inner, BLOCK_UNIT, &first, &last);) {
        multiply_rows(&l->gate, w->packed, count, w->gate, inner, first, last, scratch);
        multiply_rows(&l->up, w->packed, count, w->up, inner, first, last, scratch);
        for (long r = 0; r < count; r++) gate_row(c->model->activation, w->gate + r * inner + first, w->up + r * inner + first, last - first);
    }
}

/* Packs this thread's rows of x for `multiply_block`, which starts once all are here. Before it nobody may still read what was packed last. */
static void pack(const struct call *c, long me, const float *x, long count, long columns) {
    long first, last;
    share(c->team, me, count, 1, &first, &last);
    pack_rows(x, columns, count, columns, c->work.packed, first, last);
    barrier(c->team, me);
}

/* The cache's rows of a block, and its queries turned in place; rows are shared out. */
static void turn_block(const struct call *c, long me, long layer, long position, long count, int with_queries) {
    const struct model *m = c->model;
    const struct layer *l = m->layers + layer;
    long first, last, width = m->q_heads * m->head_dim, kv_width = m->kv_heads * m->head_dim;
    float *scratch = c->work.mine[me].sums;
    share(c->team, me, count, 1, &first, &last);
    for (long r = first; r < last; r++) {
        float *q = c->work.q + r * width, *k = c->work.k + r * kv_width, *v = c->work.v + r * kv_width;
        struct turn qs = with_queries ? query_turn(c, l, q, position + r) : (struct turn){0}, ks = key_turn(c, l, k, position + r);
        for (long h = 0; with_queries && h < m->q_heads; h++) turn_head(m, &qs, q, h, q + h * m->head_dim);
        for (long h = 0; h < m->kv_heads; h++) keep(c, layer, &ks, k, v, h, position + r, scratch);
    }
}

/* Attention of a block's rows, piece by piece: a set of heads times as many rows as fit. The answer takes the queries' place. */
static void attend_block(struct call *c, long me, long layer, long position, long count) {
    const struct model *m = c->model;
    const struct layer *l = m->layers + layer;
    struct mine *mine = c->work.mine + me;
    struct sets sets = sets_of(m);
    long d = m->head_dim, width = m->q_heads * d, together = ROWS / sets.size, blocks = (count + together - 1) / together;
    for (long piece; (piece = atomic_fetch_add(&c->next, 1)) < blocks * sets.count;) {
        long head, set = piece % sets.count, heads = set_heads(&sets, set, &head), from = (blocks - 1 - piece / sets.count) * together; /* longest first */
        long rows = count - from < together ? count - from : together, kv = set / sets.each;
        long low = l->window && position + from >= l->window ? (position + from - l->window + 1) / W * W : 0;
        struct queries a = new_queries(c, l, mine, rows * heads);
        for (long r = 0; r < rows * heads; r++) {
            memcpy(mine->queries + r * d, c->work.q + (from + r / heads) * width + (head + r % heads) * d, d * sizeof(float));
            a.at[r] = position + from + r / heads;
        }
        begin_queries(&a);
        attend(&a, cached(c, c->run->keys, layer, kv), cached(c, c->run->values, layer, kv), low, position + from + rows);
        for (long r = 0; r < rows * heads; r++) {
            float *out = c->work.q + (from + r / heads) * width + (head + r % heads) * d;
            for (long i = 0; i < d; i++) out[i] = mine->sums[r * a.wide + i] / a.sum[r];
        }
    }
}

static void block_layer(struct call *c, long me, long layer, long position, long count, int only_keys) {
    const struct model *m = c->model;
    const struct layer *l = m->layers + layer;
    const struct work *w = &c->work;
    struct pile *piles = begin_layer(c, me);
    long first, last, hidden = m->hidden;
    float *x = w->x;
    share(c->team, me, count, 1, &first, &last);
    for (long r = first; r < last; r++) norm_row(x + r * hidden, l->before_attention, hidden, m->eps, w->a + r * hidden);
    if (me == 0) atomic_store(&c->next, 0);
    pack(c, me, w->a, count, hidden);
    if (!only_keys) multiply_block(c, me, piles + Q, &l->q, count, w->q);
    multiply_block(c, me, piles + K, &l->k, count, w->k);
    multiply_block(c, me, piles + V, &l->v, count, w->v);
    if (me == 0) ask(c, layer);
    barrier(c->team, me);
    turn_block(c, me, layer, position, count, !only_keys);
    barrier(c->team, me);
    if (only_keys || c->stop) return;
    attend_block(c, me, layer, position, count);
    barrier(c->team, me);
    pack(c, me, w->q, count, m->q_heads * m->head_dim);
    multiply_block(c, me, piles + O, &l->o, count, w->y);
    barrier(c->team, me);
    for (long r = first; r < last; r++) {
        add_row(m, x + r * hidden, w->y + r * hidden, l->after_attention, w->a + r * hidden);
        norm_row(x + r * hidden, l->before_mlp, hidden, m->eps, w->a + r * hidden);
    }
    pack(c, me, w->a, count, hidden);
    multiply_gated(c, me, piles + GATE, l, count);
    barrier(c->team, me);
    pack(c, me, w->gate, count, l->gate.rows);
    multiply_block(c, me, piles + DOWN, &l->down, count, w->y);
    barrier(c->team, me);
    for (long r = first; r < last; r++) add_row(m, x + r * hidden, w->y + r * hidden, l->after_mlp, w->a + r * hidden);
}
#endif
