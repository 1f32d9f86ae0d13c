/* A team of POSIX threads that stay: number 0 is the caller, the others wait for it. A wait spins for some tens of microseconds, so
 * that the parts of a step follow each other without a system call, then sleeps, so that two lanes on the same cores don't burn each
 * other's time. A process that ends, ends them. */
#ifndef TEAM_H
#define TEAM_H
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define SPINS 1000 /* some 40 microseconds: more than the system takes to wake a thread */
#define FEW_SPINS 50

/* A number that grows, and those who sleep until it does. */
struct bell {
    _Alignas(64) atomic_uint count;
    atomic_uint sleepers;
    pthread_mutex_t lock; /* where there is no futex */
    pthread_cond_t rung;
};

/* The core on which a thread was last seen. */
struct place {
    _Alignas(64) atomic_int core;
};

struct team {
    struct bell call, meeting;
    _Alignas(64) atomic_uint here; /* threads that have come to the meeting */
    pthread_mutex_t busy;          /* one caller at a time */
    void (*work)(void *what, struct team *team, long me);
    void *what;
    long size, asked;     /* threads that there are, and that were asked for */
    struct place *places; /* of each of those asked for */
};

static inline void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void bell_make(struct bell *b) {
    atomic_init(&b->count, 0);
    atomic_init(&b->sleepers, 0);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->rung, NULL);
}

static inline void bell_sleep(struct bell *b, unsigned seen) {
    atomic_fetch_add(&b->sleepers, 1);
#ifdef __linux__
    while (atomic_load(&b->count) == seen) syscall(SYS_futex, &b->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
    pthread_mutex_lock(&b->lock);
    while (atomic_load(&b->count) == seen) pthread_cond_wait(&b->rung, &b->lock);
    pthread_mutex_unlock(&b->lock);
#endif
    atomic_fetch_sub(&b->sleepers, 1);
}

/* Whether another of the team was last seen on this thread's own core, where it can't go on before this one sleeps. */
static inline int in_the_way(const struct team *t, long me) {
#ifdef __linux__
    int core = sched_getcpu();
    atomic_store_explicit(&t->places[me].core, core, memory_order_relaxed);
    for (long i = 0; i < t->asked; i++)
        if (i != me && atomic_load_explicit(&t->places[i].core, memory_order_relaxed) == core) return 1;
#else
    (void)t, (void)me;
#endif
    return 0;
}

static inline void bell_wait(struct team *t, struct bell *b, unsigned seen, long me) {
    for (int spin = 0; spin < SPINS && (spin != FEW_SPINS || !in_the_way(t, me)); spin++) {
        if (atomic_load_explicit(&b->count, memory_order_acquire) != seen) return;
        rest();
    }
    bell_sleep(b, seen);
}

static inline void bell_ring(struct bell *b) {
    atomic_fetch_add(&b->count, 1);
    if (!atomic_load(&b->sleepers)) return;
#ifdef __linux__
    syscall(SYS_futex, &b->count, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
#else
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&b->lock);
#endif
}

/* Nobody of the team goes on before all are here; what each wrote before it, all see after it. */
static inline void barrier(struct team *t, long me) {
    if (t->size == 1) return;
    unsigned seen = atomic_load(&t->meeting.count);
    if (atomic_fetch_add(&t->here, 1) + 1 < (unsigned)t->size) {
        bell_wait(t, &t->meeting, seen, me);
    } else {
        atomic_store(&t->here, 0);
        bell_ring(&t->meeting);
    }
}

/* The share of thread `me` in `count` things, in whole units: from *first to *last. */
static inline void share(const struct team *t, long me, long count, long unit, long *first, long *last) {
    long units = (count + unit - 1) / unit;
    *first = units * me / t->size * unit;
    *last = units * (me + 1) / t->size * unit;
    if (*first > count) *first = count;
    if (*last > count) *last = count;
}

/* Things that threads take as they come: cores are seldom equally fast. Zeros at first. */
struct pile {
    _Alignas(64) atomic_long taken;
};

/* Takes some of `count` things, a whole `unit` at least and fewer towards the end: from *first to *last. 0: none is left. */
static inline int take(const struct team *t, struct pile *p, long count, long unit, long *first, long *last) {
    *first = atomic_load_explicit(&p->taken, memory_order_relaxed);
    do {
        if (*first >= count) return 0;
        long some = (count - *first) / (2 * t->size) / unit * unit;
        *last = *first + (some > unit ? some : unit);
        if (*last > count) *last = count;
    } while (!atomic_compare_exchange_weak_explicit(&p->taken, first, *last, memory_order_relaxed, memory_order_relaxed));
    return 1;
}

/* Has all threads do `work`; back when all have done it. */
void team_run(struct team *t, void (*work)(void *what, struct team *team, long me), void *what);
#endif
