/* One call of the step as its threads share it, and what a row alone and a block of rows both need: angles, the cache, sets of heads. */
#ifndef CALL_H
#define CALL_H
#include "parts.h"
#include "work.h"
#include <time.h>

enum product { Q, K, V, O, GATE, DOWN, PRODUCTS }; /* of one row Q's pile is K's and V's too; GATE's always that of what it gates */

struct call {
    struct step *step;
    const struct run *run;
    const struct model *model;
    struct team *team;
    struct work work;
    atomic_long next; /* the next piece of attention in a block */
    struct pile piles[2][PRODUCTS], logits; /* rows of each product of a layer, and of the layer before or after; of the head */
    long stop, asked;
};

static inline long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* By the caller's thread, before a barrier: after it all know whether to go on. */
static inline void ask(struct call *c, long layer) {
    struct step *s = c->step;
    if (!s->go_on || now_ns() - c->asked < s->ask_ns) return;
    if (!s->go_on(layer + 1)) c->stop = 1;
    c->asked = now_ns();
}

/* The piles of a layer that begins: the other ones were the last layer's, which all threads have left, and are the next one's. */
static inline struct pile *begin_layer(struct call *c, long me) {
    long turn = c->work.mine[me].turn++ % 2;
    for (int i = 0; me == 0 && i < PRODUCTS; i++) atomic_store_explicit(&c->piles[1 - turn][i].taken, 0, memory_order_relaxed);
    return c->piles[turn];
}

static inline const float *angles(const struct call *c, const float **tables, const struct layer *l, long position) {
    return l->rotary < 0 ? NULL : tables[l->rotary] + position * c->model->rotated;
}

static inline struct turn query_turn(const struct call *c, const struct layer *l, const float *row, long position) {
    const struct model *m = c->model;
    return turn_of(m, row, m->q_heads * m->head_dim, l->q_norm, l->q_norm_width, angles(c, c->run->cosines, l, position),
                   angles(c, c->run->sines, l, position), m->attention_scale);
}

static inline struct turn key_turn(const struct call *c, const struct layer *l, const float *row, long position) {
    const struct model *m = c->model;
    return turn_of(m, row, m->kv_heads * m->head_dim, l->k_norm, l->k_norm_width, angles(c, c->run->cosines, l, position),
                   angles(c, c->run->sines, l, position), 1);
}

static inline float *cached(const struct call *c, float *cache, long layer, long head) {
    return cache + (layer * c->model->kv_heads + head) * c->run->positions * c->model->head_dim;
}

/* Puts one head's key and value of a row into the cache; `scratch` holds a head. */
static inline void keep(const struct call *c, long layer, const struct turn *t, const float *k, const float *v, long head, long position, float *scratch) {
    long d = c->model->head_dim;
    float *tile = cached(c, c->run->keys, layer, head) + position / W * W * d + position % W;
    turn_head(c->model, t, k, head, scratch);
    for (long i = 0; i < d; i++) tile[i * W] = scratch[i];
    memcpy(cached(c, c->run->values, layer, head) + position * d, v + head * d, d * sizeof(float));
}

/* Heads that go over the same keys together: up to ROWS of a group. */
struct sets {
    long group, size, each, count; /* heads a head of keys; of a set; sets a group; sets in all */
};

static inline struct sets sets_of(const struct model *m) {
    long group = m->q_heads / m->kv_heads, size = group < ROWS ? group : ROWS, each = (group + size - 1) / size;
    return (struct sets){group, size, each, each * m->kv_heads};
}

static inline long set_heads(const struct sets *s, long set, long *first) {
    long within = set % s->each * s->size;
    *first = set / s->each * s->group + within;
    return s->group - within < s->size ? s->group - within : s->size;
}

static inline struct queries new_queries(const struct call *c, const struct layer *l, struct mine *mine, long rows) {
    const struct model *m = c->model;
    struct queries a = {.rows = rows, .columns = m->head_dim, .wide = wide_of(m->head_dim), .q = mine->queries};
    a.window = l->window, a.cap = m->attention_cap, a.out = mine->sums;
    return a;
}
#endif
