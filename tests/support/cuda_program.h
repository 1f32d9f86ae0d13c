// What the one-kernel step needs of the device beside `cuda_emulator.h`; the text stands before the kernel's.

// Copies that arrive late: done when a thread waits for their group, so that reading too early finds poison.
struct Late { void* to; const void* from; int bytes; bool use; };
static std::vector<std::vector<Late>> late[1024];
static inline void copy_later(void* to, const void* from, int bytes, bool use) {
    auto& mine = late[emulator::current];
    if (mine.empty()) mine.emplace_back();
    mine.back().push_back({to, from, bytes, use});
}
static inline void bring16(void* to, const void* from, bool use) { copy_later(to, from, 16, use); }
static inline void bring4(void* to, const void* from, bool use) { copy_later(to, from, 4, use); }
static inline void end_group() {
    if (late[emulator::current].empty()) late[emulator::current].emplace_back();
    late[emulator::current].emplace_back();
}
template <int PENDING> static inline void wait_groups() {
    auto& mine = late[emulator::current];
    while ((int)mine.size() > PENDING + 1) {
        for (auto& c : mine.front()) if (c.use) memcpy(c.to, c.from, c.bytes); else memset(c.to, 0, c.bytes);
        mine.erase(mine.begin());
    }
}
static inline void load_if(bool mine, uint4& v, const void* from) { if (mine) v = *(const uint4*)from; }
static inline float4 fresh4(const float* p) { return *(const float4*)p; }
static inline float fresh(const float* p) { return *p; }
static inline uint2 fresh_pairs(const void* p) { return *(const uint2*)p; }
static inline void signal(unsigned* count) { ++*count; }
static inline unsigned counted(const unsigned* p) { return *p; }
static inline unsigned __float_as_uint(float v) { unsigned u; memcpy(&u, &v, 4); return u; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = a | (unsigned long long)b << 32;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}
static inline unsigned shared_address(const void* p) { return (const char*)p - (const char*)shared; }
static inline unsigned shared_word(unsigned address) { return *(unsigned*)((char*)shared + address); }
static inline float2 fresh2(const float2* p) { return *p; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline void forget(int&) {}
static inline uint4 fresh_eight(const void* p) { return *(const uint4*)p; }
static inline float __fdividef(float a, float b) { return a / b; }
