// Runs the CUDA kernels on the CPU, one block at a time, a fiber for each thread: enough of CUDA for their tests.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <map>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>
#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define DEVICE static inline
#define ALL 0xffffffffu
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
struct dim { int x, y, z; };
static inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
alignas(16) static unsigned shared[1 << 18];
static dim threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
enum State { READY, AT_BLOCK, AT_WARP, ENDED };
struct Fiber { ucontext_t context; State state; std::vector<char> stack; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current;
static std::function<void()> body;
static double lane_value[32][32][8];
static void enter() { body(); fibers[current].state = ENDED; swapcontext(&fibers[current].context, &scheduler); }
static void pause_as(State state) { fibers[current].state = state; swapcontext(&fibers[current].context, &scheduler); }
static bool release(int low, int high, State state) {
    for (int i = low; i < high; ++i) if (fibers[i].state != state && fibers[i].state != ENDED) return false;
    bool any = false;
    for (int i = low; i < high; ++i) if (fibers[i].state == state) fibers[i].state = READY, any = true;
    return any;
}
static void run_block(int threads) {
    if ((int)fibers.size() < threads) fibers.resize(threads);
    for (int i = 0; i < threads; ++i) {
        Fiber& f = fibers[i];
        f.state = READY;
        if (f.stack.empty()) f.stack.resize(1 << 16);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data(), f.context.uc_stack.ss_size = f.stack.size(), f.context.uc_link = nullptr;
        makecontext(&f.context, enter, 0);
    }
    for (;;) {
        bool moved = false, alive = false;
        for (int i = 0; i < threads; ++i) {
            if (fibers[i].state == READY) {
                current = i, threadIdx.x = i, moved = true;
                swapcontext(&scheduler, &fibers[i].context);
            }
            alive |= fibers[i].state != ENDED;
        }
        if (!alive) return;
        for (int w = 0; w < threads; w += 32) moved |= release(w, w + 32 < threads ? w + 32 : threads, AT_WARP);
        moved |= release(0, threads, AT_BLOCK);
        if (!moved) { fprintf(stderr, "emulator: threads wait for each other for ever\n"); abort(); }
    }
}
}

static inline void __syncthreads() { emulator::pause_as(emulator::AT_BLOCK); }
static inline void __syncwarp() { emulator::pause_as(emulator::AT_WARP); }
static inline void __threadfence() {}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int step) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    emulator::lane_value[warp][lane][0] = v;
    __syncwarp();
    T got = (T)emulator::lane_value[warp][lane ^ step][0];
    __syncwarp();
    return got;
}
template <class T> static inline T __ldg(const T* p) { return *p; }
static inline int atomicAdd(int* p, int v) { int old = *p; *p += v; return old; }
static inline float __uint_as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
static inline unsigned bf(float v) { unsigned u; memcpy(&u, &v, 4); return (u + 0x7fff + (u >> 16 & 1)) >> 16; }
static inline unsigned pack(float low, float high) { return bf(low) | bf(high) << 16; }
static inline float rsqrtf(float v) { return 1.f / sqrtf(v); }
static inline void prefetch(const void*) {}
struct float2 { float x, y; };
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline uint4 stream16(const void* p) { return *(const uint4*)p; }
static inline void wait_for_previous() {}
static inline void let_next_start() {}
static inline void mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
    static unsigned all[32][32][6];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(all[warp][lane], mine, sizeof mine);
    __syncwarp();
    for (int v = 0; v < 4; ++v) {
        int row = g + v / 2 * 8, column = q * 2 + v % 2;
        for (int k = 0; k < 16; ++k) {
            unsigned pa = all[warp][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], pb = all[warp][column * 4 + k % 8 / 2][4 + k / 8];
            c[v] += __uint_as_float(k % 2 ? pa & 0xffff0000u : pa << 16) * __uint_as_float(k % 2 ? pb & 0xffff0000u : pb << 16);
        }
    }
    __syncwarp();
}

template <class... A, size_t... I> static void call(void (*f)(A...), void** p, std::index_sequence<I...>) { f(*(std::remove_reference_t<A>*)p[I]...); }
template <class... A> static std::function<void(void**)> callable(void (*f)(A...)) {
    return [f](void** p) { call(f, p, std::index_sequence_for<A...>()); };
}
