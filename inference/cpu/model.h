/* A model, a run over it and one call for some of its rows, as the step takes them; filled from Python (`library.py`, field by field). */
#ifndef MODEL_H
#define MODEL_H
#include "matrix.h"
#include "team.h"

enum activation { SILU, GELU_TANH, GELU };

struct layer {
    struct matrix q, k, v, o, gate, up, down;
    const float *before_attention, *after_attention, *before_mlp, *after_mlp; /* [hidden], the offset added; NULL: not there */
    const float *q_norm, *k_norm;                                             /* [head_dim] or the whole width */
    long q_norm_width, k_norm_width, window;
    long rotary; /* which of a run's tables; -1: not rotated */
};

struct model {
    const struct layer *layers;
    struct matrix head, embed; /* `embed`: [vocabulary, hidden], not in 4 bits; data NULL: a call brings its rows */
    const float *final_norm;
    long layer_count, hidden, head_dim, q_heads, kv_heads, rotated, widest; /* `widest`: the most rows of a gate */
    float eps, embed_scale, attention_scale, attention_cap, residual_scale, logit_scale, logit_cap;
    int activation;
};

struct run {
    const struct model *model;
    struct team *team;
    float *keys, *values;           /* [layers, kv_heads, positions * head_dim]: see attention.h */
    const float **cosines, **sines; /* of each table: [positions, rotated] */
    float *work;                    /* `work_floats` of them */
    long positions, block;          /* `positions`: a multiple of 64; `block`: the most rows that are read together */
};

struct step {
    const struct run *run;
    const long *ids;   /* [count] */
    const float *rows; /* [count, hidden]: the ids embedded, where the model has no `embed` */
    long count, start;
    float *logits;             /* [vocabulary], after the last row */
    int (*go_on)(long layers); /* asked by the caller's thread, at most every `ask_ns`: whether to; NULL: always */
    long ask_ns;
    long best;                 /* the first of the likeliest ids; -1: a logit is NaN or +inf, or all are -inf */
    long done;                 /* 1: all was done; 0: it was told to stop */
};
#endif
