// The next token, and the step's kernel itself.

DEVICE Top top_of_warp(Top top) {
    for (int step = 16; step; step /= 2) {
        const float v = __shfl_xor_sync(ALL, top.value, step);
        take(top, v, __shfl_xor_sync(ALL, top.index, step));
    }
    return top;
}

DEVICE Top top_of_block(Top top, float* small, int t) {
    int* index = (int*)small + 32;
    top = top_of_warp(top);
    __syncthreads();
    if (t % 32 == 0) small[t / 32] = top.value, index[t / 32] = top.index;
    __syncthreads();
    const int i = t % WARPS;
    return top_of_warp({small[i], index[i]});
}

DEVICE void commit(const Memory& memory, int index) {
    const int next = *memory.position + 1;
    *memory.token = index < 0 ? 0 : index;
    *memory.position = next;
    memory.history[next] = index;
}

// The last block to come here takes the best of all blocks and sets their count back for the next step.
DEVICE void choose(const Room& room, const Shared& at, Top top, int commits) {
    int* is_last = (int*)at.small + 64;
    top = top_of_block(top, at.small, at.t);
    if (at.t == 0) {
        room.best[blockIdx.x] = top.value, room.best_index[blockIdx.x] = top.index;
        __threadfence();
        *is_last = atomicAdd((int*)room.counters + 1, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!*is_last) return;
    top = {-INFINITE, 1 << 30};
    for (int i = at.t; i < gridDim.x; i += THREADS) take(top, fresh(room.best + i), (int)__float_as_uint(fresh((const float*)room.best_index + i)));
    top = top_of_block(top, at.small, at.t);
    if (at.t) return;
    room.counters[0] = room.counters[1] = 0;
    if (commits) commit(*at.memory, top.value > -INFINITE ? top.index : -1);
}

DEVICE void make_plan(const Room& room, const Shared& at, int index) {
    const int t = at.t;
    for (int i = t; i < (at.layer_count + 1) * 14; i += THREADS) ((i64*)at.weights)[i] = ((const i64*)room.weights)[i];
    if (t < 14) ((i64*)(at.layers + index % 2))[t] = ((const i64*)(room.layers + index))[t], ((i64*)at.memory)[t] = ((const i64*)room.memory)[t];
    if (t < 14 && index) ((i64*)(at.layers + (index - 1) % 2))[t] = ((const i64*)(room.layers + index - 1))[t];
    if (t < KINDS) at.parts[t] = part_of(t);
    __syncthreads();
    if (t < KINDS * WARPS) at.shares[t] = share_of(at.parts[t / WARPS], t % WARPS);
    for (int i = t; i < KINDS * MOST_TILES; i += THREADS)
        if (i % MOST_TILES < at.parts[i / MOST_TILES].tiles) warps_of(at.parts[i / MOST_TILES], i % MOST_TILES, at.ends + i * 2);
    __syncthreads();
}

DEVICE int turns_before(int phase, int layers) {
    return phase > 5 * layers ? 4 * layers + CHUNKS : phase / 5 * 4 + (phase % 5 > 1 ? phase % 5 - 1 : phase % 5);
}

DEVICE void prepare(const Room& room, const Shared& at, Feed& feed, int first, int last) {
    make_plan(room, at, first / 5);
    feed.turn = turns_before(first, at.layer_count) - 1, feed.last = turns_before(last, at.layer_count), feed.slot = feed.kind = feed.left = 0, feed.lane = at.t % 32;
#pragma unroll 1
    for (int i = 0; i < DEPTH; ++i) fetch(feed, at);
    constexpr int WORDS = WIDE_TABLE ? 32 : 8;
    for (int i = at.t; FORMATS && i < 256 * WORDS; i += THREADS) *(u32*)(at.table + i / WORDS * (WIDE_TABLE ? 256 : 32) + i % WORDS * 4) = room.pairs[i / WORDS];
    if (first == 0) embed(room, at);
    else for (int e = at.t; e < HIDDEN; e += THREADS) at.stream[e] = room.streams[first % 2 * HIDDEN + e];
    __syncthreads();
}

// The row to multiply, after the barrier.
DEVICE void make_x(const Room& room, const Shared& at, int index, int part, int place, int barriers) {
    const Layer &layer = at.layers[index % 2], &before = at.layers[(index + 1) % 2];
    if (part == 0 || part == 3) {
        const bool sums = index || part;
        const Norm after_norm = norm_of(!sums ? 0 : part ? layer.norms[1] : before.norms[3], at.t), before_norm = norm_of(layer.norms[part ? 2 : 0], at.t);
        if (part == 0 && index < at.layer_count) prefetch_keys(at, layer, index, place);
        await(room, at, barriers);
        stream_to_x(at, sums ? room.sums : 0, !sums ? 0 : part ? layer.bias[3] : before.bias[6], after_norm, before_norm);
        clear_rest(at, HIDDEN);
    } else {
        await(room, at, barriers);
        if (part == 2) answers_to_x(room, at, layer.window, place), clear_rest(at, Q_HEADS * HEAD_DIM);
        else inner_to_x(room, at), clear_rest(at, INNER);
    }
    __syncthreads();
}

DEVICE void run_phase(const Room& room, const Shared& at, Feed& feed, int phase, int barriers, int place, Top& top) {
    const int index = phase / 5, part = phase % 5, t = at.t;
    if (part == 1) {
        const i64 word = t < 14 ? ((const i64*)(room.layers + index + 1))[t] : 0;
        attend(room, at, at.layers[index % 2], index, place, barriers);
        if (t < 14) ((i64*)(at.layers + (index + 1) % 2))[t] = word;
        return;
    }
    make_x(room, at, index, part, place, barriers);
    const int begin = turns_before(phase, at.layer_count), end = turns_before(phase + 1, at.layer_count);
#pragma unroll 1
    for (int turn = begin; turn < end; ++turn) {
        multiply_share(at, feed, kind_of(turn, at.layer_count));
        write_sums(room, at, at.layers[index % 2], kind_of(turn, at.layer_count), first_tile(turn, at.layer_count), top);
        if (index == at.layer_count) __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) whole_step(Room room, int first, int last, int commits) {
    extern __shared__ __align__(16) u32 shared[];
    Shared at = shared_parts((u8*)shared, room.layer_count);
    Feed feed;
    prepare(room, at, feed, first, last);
    const int place = *at.memory->position;
    Top top = {-INFINITE, 1 << 30};
#pragma unroll 1
    for (int phase = first; phase < last; ++phase) {
        forget(at.t);
        run_phase(room, at, feed, phase, phase - first, place, top);
        if (phase + 1 < last) arrive(room, at);
    }
    if (last > 5 * room.layer_count) return choose(room, at, top, commits);
    __syncthreads();
    for (int e = at.t; blockIdx.x == 0 && e < HIDDEN; e += THREADS) room.streams[last % 2 * HIDDEN + e] = at.stream[e];
}
