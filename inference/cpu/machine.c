/* How fast this processor reads memory, and how fast it multiplies and adds in FP32: what a decode step and a prompt are held against.
 *
 * One thread a call; the caller runs as many as the lane has. Knows no model. */

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define WIDTH (BYTES / (long)sizeof(float))
#define CHAINS 12 /* two products a cycle, each ready after four or five: 12 keep them busy, and leave four of 16 registers */

typedef float vector __attribute__((vector_size(BYTES)));

static float sum_of(vector v) {
    float sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += v[i];
    return sum;
}

/* Loads p[0..n), p on a border of 64 bytes and n a multiple of 128, and adds all up, so that no load can be left out. */
float read_all(const float *p, long n) {
    vector sums[8] = {{0}};
    for (const vector *from = (const vector *)p, *end = (const vector *)(p + n); from < end; from += 8)
        for (int i = 0; i < 8; i++) sums[i] += from[i];
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += sum_of(sums[i]);
    return sum;
}

/* What one round of multiply_add computes: a multiplication and an addition in each place. */
long round_flops(void) { return 2 * CHAINS * WIDTH; }

float multiply_add(long rounds) {
    vector sums[CHAINS], factor, more;
    for (int i = 0; i < WIDTH; i++) factor[i] = 0.999f, more[i] = 0.001f;
    for (int i = 0; i < CHAINS; i++) sums[i] = more * (float)i;
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < CHAINS; i++) sums[i] = sums[i] * factor + more;
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += sum_of(sums[i]);
    return sum;
}
