// What kernels of every kind need: bf16 in and out, sums over a warp, the norm's and the activation's form (macros NORM_OFFSET,
// NORM_ROUNDS, ACTIVATION). No includes, so that NVRTC needs no toolkit; the emulator brings its own of what stands under EMULATED.

#ifndef EMULATED
#define DEVICE __device__ __forceinline__
#define ALL 0xffffffffu
DEVICE u32 pack(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
DEVICE void mma(float* c, const u32* a, u32 b0, u32 b1) {  // c[16x8] += a[16x16] b[16x8], bf16 in, float32 out
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Copies of 16 and 4 bytes into shared memory that arrive later; `use` false writes zeros.
DEVICE void bring16(void* to, const void* from, bool use) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(use ? 16 : 0) : "memory");
}
DEVICE void bring4(void* to, const void* from, bool use) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(use ? 4 : 0) : "memory");
}
DEVICE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void wait_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }
// 16 bytes of shared memory into registers that keep what they had where `mine` is false.
DEVICE void load_if(bool mine, uint4& v, const void* from) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%5];}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"((u32)mine), "r"((u32)__cvta_generic_to_shared(from)) : "memory");
}
// What other blocks of this launch have written: from L2.
DEVICE float4 fresh4(const float* p) {
    float4 v; asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p)); return v;
}
DEVICE float fresh(const float* p) { float v; asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }
DEVICE uint2 fresh_pairs(const void* p) { uint2 v; asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p)); return v; }
DEVICE void signal(u32* counter) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(counter) : "memory"); }
DEVICE bool reached(const u32* counter, u32 target) {
    u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory"); return v >= target;
}
#endif

DEVICE float low_of(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float value(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEVICE float rounded(float v) { return low_of(pack(v, 0.f)); }
DEVICE u16 bits_of(float v) { return (u16)(pack(v, 0.f) & 0xffffu); }

DEVICE float warp_sum(float v, int width = 32) {
    for (int step = width / 2; step; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

DEVICE float normed(float v, float inverse_rms, float weight) {
    v *= inverse_rms;
    return rounded((NORM_ROUNDS ? rounded(v) : v) * (NORM_OFFSET + weight));
}

DEVICE float activated(float v) {
#if ACTIVATION == 0
    return rounded(v / (1.f + expf(-v)));
#elif ACTIVATION == 1
    return rounded(0.5f * v * (1.f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v))));
#else
    return rounded(0.5f * v * (1.f + erff(v * 0.7071067811865476f)));
#endif
}

DEVICE bool better(float v, int index, float than, int than_index) { return v > than || (v == than && index < than_index); }
