// What all kernels share: number formats, sums over a warp, the norm's and the activation's form. Compiled at load by `device_code.py`,
// after `memory.cuh`, with no includes, so that NVRTC needs no toolkit.
//
// Knows no model: what tells models apart are macros (`kernels.py`). WIDE: activations and cache are float32 and nothing is rounded, for
// cards without bfloat16 arithmetic; otherwise both are bfloat16, sums run in float32 and are rounded where the plain model rounds.
// Every kernel waits for the one before it (`wait_for_previous`) before it touches anything that was not there at load.

#ifndef EMULATED
#define DEVICE __device__ __forceinline__
#define METHOD DEVICE
DEVICE uint4 stream16(const void* p) {  // read once: keep it out of L1
    uint4 v; asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); return v;
}
DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#if !WIDE
DEVICE u32 pack(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE void mma(float* c, const u32* a, u32 b0, u32 b1) {  // c[16x8] += a[16x16] b[16x8], bf16 in, float32 out
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8x8 tiles of shared bf16 values; lane l names row l % 8 of tile l / 8, and gets of each tile row l / 4, columns l % 4 * 2 and the next.
DEVICE void load_tiles(u32* r, const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}
DEVICE void load_tiles_turned(u32* r, const u16* row) {  // the same of the transposed tiles
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}
// 16 bytes from global to shared memory in the background (`close_copies` ends a batch of them); zeros where not `real`.
DEVICE void copy16(void* shared_to, const void* from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((u32)__cvta_generic_to_shared(shared_to)), "l"(from), "r"(real ? 16 : 0));
}
DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
#endif
#define ALL 0xffffffffu
#endif
#define INFINITE __uint_as_float(0x7f800000u)

constexpr bool HAS_ATTENTION_CAP = ATTENTION_CAP > 0, HAS_LOGIT_CAP = LOGIT_CAP > 0, HAS_LOGIT_SCALE = LOGIT_SCALE != 1, HAS_RESIDUAL_SCALE = RESIDUAL_SCALE != 1;

DEVICE float low_of(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE void unpack(const uint4& e, float* v) {  // eight bf16 values
    v[0] = low_of(e.x), v[1] = high_of(e.x), v[2] = low_of(e.y), v[3] = high_of(e.y);
    v[4] = low_of(e.z), v[5] = high_of(e.z), v[6] = low_of(e.w), v[7] = high_of(e.w);
}

#if WIDE
typedef float act;
struct Eight { float4 a, b; };
DEVICE float value(float v) { return v; }
DEVICE float rounded(float v) { return v; }
DEVICE float stored(float v) { return v; }
DEVICE Eight load8(const act* p) { return {((const float4*)p)[0], ((const float4*)p)[1]}; }
DEVICE void unpack(const Eight& e, float* v) { v[0] = e.a.x, v[1] = e.a.y, v[2] = e.a.z, v[3] = e.a.w, v[4] = e.b.x, v[5] = e.b.y, v[6] = e.b.z, v[7] = e.b.w; }
DEVICE void store8(act* p, const float* v) { for (int i = 0; i < 8; ++i) p[i] = v[i]; }
#else
typedef u16 act;
typedef uint4 Eight;
DEVICE float value(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEVICE float rounded(float v) { return low_of(pack(v, 0.f)); }
DEVICE u16 stored(float v) { return (u16)(pack(v, 0.f) & 0xffffu); }
DEVICE Eight load8(const act* p) { return *(const uint4*)p; }
DEVICE void store8(act* p, const float* v) { *(uint4*)p = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])); }
#endif

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

DEVICE float capped(float v, float cap) { return cap > 0.f ? cap * tanhf(v / cap) : v; }
