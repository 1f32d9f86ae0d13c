// The head, the next token, and the step's kernel itself.

struct Top { float value; int index; };  // index -1, value infinite: some logit is no number

DEVICE float finished_logit(float v) {
    v = rounded(v);
    if (LOGIT_SCALE != 1.f) v = rounded(v * LOGIT_SCALE);
    if (LOGIT_CAP > 0.f) v = rounded(rounded(tanhf(rounded(v / LOGIT_CAP))) * LOGIT_CAP);
    return v;
}

DEVICE void take(Top& top, float v, int index) {
    if (better(v, index, top.value, top.index)) top = {v, index};
}

DEVICE Top top_of_warp(Top top) {
    for (int step = 16; step; step /= 2) {
        const float v = __shfl_xor_sync(ALL, top.value, step);
        take(top, v, __shfl_xor_sync(ALL, top.index, step));
    }
    return top;
}

DEVICE Top top_of_block(Top top, float* small) {
    int* index = (int*)small + 32;
    top = top_of_warp(top);
    __syncthreads();
    if (threadIdx.x % 32 == 0) small[threadIdx.x / 32] = top.value, index[threadIdx.x / 32] = top.index;
    __syncthreads();
    const int i = threadIdx.x % WARPS;
    return top_of_warp({small[i], index[i]});
}

DEVICE Top head_chunk(const Room& room, const Shared& at, Feed& feed, int chunk, Top top) {
    const Span block = share_of(4 * LAYERS + chunk);
    const u16* bias = at.layers[LAYERS].bias[0];
    multiply_share<is_four_bit(HEAD)>(at, feed, block);
    for (int i = threadIdx.x; i < tiles_in(block) * 16; i += THREADS) {
        const int row = block.low / block.pieces * 16 + i;
        if (row >= VOCABULARY) continue;
        float v = total_of(at, block, i / 16, i % 16, is_four_bit(HEAD) ? UNSCALE : 1.f);
        if (bias) v += value(bias[row]);
        room.logits[row] = v = finished_logit(v);
        if (v == v) take(top, v, row);
        else top = {__uint_as_float(0x7f800000u), -1};
    }
    __syncthreads();
    return top;
}

DEVICE void commit(const Memory& memory, int index) {
    const int next = *memory.position + 1;
    *memory.token = index < 0 ? 0 : index;
    *memory.position = next;
    memory.history[next] = index;
}

// The last block to come here takes the best of all blocks and sets the counters back for the next step.
DEVICE void choose(const Room& room, const Shared& at, Top top, int commits) {
    int* is_last = (int*)at.small + 64;
    top = top_of_block(top, at.small);
    if (threadIdx.x == 0) {
        room.best[blockIdx.x] = top.value, room.best_index[blockIdx.x] = top.index;
        __threadfence();
        *is_last = atomicAdd((int*)room.counters + 1, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!*is_last) return;
    top = {-__uint_as_float(0x7f800000u), 1 << 30};
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) take(top, fresh(room.best + i), (int)__float_as_uint(fresh((const float*)room.best_index + i)));
    top = top_of_block(top, at.small);
    if (threadIdx.x) return;
    room.counters[0] = room.counters[1] = 0;
    if (commits) commit(*room.memory, top.index);
}

DEVICE void prepare(const Room& room, const Shared& at, Feed& feed, int first, int last) {
    for (int i = threadIdx.x; i < (LAYERS + 1) * (int)sizeof(Layer) / 8; i += THREADS) ((i64*)at.layers)[i] = ((const i64*)room.layers)[i];
    __syncthreads();
    const int begin = first / 5 * 4 + (first % 5 > 1 ? first % 5 - 1 : first % 5), end = last == PHASES ? TURNS : last / 5 * 4 + (last % 5 > 1 ? last % 5 - 1 : last % 5);
    feed.turn = begin - 1, feed.last = end, feed.slot = 0, feed.span = {0, 1, 0, 0};
    find_more(feed, at.layers);
    for (int i = 0; i < DEPTH; ++i) fetch(feed, at.ring, at.layers);
    constexpr int WORDS = WIDE_TABLE ? 32 : 8;
    for (int i = threadIdx.x; FORMATS && i < 256 * WORDS; i += THREADS) *(u32*)(at.table + i / WORDS * (WIDE_TABLE ? 256 : 32) + i % WORDS * 4) = room.pairs[i / WORDS];
}

DEVICE void run_phase(const Room& room, const Shared& at, Feed& feed, int phase, int barriers, int place, int commits) {
    const int index = phase / 5, part = phase % 5;
    const Layer& layer = at.layers[index];
    if (part == 0) {  // QKV, or the head after the last layer
        const Norm after = norm_of(index ? at.layers[index - 1].norms[3] : 0), before = norm_of(layer.norms[0]);
        if (index < LAYERS) prefetch_keys(room, layer, index, place);
        await(room, barriers);
        stream_to_x(at, index ? room.sums : 0, index ? at.layers[index - 1].bias[6] : 0, after, before);
        clear_rest(at, HIDDEN);
        __syncthreads();
        if (index < LAYERS) return multiply_cut<QKV>(at, feed, index, room.qkv_sums);
        Top top = {-__uint_as_float(0x7f800000u), 1 << 30};
        for (int chunk = 0; chunk < CHUNKS; ++chunk) top = head_chunk(room, at, feed, chunk, top);
        choose(room, at, top, commits);
    } else if (part == 1) {
        await(room, barriers);
        attend(room, at, index, place);
    } else if (part == 2) {
        await(room, barriers);
        answers_to_x(room, at, layer.window, place);
        clear_rest(at, Q_HEADS * HEAD_DIM);
        __syncthreads();
        multiply_cut<O>(at, feed, index, room.sums);
    } else if (part == 3) {
        const Norm after = norm_of(layer.norms[1]), before = norm_of(layer.norms[2]);
        await(room, barriers);
        stream_to_x(at, room.sums, layer.bias[3], after, before);
        clear_rest(at, HIDDEN);
        __syncthreads();
        multiply_gated(room, at, feed, index);
    } else {
        await(room, barriers);
        inner_to_x(room, at);
        clear_rest(at, INNER);
        __syncthreads();
        multiply_cut<DOWN>(at, feed, index, room.sums);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) whole_step(Room room, int first, int last, int commits) {
    extern __shared__ __align__(16) u32 shared[];
    const Shared at = shared_parts((u8*)shared);
    const int place = *room.memory->position;
    Feed feed;
    prepare(room, at, feed, first, last);
    if (first == 0) embed(room, at);
    else for (int e = threadIdx.x; e < HIDDEN; e += THREADS) at.stream[e] = room.streams[first % 2 * HIDDEN + e];
    __syncthreads();
    for (int phase = first; phase < last; ++phase) {
        run_phase(room, at, feed, phase, phase - first, place, commits);
        if (phase + 1 < last) arrive(room);
    }
    __syncthreads();
    for (int e = threadIdx.x; blockIdx.x == 0 && last < PHASES && e < HIDDEN; e += THREADS) room.streams[last % 2 * HIDDEN + e] = at.stream[e];
}
