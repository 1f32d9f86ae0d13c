/* What lies between the products of a layer, row by row: norms, rotary embedding, gates. Knows no threads. */
#ifndef PARTS_H
#define PARTS_H
#include "model.h"
#include "vectors.h"
#include <math.h>

/* y = row `id` of the embedding, scaled. */
static inline void embed_row(const struct model *m, long id, float *y) {
    const float *f = (const float *)m->embed.data + id * m->hidden;
    const uint16_t *h = (const uint16_t *)m->embed.data + id * m->hidden;
    for (long i = 0; i < m->hidden; i += W) {
        vf v = m->embed.kind == BF16 ? load_bf16(h + i) : m->embed.kind == F16 ? load_f16(h + i) : load(f + i);
        store(y + i, v * all(m->embed_scale));
    }
}

static inline float per_root(const float *x, long n, float eps) {
    vf a = {0}, b = {0};
    long i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        vf v = load(x + i), u = load(x + i + W);
        a += v * v;
        b += u * u;
    }
    for (; i < n; i += W) {
        vf v = load(x + i);
        a += v * v;
    }
    return 1 / sqrtf(total(a + b) / n + eps);
}

/* y = x / rms(x) * weight, or x where there is no norm. */
static inline void norm_row(const float *x, const float *weight, long n, float eps, float *y) {
    if (!weight) {
        memcpy(y, x, n * sizeof(float));
        return;
    }
    float scale = per_root(x, n, eps);
    for (long i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

/* x += residual_scale * what a block of the layer gave, normed where the model norms after it. */
static inline void add_row(const struct model *m, float *x, const float *given, const float *after, float *scratch) {
    if (after) {
        norm_row(given, after, m->hidden, m->eps, scratch);
        given = scratch;
    }
    for (long i = 0; i < m->hidden; i++) x[i] += m->residual_scale * given[i];
}

/* What turns heads of one row: its norm (NULL: none), the norm's factor where it is of the whole width (else 0), its angles (NULL: none). */
struct turn {
    const float *norm, *cosines, *sines;
    float whole, times;
};

static inline struct turn turn_of(const struct model *m, const float *row, long width, const float *norm, long norm_width, const float *cosines,
                                  const float *sines, float times) {
    int is_whole = norm && norm_width == width && width != m->head_dim;
    return (struct turn){norm, cosines, sines, is_whole ? per_root(row, width, m->eps) : 0, times};
}

/* Head `head` of a row of heads, normed, rotated and scaled. */
static inline void turn_head(const struct model *m, const struct turn *t, const float *row, long head, float *y) {
    long d = m->head_dim, half = m->rotated / 2;
    const float *x = row + head * d;
    float scale = t->times;
    if (t->norm) {
        const float *weight = t->whole ? t->norm + head * d : t->norm;
        scale *= t->whole ? t->whole : per_root(x, d, m->eps);
        for (long i = 0; i < d; i++) y[i] = x[i] * scale * weight[i];
    } else {
        for (long i = 0; i < d; i++) y[i] = x[i] * scale;
    }
    if (!t->cosines) return;
    for (long i = 0; i < half; i++) {
        float a = y[i], b = y[half + i];
        y[i] = a * t->cosines[i] - b * t->sines[i];
        y[half + i] = b * t->cosines[half + i] + a * t->sines[half + i];
    }
}

static inline vf gate_panel(int activation, vf g, vf u) {
    vf e = g;
    if (activation == GELU_TANH) e = (g + g * g * g * all(0.044715f)) * all(1.5957691216f); /* 1 + tanh(x) is twice the sigmoid of 2 x */
    return g / (all(1) + exp_of(-at_most(at_least(e, -87), 87))) * u;
}

/* gate = act(gate) * up, n numbers. */
static inline void gate_row(int activation, float *gate, const float *up, long n) {
    long i = 0;
    if (activation == GELU) {
        for (; i < n; i++) gate[i] = 0.5f * gate[i] * (1 + erff(gate[i] * 0.70710678f)) * up[i];
        return;
    }
    for (; i + W <= n; i += W) store(gate + i, gate_panel(activation, load(gate + i), load(up + i)));
    if (i < n) {
        vf g = {0}, u = {0};
        memcpy(&g, gate + i, (n - i) * sizeof(float));
        memcpy(&u, up + i, (n - i) * sizeof(float));
        g = gate_panel(activation, g, u);
        memcpy(gate + i, &g, (n - i) * sizeof(float));
    }
}
#endif
