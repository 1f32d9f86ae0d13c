// What the one-kernel step needs beside `common.cu`: copies that arrive later, what other blocks have written, a barrier's count. The
// emulator brings its own.

#ifndef EMULATED
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
// Forget what is known of `v`: what depends on it is not computed once for the whole kernel and kept in registers that there are not.
DEVICE void forget(int& v) { asm volatile("" : "+r"(v)); }
// Addresses in shared memory as the device counts them.
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE u32 shared_word(u32 address) { u32 v; asm("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address)); return v; }
// What other blocks of this launch have written: from L2.
DEVICE float4 fresh4(const float* p) {
    float4 v; asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p)); return v;
}
DEVICE float2 fresh2(const float2* p) { float2 v; asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p)); return v; }
DEVICE float fresh(const float* p) { float v; asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }
DEVICE uint2 fresh_pairs(const void* p) { uint2 v; asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p)); return v; }
DEVICE uint4 fresh_eight(const void* p) {
    uint4 v; asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); return v;
}
// A count that tells other blocks that all is written; reading it, all of that is seen.
DEVICE void signal(u32* count) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(count) : "memory"); }
DEVICE u32 counted(const u32* p) { u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
#endif

DEVICE bool better(float v, int index, float than, int than_index) { return v > than || (v == than && index < than_index); }
