// Weights on their way: each warp streams its share of every matrix of the whole step through its own slots of shared memory.
//
// Work: turns 0 ... 4 * LAYERS - 1 are a layer's QKV, O, GATED, DOWN; then the head in chunks. A matrix is tiles of 16 rows (GATED: 8 gate
// rows and the 8 up rows beside them), a tile is pieces of 128 bytes a row. Lane (g, q) of a warp fetches and later multiplies the same 64
// bytes of a piece: 16-byte chunks q and q + 4 of rows g and g + 8. So nobody but the lane itself has to know when they have arrived, and the
// fetching runs DEPTH pieces ahead, past barriers, norms and attention.
// bitsandbytes' layout: two codes a byte, high nibble first, one float32 scale for 64 of them, rows one after another.

enum { QKV, O, GATED, DOWN, HEAD };
constexpr int THREADS = 512, WARPS = 16, PIECE = 2048, SLOT = PIECE + (FORMATS ? 256 : 0);

struct Layer {  // `parts.py`'s LayerParts: matrices q, k, v, o, gate, up, down; the entry after the last layer is the head and its norm
    const u8* codes[7];
    const float* scales[7];
    const u16 *bias[7], *norms[4], *q_norm, *k_norm;
    int kind, window;  // of rotary tables, -1: none
};

DEVICE constexpr int columns_of(int kind) { return kind == O ? Q_HEADS * HEAD_DIM : kind == DOWN ? INNER : HIDDEN; }
DEVICE constexpr int rows_of(int kind) {
    return kind == QKV ? (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM : kind == GATED ? INNER : kind == HEAD ? VOCABULARY : HIDDEN;
}
DEVICE constexpr int tiles_of(int kind) { return kind == GATED ? (INNER + 7) / 8 : (rows_of(kind) + 15) / 16; }
DEVICE constexpr bool is_four_bit(int kind) { return FORMATS >> kind & 1; }
DEVICE constexpr int pieces_of(int kind) { return is_four_bit(kind) ? (columns_of(kind) + 255) / 256 : (columns_of(kind) + 63) / 64; }
DEVICE constexpr int whole_pieces(int kind) { return columns_of(kind) % (is_four_bit(kind) ? 256 : 64) == 0; }
constexpr int CHUNKS = (tiles_of(HEAD) + HEAD_CHUNK - 1) / HEAD_CHUNK, TURNS = 4 * LAYERS + CHUNKS;

// Pieces `low` ... `high` - 1 of a matrix, `pieces` a tile.
struct Span { int kind, pieces, low, high; };

// This block's share of a turn. O, DOWN and QKV are cut anywhere: at most two blocks share a tile, and who needs the sums adds two.
DEVICE Span share_of(int turn) {
    const int kind = turn < 4 * LAYERS ? turn % 4 : HEAD, block = blockIdx.x, blocks = gridDim.x;
    int pieces = pieces_of(HEAD), tiles = tiles_of(HEAD), low = 0, high = 0;
    if (kind == QKV) pieces = pieces_of(QKV), tiles = tiles_of(QKV);
    if (kind == O) pieces = pieces_of(O), tiles = tiles_of(O);
    if (kind == GATED) pieces = pieces_of(GATED), tiles = tiles_of(GATED);
    if (kind == DOWN) pieces = pieces_of(DOWN), tiles = tiles_of(DOWN);
    if (kind == GATED || kind == HEAD) {
        const int first = kind == HEAD ? (turn - 4 * LAYERS) * HEAD_CHUNK : 0;
        if (kind == HEAD) tiles = tiles - first < HEAD_CHUNK ? tiles - first : HEAD_CHUNK;
        low = (first + tiles * block / blocks) * pieces, high = (first + tiles * (block + 1) / blocks) * pieces;
    } else {
        const int busy = tiles < blocks ? tiles : blocks;
        if (block < busy) low = tiles * pieces * block / busy, high = tiles * pieces * (block + 1) / busy;
    }
    return {kind, pieces, low, high};
}

DEVICE int warps_for(int count) { return count < WARPS ? count : WARPS; }

DEVICE Span warp_share(const Span& block) {
    const int warp = threadIdx.x / 32, count = block.high - block.low, warps = warps_for(count);
    if (warp >= warps) return {block.kind, block.pieces, block.high, block.high};
    return {block.kind, block.pieces, block.low + count * warp / warps, block.low + count * (warp + 1) / warps};
}

// Where this warp's fetching is: `next` of `span` goes into slot `slot`; `from`, `scale` point at this lane's bytes of it.
struct Feed {
    Span span;
    int turn, last, in_tile, slot;
    const u8* from[2];
    const u8* scale[2];
};

// Point at piece `low` of the feed's span.
DEVICE void aim(Feed& feed, const Layer* layers) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, kind = feed.span.kind, tile = feed.span.low / feed.span.pieces;
    const Layer& layer = layers[kind == HEAD ? LAYERS : feed.turn / 4];
    feed.in_tile = feed.span.low % feed.span.pieces;
    for (int half = 0; half < 2; ++half) {
        int row = kind == GATED ? tile * 8 + g : tile * 16 + 8 * half + g, which = 0, most = HEAD_DIM * Q_HEADS;
        if (kind == QKV && row >= HEAD_DIM * Q_HEADS) {
            row -= HEAD_DIM * Q_HEADS, which = 1, most = HEAD_DIM * KV_HEADS;
            if (row >= most) row -= most, which = 2;
        }
        if (kind == O || kind == DOWN) which = kind == O ? 3 : 6, most = HIDDEN;
        if (kind == GATED) which = 4 + half, most = INNER;
        if (kind == HEAD) most = VOCABULARY;
        if (row >= most) row = most - 1;  // fetched to no use, but nobody reads past the end
        const int width = kind == O ? columns_of(O) : kind == DOWN ? INNER : HIDDEN;
        const bool four = FORMATS >> kind & 1;
        feed.from[half] = layer.codes[which] + (i64)row * (four ? width / 2 : width * 2) + feed.in_tile * 128 + q * 16;
        if (four) feed.scale[half] = (const u8*)layer.scales[which] + (i64)row * (width / 64 * 4) + feed.in_tile * 16;
    }
}

// Where nothing is left of the feed's span: go on to the next turn that has something for this warp.
DEVICE void find_more(Feed& feed, const Layer* layers) {
    while (feed.span.low == feed.span.high && feed.turn + 1 < feed.last) feed.span = warp_share(share_of(++feed.turn));
    if (feed.span.low < feed.span.high) aim(feed, layers);
}

// Fetch the next piece, if there is one, into the next slot of this warp's `ring`.
DEVICE void fetch(Feed& feed, u8* ring, const Layer* layers) {
    if (feed.span.low < feed.span.high) {
        const int lane = threadIdx.x % 32, q = lane % 4, kind = feed.span.kind;
        const bool four = FORMATS >> kind & 1;
        u8* slot = ring + feed.slot * SLOT;
        const int width = kind == O ? columns_of(O) : kind == DOWN ? INNER : HIDDEN, left = (four ? width / 2 : width * 2) - feed.in_tile * 128;
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const bool use = !RAGGED || q * 16 + chunk * 64 < left;
                bring16(slot + ((chunk * 2 + half) * 32 + lane) * 16, feed.from[half] + (use ? chunk * 64 : 0), use);
            }
        if (four && q == 0)
            for (int half = 0; half < 2; ++half) {
                u8* to = slot + PIECE + (half * 8 + lane / 4) * 16;
                if (!RAGGED) bring16(to, feed.scale[half], true);
                else for (int i = 0; i < 4; ++i) bring4(to + i * 4, feed.scale[half] + (i * 32 < left ? i * 4 : 0), i * 32 < left);
            }
        for (int half = 0; half < 2; ++half) feed.from[half] += 128, feed.scale[half] += 16;
        ++feed.span.low;
        if (feed.span.low == feed.span.high) find_more(feed, layers);
        else if (++feed.in_tile == feed.span.pieces) aim(feed, layers);
    }
    end_group();
    feed.slot = feed.slot + 1 == DEPTH ? 0 : feed.slot + 1;
}

// ---------------------------------------------------------------- the row that is multiplied, and a byte's two codes

// Blocks of 64 values, 128 bytes, X_STRIDE apart: with WIDE_TABLE, between the strips of the table. The halves of odd blocks are swapped by
// 32 bytes, so that the four lanes that read at a time meet no bank twice.
DEVICE u8* x_place(u8* x, int column) { return x + column / 64 * X_STRIDE + (column % 64 * 2 ^ column / 64 % 2 * 32); }

// Strips of 32 equal words, one for each bank: no conflicts (a narrow table: 8 words, several lanes a bank).
DEVICE u32 codes(const u8* table, u32 word, int byte, u32 lane4) {
#if WIDE_TABLE
    return *(const u32*)(table + __byte_perm(word, lane4, 0x5504 | byte << 4));
#else
    return *(const u32*)(table + ((byte ? word >> (8 * byte - 5) : word << 5) & 0x1fe0u | lane4));
#endif
}

// Sums of rows g and g + 8 over one piece; lanes q == 0 hold them. The two scale blocks under a chunk go to columns 0 and 1 of the product:
// lanes 0, 1 bring x for the first, 6, 7 for the second, and `x` of lanes 2 ... 5 stays zero.
DEVICE void multiply_codes(float* sum, const u8* slot, const u8* table, u8* x_row, int piece, uint4* x) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    const bool mine = lane < 2 || lane == 6 || lane == 7;
    const u32 lane4 = lane % (WIDE_TABLE ? 32 : 8) * 4;
    float c[2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
        const uint4 upper = ((const uint4*)slot)[(chunk * 2) * 32 + lane], lower = ((const uint4*)slot)[(chunk * 2 + 1) * 32 + lane];
        const u32 w[2][4] = {{upper.x, upper.y, upper.z, upper.w}, {lower.x, lower.y, lower.z, lower.w}};
        u8* block = x_row + (piece * 4 + chunk * 2 + q / 2) * X_STRIDE + q % 2 * 64;
        u8 *early = block + q / 2 * 32, *late = block + (32 - q / 2 * 32);
        load_if(mine, x[0], early), load_if(mine, x[1], early + 16), load_if(mine, x[2], late), load_if(mine, x[3], late + 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 first[4] = {codes(table, w[0][i], 0, lane4), codes(table, w[1][i], 0, lane4), codes(table, w[0][i], 1, lane4), codes(table, w[1][i], 1, lane4)};
            u32 second[4] = {codes(table, w[0][i], 2, lane4), codes(table, w[1][i], 2, lane4), codes(table, w[0][i], 3, lane4), codes(table, w[1][i], 3, lane4)};
            mma(c[chunk], first, x[i].x, x[i].y);
            mma(c[chunk], second, x[i].z, x[i].w);
        }
    }
    if (q) return;
    for (int half = 0; half < 2; ++half) {
        const float4 scale = *(const float4*)(slot + PIECE + (half * 8 + lane / 4) * 16);
        sum[half] += c[0][half * 2] * scale.x + c[0][half * 2 + 1] * scale.y + c[1][half * 2] * scale.z + c[1][half * 2 + 1] * scale.w;
    }
}

// The same for 64 bf16 columns.
DEVICE void multiply_values(float* sum, const u8* slot, u8* x_row, int piece, uint4* x) {
    const int lane = threadIdx.x % 32, q = lane % 4;
    float c[2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
        const uint4 upper = ((const uint4*)slot)[(chunk * 2) * 32 + lane], lower = ((const uint4*)slot)[(chunk * 2 + 1) * 32 + lane];
        load_if(lane < 4, x[chunk], x_place(x_row, piece * 64 + chunk * 32 + q * 8));
        const u32 first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
        mma(c[chunk], first, x[chunk].x, x[chunk].y);
        mma(c[chunk], second, x[chunk].z, x[chunk].w);
    }
    if (q == 0) sum[0] += c[0][0] + c[1][0], sum[1] += c[0][2] + c[1][2];
}
