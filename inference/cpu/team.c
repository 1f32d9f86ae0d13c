/* Makes teams and hands them work: see team.h. */
#include "team.h"

struct member {
    struct team *team;
    long number;
};

static void *member_of(void *given) {
    struct member me = *(struct member *)given;
    free(given);
    for (unsigned seen = 0;; seen++) {
        bell_wait(me.team, &me.team->call, seen, me.number);
        me.team->work(me.team->what, me.team, me.number);
        barrier(me.team, me.number);
    }
    return NULL;
}

static int add_member(struct team *t, long number) {
    struct member *m = malloc(sizeof *m);
    pthread_t thread;
    if (!m) return -1;
    *m = (struct member){t, number};
    if (pthread_create(&thread, NULL, member_of, m)) {
        free(m);
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

/* A team of `size` threads, or of as many as the system gives; NULL where there is no memory. */
struct team *team_make(long size) {
    struct team *t = NULL;
    sigset_t all, before;
    struct place *places = NULL;
    if (posix_memalign((void **)&t, 64, sizeof *t) || posix_memalign((void **)&places, 64, size * sizeof *places)) {
        free(t);
        return NULL;
    }
    for (long i = 0; i < size; i++) atomic_init(&places[i].core, -1);
    t->places = places;
    bell_make(&t->call);
    bell_make(&t->meeting);
    atomic_init(&t->here, 0);
    pthread_mutex_init(&t->busy, NULL);
    t->size = 1, t->asked = size;
    sigfillset(&all); /* signals are the interpreter's threads' */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->size < size && !add_member(t, t->size)) t->size++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t;
}

long team_size(const struct team *t) { return t->size; }

void team_run(struct team *t, void (*work)(void *what, struct team *team, long me), void *what) {
    pthread_mutex_lock(&t->busy);
    t->work = work;
    t->what = what;
    if (t->size > 1) bell_ring(&t->call);
    work(what, t, 0);
    barrier(t, 0);
    pthread_mutex_unlock(&t->busy);
}
