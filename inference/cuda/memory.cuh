// What a captured step reads anew at every launch, so that the cache can grow without capturing again: 14 words of 64 bits in
// device memory (`memory.py` fills them). Stands before the kernels' sources; they take a `const Memory*`.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;

struct Memory {
    u16 *keys, *values;          // [layers, KV_HEADS, rows, HEAD_DIM] each, bf16
    const u16 *cos[4], *sin[4];  // [rows, rotated] bf16, one pair for each kind of layer, in the order of `memory.kinds`
    i64* history;                // [rows + 1]: the id that was chosen for each position; -1: the logits before it were no numbers
    i64* token;                  // [1]: the id at `position`
    int* position;               // [1]
    i64 rows;                    // positions that the cache holds
};
