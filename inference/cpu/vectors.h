/* Vectors of FP32: 16 lanes with AVX-512, 8 with AVX2, else 4 (SSE2, NEON), by the compiler's own vector types; intrinsics
 * only where those have no word for an instruction. Knows no matrix and no model. Never built with -ffast-math: nothing here
 * flushes denormals, and a sum keeps its order. */
#ifndef VECTORS_H
#define VECTORS_H
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define W 16 /* floats in a vector */
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define W 8
#else
#define W 4
#endif

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));

INLINE vf load(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }

INLINE void store(float *p, vf v) { memcpy(p, &v, sizeof v); }

/* f in every lane. */
INLINE vf all(float f) {
#if W == 16
    return (vf)_mm512_set1_ps(f);
#elif W == 8
    return (vf)_mm256_set1_ps(f);
#else
    return (vf){f, f, f, f};
#endif
}

/* W numbers of 16 bits as FP32, exactly. */
INLINE vf load_bf16(const uint16_t *p) {
#if W == 16
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif W == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    vh h; memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

#if W == 4
static inline float float_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, mantissa = h & 1023, u; float f;
    if (exponent == 31) u = sign | 0x7f800000u | mantissa << 13;
    else if (exponent) u = sign | (exponent + 112) << 23 | mantissa << 13;
    else { f = mantissa * (1.0f / 16777216.0f); return sign ? -f : f; }
    memcpy(&f, &u, 4); return f;
}
#endif

INLINE vf load_f16(const uint16_t *p) {
#if W == 16
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif W == 8
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    return (vf){float_of_f16(p[0]), float_of_f16(p[1]), float_of_f16(p[2]), float_of_f16(p[3])};
#endif
}

/* The sum of the lanes, by halves. */
INLINE float total(vf v) {
#if W == 16
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif W == 8
    __m256 h = (__m256)v;
#endif
#if W >= 8
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

/* Each lane of v where `keep` is all ones, else of `other`. */
INLINE vf chosen(vi keep, vf v, vf other) { return (vf)(((vi)v & keep) | ((vi)other & ~keep)); }

/* v, but no lane below `low`; NaN stays NaN. */
INLINE vf at_least(vf v, float low) { return chosen(v < all(low), all(low), v); }

INLINE vf at_most(vf v, float high) { return chosen(v > all(high), all(high), v); }

/* The largest lane; a NaN need not show. */
INLINE float largest(vf v) {
    float m = v[0];
    UNROLL for (int i = 1; i < W; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* e^x for x from -87 to 88 (outside: clamp first): 2^n times Cephes' polynomial on the rest; within 2 units of the last place. */
INLINE vf exp_of(vf x) {
    vf n = (x * all(1.44269504f) + all(12582912.0f)) - all(12582912.0f); /* to the nearest whole number */
    vf r = x - n * all(0.693359375f) - n * all(-2.12194440e-4f), p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f); p = p * r + all(8.3334519073e-3f); p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f); p = p * r + all(5.0000001201e-1f);
    vi scale = (__builtin_convertvector(n, vi) + 127) << 23;
    return (p * r * r + r + all(1)) * (vf)scale;
}
#endif
