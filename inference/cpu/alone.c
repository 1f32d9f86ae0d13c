/* One product of rows with a matrix by a whole team: for layers whose model is not stepped through in C. */
#include "matrix.h"
#include "team.h"

struct product {
    const struct matrix *w;
    const float *x; /* [rows, columns of w] */
    float *y;       /* [rows, rows of w] */
    long rows;
    float *work; /* `product_floats` of them */
};

struct job {
    const struct product *product;
    struct pile rows;
};

static void multiply_all(void *given, struct team *team, long me) {
    struct job *job = given;
    const struct product *p = job->product;
    long first, last;
    if (p->rows > 1) {
        share(team, me, p->rows, 1, &first, &last);
        pack_rows(p->x, p->w->columns, p->rows, p->w->columns, p->work, first, last);
        barrier(team, me);
    }
    while (take(team, &job->rows, p->w->rows, p->rows == 1 ? 8 : 32, &first, &last)) {
        if (p->rows == 1) multiply_row(p->w, p->x, p->y, first, last);
        else multiply_rows(p->w, p->work, p->rows, p->y, p->w->rows, first, last,
                           p->work + (packed_floats(p->rows, p->w->columns) + 15) / 16 * 16 + me * ((scratch_floats(p->rows) + 31) / 16 * 16));
    }
}

long product_floats(const struct team *team, long rows, long columns) {
    if (rows == 1) return 0;
    return (packed_floats(rows, columns) + 15) / 16 * 16 + team->size * ((scratch_floats(rows) + 31) / 16 * 16);
}

void product(struct team *team, struct product *p) { team_run(team, multiply_all, &(struct job){.product = p}); }
