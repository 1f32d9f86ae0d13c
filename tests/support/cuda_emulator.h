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
#define METHOD inline
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
#if defined(__x86_64__)  // swapcontext asks the kernel at every switch, which is most of a test's time
typedef void* Context;
extern "C" void emulator_switch(Context* from, Context to) __asm__("emulator_switch");
__asm__(".text\nemulator_switch:\n push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        " pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n ret\n");
static void turn_to(Context& from, Context& to) { emulator_switch(&from, to); }
static void prepare(Context& c, char* stack, size_t bytes, void (*enter)()) {
    void** top = (void**)(((uintptr_t)stack + bytes) / 16 * 16);
    *--top = nullptr, *--top = (void*)enter;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    c = top;
}
#else
typedef ucontext_t Context;
static void turn_to(Context& from, Context& to) { swapcontext(&from, &to); }
static void prepare(Context& c, char* stack, size_t bytes, void (*enter)()) {
    getcontext(&c);
    c.uc_stack.ss_sp = stack, c.uc_stack.ss_size = bytes, c.uc_link = nullptr;
    makecontext(&c, enter, 0);
}
#endif
struct Fiber { Context context; State state; bool waited; std::vector<char> stack; };
static std::vector<Fiber> fibers;
static Context scheduler;
static int current;
static std::function<void()> body;
static double lane_value[32][32][8];
static void pause_as(State state) { fibers[current].state = state; turn_to(fibers[current].context, scheduler); }
static void enter() { body(); pause_as(ENDED); }
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
        f.state = READY, f.waited = false;
        if (f.stack.empty()) f.stack.resize(1 << 16);
        prepare(f.context, f.stack.data(), f.stack.size(), enter);
    }
    for (;;) {
        bool moved = false, alive = false;
        for (int i = 0; i < threads; ++i) {
            if (fibers[i].state == READY) {
                current = i, threadIdx.x = i, moved = true;
                turn_to(scheduler, fibers[i].context);
            }
            alive |= fibers[i].state != ENDED;
        }
        if (!alive) return;
        for (int w = 0; w < threads; w += 32) moved |= release(w, w + 32 < threads ? w + 32 : threads, AT_WARP);
        moved |= release(0, threads, AT_BLOCK);
        if (!moved) { fprintf(stderr, "emulator: threads wait for each other for ever\n"); abort(); }
    }
}
// A kernel that ends without having waited lets those after it begin before the one before it has ended.
static void check_all_waited(const char* name, int threads) {
    for (int i = 0; i < threads; ++i)
        if (!fibers[i].waited) { fprintf(stderr, "emulator: a thread of %s never waited for the kernel before\n", name); abort(); }
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
template <class T> static inline T __shfl_sync(unsigned, T v, int from) {
    int warp = threadIdx.x / 32;
    emulator::lane_value[warp][threadIdx.x % 32][0] = v;
    __syncwarp();
    T got = (T)emulator::lane_value[warp][from][0];
    __syncwarp();
    return got;
}
template <class T> static inline T __ldg(const T* p) { return *p; }
static inline int atomicAdd(int* p, int v) { int old = *p; *p += v; return old; }
static inline float __uint_as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
static inline unsigned bf(float v) { unsigned u; memcpy(&u, &v, 4); return v == v ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff; }
static inline unsigned pack(float low, float high) { return bf(low) | bf(high) << 16; }
static inline float rsqrtf(float v) { return 1.f / sqrtf(v); }
static inline void prefetch(const void*) {}
struct float2 { float x, y; };
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline uint4 stream16(const void* p) { return *(const uint4*)p; }
static inline void wait_for_previous() { emulator::fibers[emulator::current].waited = true; }
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

// Copies into shared memory happen when they are waited for, so that a missing wait shows.
namespace emulator { struct Copy { void* to; const void* from; bool real; }; static std::vector<Copy> copies[1024]; }
static inline void copy16(void* to, const void* from, bool real) { emulator::copies[emulator::current].push_back({to, from, real}); }
static inline void close_copies() {}
static inline void wait_for_copies() {
    for (auto& c : emulator::copies[emulator::current]) if (c.real) memcpy(c.to, c.from, 16); else memset(c.to, 0, 16);
    emulator::copies[emulator::current].clear();
}
static inline void load_tiles_as(unsigned* r, const unsigned short* row, bool turned) {
    static const unsigned short* rows[32][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    rows[warp][lane] = row;
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        unsigned v[2];
        for (int e = 0; e < 2; ++e) v[e] = turned ? rows[warp][i * 8 + lane % 4 * 2 + e][lane / 4] : rows[warp][i * 8 + lane / 4][lane % 4 * 2 + e];
        r[i] = v[0] | v[1] << 16;
    }
    __syncwarp();
}
static inline void load_tiles(unsigned* r, const unsigned short* row) { load_tiles_as(r, row, false); }
static inline void load_tiles_turned(unsigned* r, const unsigned short* row) { load_tiles_as(r, row, true); }

template <class... A, size_t... I> static void call(void (*f)(A...), void** p, std::index_sequence<I...>) { f(*(std::remove_reference_t<A>*)p[I]...); }
template <class... A> static std::function<void(void**)> callable(void (*f)(A...)) {
    return [f](void** p) { call(f, p, std::index_sequence_for<A...>()); };
}
