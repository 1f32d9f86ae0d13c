// Weights on their way: each warp streams its share of every matrix of the whole step through its own slots of shared memory.
//
// Work: turns 0 ... 4 * layers - 1 are a layer's QKV, O, GATED, DOWN; then the head in chunks. A matrix is tiles of 16 rows (GATED: 8 gate
// rows and the 8 up rows beside them), a tile is pieces of 128 bytes a row. Lane (g, q) of a warp fetches and later multiplies the same 64
// bytes of a piece: 16-byte chunks q and q + 4 of rows g and g + 8. So nobody but the lane itself has to know when they have arrived, and the
// fetching runs DEPTH pieces ahead, past barriers, norms and attention.
// bitsandbytes' layout: two codes a byte, high nibble first, one float32 scale for 64 of them, rows one after another.

enum { QKV, O, GATED, DOWN, HEAD, HEAD_END, KINDS };  // HEAD_END: the head's last chunk
constexpr int THREADS = 32 * WARPS, PIECE = 2048, SLOT = PIECE + (FORMATS ? 256 : 0);

struct Weights { const u8 *codes[7], *scales[7]; };  // q, k, v, o, gate, up, down; the entry after the last layer is the head
struct Layer {  // the rest of `LayerParts`; the entry after the last layer is the head's bias and norm
    const u16 *bias[7], *norms[4], *q_norm, *k_norm;
    int kind, window;  // of rotary tables, -1: none
};

// A matrix of one kind: what a block has of it (`low` ... `high` - 1 of its pieces, from tile `first` on, `tiles` of them), and its form.
struct Part { int low, high, first, tiles, pieces, row_bytes, scale_bytes, four; };
// What a warp has of it: `count` pieces from piece `in_tile` of tile `tile` on.
struct Share { int count, tile, in_tile, pad; };

DEVICE constexpr int columns_of(int kind) { return kind == O ? Q_HEADS * HEAD_DIM : kind == DOWN ? INNER : HIDDEN; }
DEVICE constexpr int rows_of(int kind) {
    return kind == QKV ? (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM : kind == GATED ? INNER : kind >= HEAD ? VOCABULARY : HIDDEN;
}
DEVICE constexpr int tiles_of(int kind) { return kind == GATED ? (INNER + 7) / 8 : (rows_of(kind) + 15) / 16; }
DEVICE constexpr bool is_four_bit(int kind) { return FORMATS >> (kind < HEAD ? kind : HEAD) & 1; }
DEVICE constexpr int pieces_of(int kind) { return is_four_bit(kind) ? (columns_of(kind) + 255) / 256 : (columns_of(kind) + 63) / 64; }
constexpr int CHUNKS = (tiles_of(HEAD) + HEAD_CHUNK - 1) / HEAD_CHUNK;
DEVICE int kind_of(int turn, int layers) { return turn < 4 * layers ? turn % 4 : turn == 4 * layers + CHUNKS - 1 ? HEAD_END : HEAD; }
DEVICE int first_tile(int turn, int layers) { return turn < 4 * layers ? 0 : (turn - 4 * layers) * HEAD_CHUNK; }
DEVICE int warps_for(int count) { return count < WARPS ? count : WARPS; }

// QKV, O and DOWN are cut anywhere: at most two blocks share a tile, and who needs the sums adds two.
DEVICE Part part_of(int kind) {
    const int block = blockIdx.x, blocks = gridDim.x, pieces = pieces_of(kind), all = tiles_of(kind);
    const int tiles = kind == HEAD ? HEAD_CHUNK : kind == HEAD_END ? all - (CHUNKS - 1) * HEAD_CHUNK : all;
    const bool four = is_four_bit(kind);
    const int columns = columns_of(kind);
    Part part = {0, 0, 0, 0, pieces, four ? columns / 2 : columns * 2, columns / 16, four};
    if (kind == GATED || kind >= HEAD) {
        part.low = tiles * block / blocks * pieces, part.high = tiles * (block + 1) / blocks * pieces;
    } else {
        const int busy = tiles < blocks ? tiles : blocks;
        if (block < busy) part.low = tiles * pieces * block / busy, part.high = tiles * pieces * (block + 1) / busy;
    }
    part.first = part.low / pieces;
    part.tiles = part.high > part.low ? (part.high - 1) / pieces - part.first + 1 : 0;
    return part;
}

DEVICE Share share_of(const Part& part, int warp) {
    const int count = part.high - part.low, warps = warps_for(count);
    if (warp >= warps) return {0, 0, 0, 0};
    const int low = part.low + count * warp / warps, high = part.low + count * (warp + 1) / warps;
    return {high - low, low / part.pieces, low % part.pieces, 0};
}

// The first and the last warp that have something of a tile of this block.
DEVICE void warps_of(const Part& part, int tile, u8* ends) {
    const int count = part.high - part.low, warps = warps_for(count);
    int low = (part.first + tile) * part.pieces - part.low, high = low + part.pieces;
    low = low > 0 ? low : 0, high = high < count ? high : count;
    ends[0] = ((low + 1) * warps - 1) / count, ends[1] = (high * warps - 1) / count;
}

// What a block keeps in shared memory.
struct Shared {
    int t, layer_count;  // threadIdx.x; the model's layers
    u8 *table, *x;
    Weights* weights;
    Layer* layers;  // [2]: of layer i at i % 2
    Memory* memory;
    Part* parts;
    Share* shares;  // [KINDS, WARPS]
    u8* ends;       // [KINDS, MOST_TILES, 2]
    u16* stream;
    float *work, *small;
    u8* ring;  // this warp's slots
};

// Where this warp's fetching is: the next piece goes into slot `slot`; `from`, `scale` point at this lane's bytes of it.
struct Feed {
    int turn, last, kind, pieces, left, tile, in_tile, slot, lane;
    const u8 *from[2], *scale[2];
};

// Point at piece `in_tile` of `tile`.
DEVICE void aim(Feed& feed, const Shared& at) {
    const int lane = feed.lane, g = lane / 4, q = lane % 4, kind = feed.kind;
    const Part& part = at.parts[kind];
    const Weights& weights = at.weights[kind >= HEAD ? at.layer_count : feed.turn / 4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int row = kind == GATED ? feed.tile * 8 + g : feed.tile * 16 + 8 * half + g, which = 0, most = HEAD_DIM * Q_HEADS;
        if (kind == QKV && row >= HEAD_DIM * Q_HEADS) {
            row -= HEAD_DIM * Q_HEADS, which = 1, most = HEAD_DIM * KV_HEADS;
            if (row >= most) row -= most, which = 2;
        }
        if (kind == O || kind == DOWN) which = kind == O ? 3 : 6, most = HIDDEN;
        if (kind == GATED) which = 4 + half, most = INNER;
        if (kind >= HEAD) most = VOCABULARY;
        if (row >= most) row = most - 1;  // fetched to no use, but nobody reads past the end
        feed.from[half] = weights.codes[which] + (i64)row * part.row_bytes + feed.in_tile * 128 + q * 16;
        feed.scale[half] = weights.scales[which] + (i64)row * part.scale_bytes + feed.in_tile * 16;
    }
}

// Point at the first piece of the next turn that has something for this warp; without one, nothing is left.
DEVICE void open_turn(Feed& feed, const Shared& at) {
    feed.left = 0;
    while (feed.left == 0 && feed.turn + 1 < feed.last) {
        feed.kind = kind_of(++feed.turn, at.layer_count);
        const Share share = at.shares[feed.kind * WARPS + at.t / 32];
        feed.left = share.count, feed.tile = share.tile + first_tile(feed.turn, at.layer_count), feed.in_tile = share.in_tile;
    }
    feed.pieces = at.parts[feed.kind].pieces;
    if (feed.left) aim(feed, at);
}

// Fetch the next piece, if there is one, into the next slot of this warp's ring. Addresses move on before a copy, not after it: a copy holds
// its registers for long.
DEVICE void fetch(Feed& feed, const Shared& at) {
    if (feed.left == 0) open_turn(feed, at);
    else if (++feed.in_tile == feed.pieces) feed.in_tile = 0, ++feed.tile, aim(feed, at);
    else for (int half = 0; half < 2; ++half) feed.from[half] += 128, feed.scale[half] += 16;
    if (feed.left) {
        const int lane = feed.lane, q = lane % 4;
        const bool four = FORMATS >> (feed.kind < HEAD ? feed.kind : HEAD) & 1;
        u8* slot = at.ring + feed.slot * SLOT;
        const int left = RAGGED ? at.parts[feed.kind].row_bytes - feed.in_tile * 128 : 128;
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
        --feed.left;
    }
    end_group();
    feed.slot = feed.slot + 1 == DEPTH ? 0 : feed.slot + 1;
}

// ---------------------------------------------------------------- the row that is multiplied, and a byte's two codes

// Blocks of 64 values, 128 bytes, X_STRIDE apart: with WIDE_TABLE, between the strips of the table. The halves of odd blocks are swapped by
// 32 bytes, so that the four lanes that read at a time meet no bank twice.
DEVICE u8* x_place(u8* x, int column) { return x + column / 64 * X_STRIDE + (column % 64 * 2 ^ column / 64 % 2 * 32); }

// Strips of 32 equal words, one for each bank: no conflicts (a narrow table: 8 words, several lanes a bank). The table's address is a
// multiple of its size, so that `place`, the address of a lane's word in the first strip, takes the byte without an addition.
DEVICE u32 codes(u32 word, int byte, u32 place) {
#if WIDE_TABLE
    return shared_word(__byte_perm(word, place, 0x7604 | byte << 4));
#else
    return shared_word(((byte ? word >> (8 * byte - 5) : word << 5) & 0x1fe0u) | place);
#endif
}

// Sums of rows g and g + 8 over one piece; lanes q == 0 hold them. The two scale blocks under a chunk go to columns 0 and 1 of the product:
// lanes 0, 1 bring x for the first, 6, 7 for the second, and `x` of lanes 2 ... 5 stays zero.
DEVICE void multiply_codes(float* sum, const u8* slot, u8* x_row, int piece, uint4* x, int lane) {
    const int q = lane % 4;
    const bool mine = lane < 2 || lane == 6 || lane == 7;
    const u32 place = TABLE_AT | lane % (WIDE_TABLE ? 32 : 8) * 4;
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
            u32 first[4] = {codes(w[0][i], 0, place), codes(w[1][i], 0, place), codes(w[0][i], 1, place), codes(w[1][i], 1, place)};
            u32 second[4] = {codes(w[0][i], 2, place), codes(w[1][i], 2, place), codes(w[0][i], 3, place), codes(w[1][i], 3, place)};
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
DEVICE void multiply_values(float* sum, const u8* slot, u8* x_row, int piece, uint4* x, int lane) {
    const int q = lane % 4;
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
