/* Some rows of a model in one call, by all threads of a team: prefill in blocks of rows, decode a row at a time. FP32 arithmetic on
 * weights as they are stored. All that is done between two products is done again by each thread where that costs less than waiting. */
#include "parts.h"
#include "work.h"
#include <time.h>

#define UNIT 8        /* rows of a matrix that are shared out together */
#define BLOCK_UNIT 24 /* the same where many rows are multiplied */

struct call {
    struct step *step;
    const struct run *run;
    const struct model *model;
    struct team *team;
    struct work work;
    atomic_long next; /* the next piece of attention in a block */
    long stop, asked;
};

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* By the caller's thread, before a barrier: after it all know whether to go on. */
static void ask(struct call *c, long layer) {
    struct step *s = c->step;
    s->layers_done = layer + 1;
    if (!s->go_on || now_ns() - c->asked < s->ask_ns) return;
    if (!s->go_on(layer + 1)) c->stop = 1;
    c->asked = now_ns();
}

static const float *angles(const struct call *c, const float **tables, const struct layer *l, long position) {
    return l->rotary < 0 ? NULL : tables[l->rotary] + position * c->model->rotated;
}

static struct turn query_turn(const struct call *c, const struct layer *l, const float *row, long position) {
    const struct model *m = c->model;
    return turn_of(m, row, m->q_heads * m->head_dim, l->q_norm, l->q_norm_width, angles(c, c->run->cosines, l, position),
                   angles(c, c->run->sines, l, position), m->attention_scale);
}

static struct turn key_turn(const struct call *c, const struct layer *l, const float *row, long position) {
    const struct model *m = c->model;
    return turn_of(m, row, m->kv_heads * m->head_dim, l->k_norm, l->k_norm_width, angles(c, c->run->cosines, l, position),
                   angles(c, c->run->sines, l, position), 1);
}

static float *cached(const struct call *c, float *cache, long layer, long head) {
    return cache + (layer * c->model->kv_heads + head) * c->run->positions * c->model->head_dim;
}

/* Puts one head's key and value of a row into the cache; `scratch` holds a head. */
static void keep(const struct call *c, long layer, const struct turn *t, const float *k, const float *v, long head, long position, float *scratch) {
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

static struct sets sets_of(const struct model *m) {
    long group = m->q_heads / m->kv_heads, size = group < ROWS ? group : ROWS, each = (group + size - 1) / size;
    return (struct sets){group, size, each, each * m->kv_heads};
}

static long set_heads(const struct sets *s, long set, long *first) {
    long within = set % s->each * s->size;
    *first = set / s->each * s->group + within;
    return s->group - within < s->size ? s->group - within : s->size;
}

static struct queries new_queries(const struct call *c, const struct layer *l, struct mine *mine, long rows) {
    const struct model *m = c->model;
    struct queries a = {.rows = rows, .columns = m->head_dim, .wide = wide_of(m->head_dim), .q = mine->queries};
    a.window = l->window, a.cap = m->attention_cap, a.out = mine->sums;
    return a;
}

/* ---- one row */

/* The share of thread `me` in the rows of several matrices, one after the other, times one row. */
static void multiply(const struct call *c, long me, const struct matrix *const *w, float *const *y, int n, const float *x) {
    long rows = 0, first, last, from = 0;
    for (int i = 0; i < n; i++) rows += w[i]->rows;
    share(c->team, me, rows, UNIT, &first, &last);
    for (int i = 0; i < n; from += w[i++]->rows) {
        long begin = first - from, end = last - from;
        if (begin < 0) begin = 0;
        if (end > w[i]->rows) end = w[i]->rows;
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
    norm_row(mine->x, l->before_attention, m->hidden, m->eps, mine->a);
    multiply(c, me, (const struct matrix *[]){&l->q, &l->k, &l->v}, (float *[]){w->q, w->k, w->v}, 3, mine->a);
    barrier(c->team, me);
    attend_row(c, me, l, layer, position);
    barrier(c->team, me);
    bring_together(c, me, l, position);
    multiply(c, me, (const struct matrix *[]){&l->o}, (float *[]){w->y}, 1, mine->attended);
    barrier(c->team, me);
    add_row(m, mine->x, w->y, l->after_attention, mine->a);
    norm_row(mine->x, l->before_mlp, m->hidden, m->eps, mine->a);
    long first, last;
    share(c->team, me, l->gate.rows, UNIT, &first, &last);
    multiply_row(&l->gate, mine->a, w->gate, first, last);
    multiply_row(&l->up, mine->a, w->up, first, last);
    gate_row(m->activation, w->gate + first, w->up + first, last - first);
    barrier(c->team, me);
    multiply(c, me, (const struct matrix *[]){&l->down}, (float *[]){w->y}, 1, w->gate);
    if (me == 0) ask(c, layer);
    barrier(c->team, me);
    add_row(m, mine->x, w->y, l->after_mlp, mine->a);
}

/* ---- a block of rows */

/* x [count, columns] times a matrix, after `pack`: this thread's rows of it. */
static void multiply_block(const struct call *c, long me, const struct matrix *w, long count, float *y) {
    long first, last;
    share(c->team, me, w->rows, BLOCK_UNIT, &first, &last);
    if (first < last) multiply_rows(w, c->work.packed, count, y, w->rows, first, last, c->work.mine[me].scratch);
}

/* Packs x for `multiply_block`, all threads together, once all are here. */
static void pack(const struct call *c, long me, const float *x, long count, long columns) {
    barrier(c->team, me);
    pack_rows(x, columns, count, columns, c->work.packed, me, c->team->size);
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
    long first, last, hidden = m->hidden;
    float *x = w->x;
    share(c->team, me, count, 1, &first, &last);
    for (long r = first; r < last; r++) norm_row(x + r * hidden, l->before_attention, hidden, m->eps, w->a + r * hidden);
    if (me == 0) atomic_store(&c->next, 0);
    pack(c, me, w->a, count, hidden);
    if (!only_keys) multiply_block(c, me, &l->q, count, w->q);
    multiply_block(c, me, &l->k, count, w->k);
    multiply_block(c, me, &l->v, count, w->v);
    if (me == 0) ask(c, layer);
    barrier(c->team, me);
    turn_block(c, me, layer, position, count, !only_keys);
    barrier(c->team, me);
    if (only_keys || c->stop) return;
    attend_block(c, me, layer, position, count);
    pack(c, me, w->q, count, m->q_heads * m->head_dim);
    multiply_block(c, me, &l->o, count, w->y);
    barrier(c->team, me);
    for (long r = first; r < last; r++) {
        add_row(m, x + r * hidden, w->y + r * hidden, l->after_attention, w->a + r * hidden);
        norm_row(x + r * hidden, l->before_mlp, hidden, m->eps, w->a + r * hidden);
    }
    pack(c, me, w->a, count, hidden);
    multiply_block(c, me, &l->gate, count, w->gate);
    multiply_block(c, me, &l->up, count, w->up);
    long begin, end, inner = l->gate.rows;
    share(c->team, me, inner, BLOCK_UNIT, &begin, &end);
    for (long r = 0; r < count; r++) gate_row(m->activation, w->gate + r * inner + begin, w->up + r * inner + begin, end - begin);
    pack(c, me, w->gate, count, inner);
    multiply_block(c, me, &l->down, count, w->y);
    barrier(c->team, me);
    for (long r = first; r < last; r++) add_row(m, x + r * hidden, w->y + r * hidden, l->after_mlp, w->a + r * hidden);
}

/* ---- a call */

/* Logits of this thread's share of the vocabulary, and the best of them. */
static void logits(const struct call *c, long me) {
    const struct model *m = c->model;
    struct mine *mine = c->work.mine + me;
    float *y = c->step->logits;
    long first, last;
    norm_row(mine->x, c->model->final_norm, m->hidden, m->eps, mine->a);
    share(c->team, me, m->head.rows, UNIT, &first, &last);
    multiply_row(&m->head, mine->a, y, first, last);
    mine->best = -INFINITY, mine->best_id = -1;
    for (long i = first; i < last; i++) {
        y[i] *= m->logit_scale;
        if (m->logit_cap) y[i] = m->logit_cap * tanhf(y[i] / m->logit_cap);
        if (!(y[i] < INFINITY)) mine->best = INFINITY, mine->best_id = -1; /* and no finite one is larger */
        else if (y[i] > mine->best) mine->best = y[i], mine->best_id = i;
    }
}

/* The residual stream of rows `from` ... of the call at its begin. */
static void embed(const struct call *c, long from, long count, float *x) {
    const struct step *s = c->step;
    long hidden = c->model->hidden;
    if (s->rows) memcpy(x, s->rows + from * hidden, count * hidden * sizeof(float));
    else for (long r = 0; r < count; r++) embed_row(c->model, s->ids[from + r], x + r * hidden);
}

/* The rows block by block, all layers of each; of the last layer only keys and values are needed, but for the very last row. */
static void work_of(void *given, struct team *team, long me) {
    struct call *c = given;
    const struct step *s = c->step;
    float *x = c->work.x, *mine = c->work.mine[me].x;
    long layers = c->model->layer_count, blocks = (s->count + c->run->block - 1) / c->run->block, size = (s->count + blocks - 1) / blocks, first, last;
    for (long from = 0; from < s->count && !c->stop; from += size) {
        long count = s->count - from < size ? s->count - from : size, position = s->start + from;
        share(team, me, count, 1, &first, &last);
        if (count > 1) embed(c, from + first, last - first, x + first * c->model->hidden);
        for (long i = 0; count > 1 && i < layers && !c->stop; i++) block_layer(c, me, i, position, count, i + 1 == layers);
        if (c->stop || from + count < s->count) continue;
        if (count == 1) embed(c, from, 1, mine);
        else memcpy(mine, x + (count - 1) * c->model->hidden, c->model->hidden * sizeof(float));
        for (long i = count == 1 ? 0 : layers - 1; i < layers && !c->stop; i++) row_layer(c, me, i, position + count - 1);
    }
    if (!c->stop) logits(c, me);
}

long work_floats(const struct model *m, long block, long threads) {
    struct work w;
    return lay_out(&w, m, block, threads, NULL);
}

/* Floats in a tile of keys: `positions` of a run is a multiple of it. */
long tile_positions(void) { return KEYS; }

void step(struct step *s) {
    struct call c = {.step = s, .run = s->run, .model = s->run->model, .team = s->run->team, .asked = now_ns()};
    lay_out(&c.work, c.model, c.run->block, c.team->size, c.run->work);
    team_run(c.team, work_of, &c);
    s->done = !c.stop;
    if (c.stop) return;
    s->best = c.work.mine[0].best_id;
    for (long t = 1; t < c.team->size; t++)
        if (c.work.mine[t].best > c.work.mine[0].best) c.work.mine[0].best = c.work.mine[t].best, s->best = c.work.mine[t].best_id;
}
