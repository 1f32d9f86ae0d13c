/* Some rows of a model in one call, by all threads of a team: prefill in blocks of rows, decode a row at a time. FP32 arithmetic on
 * weights as they are stored. */
#include "block.h"
#include "row.h"

/* Logits of what this thread takes of the vocabulary, and the best of them. */
static void logits(struct call *c, long me) {
    const struct model *m = c->model;
    struct mine *mine = c->work.mine + me;
    float *y = c->step->logits;
    long first, last;
    norm_row(mine->x, c->model->final_norm, m->hidden, m->eps, mine->a);
    mine->best = -INFINITY, mine->best_id = -1;
    while (take(c->team, &c->logits, m->head.rows, UNIT, &first, &last)) {
        multiply_row(&m->head, mine->a, y, first, last);
        for (long i = first; i < last; i++) {
            y[i] *= m->logit_scale;
            if (m->logit_cap) y[i] = m->logit_cap * tanhf(y[i] / m->logit_cap);
            if (!(y[i] < INFINITY)) mine->best = INFINITY, mine->best_id = -1; /* and no finite one is larger */
            else if (y[i] > mine->best) mine->best = y[i], mine->best_id = i;
        }
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
    struct mine *best = c.work.mine; /* of equally likely ones the first: which thread had it is chance */
    for (struct mine *other = best + 1; other < c.work.mine + c.team->size; other++)
        if (other->best > best->best || (other->best == best->best && other->best_id < best->best_id)) best = other;
    s->best = best->best_id;
}
