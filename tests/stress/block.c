/* SPDX-License-Identifier: Apache-2.0
 *
 * See block.h. What is done with memory that is there; memory.c gets it and gives it back.
 */
#include "block.h"

#include "claim.h"

#include <stdlib.h>

/* A pageable source of up to so many bytes is taken over inside the call. */
#define STAGED_BYTES (64 * KIB)

uint32_t block_tag(struct thread *thread)
{
    return (thread->index + 1) << 24 | (++thread->tags & 0xffffff);
}

void block_order(const struct block *block, CUstream stream)
{
    MUST(cuStreamWaitEvent(stream, block->used, 0));
}

void block_used(struct block *block, CUstream stream)
{
    MUST(cuEventRecord(block->used, stream));
}

static void CUDA_CB sleep_on_host(void *data)
{
    sleep_us((uint64_t)(uintptr_t)data);
}

void delay(const struct place *place, CUstream stream, struct rng *rng)
{
    switch (rng_below(rng, 8)) {
    case 0:
    case 1:
    case 2:
        submit_spin(place, stream, 20 + rng_below(rng, 400));
        break;
    case 3:
        submit_spin(place, stream, 200 + rng_below(rng, 2000));
        break;
    case 4:
        MUST(
            cuLaunchHostFunc(stream, sleep_on_host, (void *)(uintptr_t)(20 + rng_below(rng, 500))));
        break;
    default:
        break;
    }
}

/* The newest bytes of memory, from the host. */
static void write_by_host(const struct block *block, uint32_t tag, CUstream stream)
{
    size_t words = block->bytes / sizeof(uint32_t);
    uint32_t *copy = malloc(block->bytes);
    REQUIRE(copy, "no host memory");
    for (size_t i = 0; i < words; i++) {
        copy[i] = tag;
    }
    MUST(cuMemcpyHtoDAsync(block->ptr, copy, words * sizeof(uint32_t), stream));
    free(copy);
}

/* On a stream of the thread's own: nothing else may use a stream that captures. */
static CUstream capture_stream(struct thread *thread, const struct place *place)
{
    if (thread->capture[place->index].life != place->life) {
        MUST(cuStreamCreate(&thread->capture[place->index].stream, CU_STREAM_NON_BLOCKING));
        thread->capture[place->index].life = place->life;
    }
    return thread->capture[place->index].stream;
}

/* False if there is no room for a graph, which must be so. */
static bool write_by_graph(struct thread *thread, const struct block *block, uint32_t tag,
                           CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstream own = capture_stream(thread, block->place);
    bool relaxed = rng_once_in(&thread->rng, 2);
    claim_disturb(1);
    MUST(cuStreamBeginCapture(own, relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                                           : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    delay(block->place, own, &thread->rng);
    submit_fill(block->place, own, block->ptr, block->bytes, tag);
    MUST(cuStreamEndCapture(own, &graph));
    claim_disturb(-1);
    struct claim claim = claim_take(1);
    CUresult rc = cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        REQUIRE(claim_may_fail(&claim), "no memory for a graph, though %zu of %zu chunks are held",
                claim_held(), claim_limit());
    } else {
        stress_check_rc(__FILE__, __LINE__, "cuGraphInstantiateWithFlags", rc);
        MUST(cuGraphLaunch(exec, stream));
        leaving_add(thread, block->place, stream, 1);
        MUST(cuGraphExecDestroy(exec));
    }
    if (rc != CUDA_SUCCESS) {
        claim_give(1);
    }
    MUST(cuGraphDestroy(graph));
    return rc == CUDA_SUCCESS;
}

void block_write(struct thread *thread, struct block *block)
{
    struct rng *rng = &thread->rng;
    size_t words = block->bytes / sizeof(uint32_t);
    uint32_t tag = block_tag(thread);
    unsigned way = rng_below(rng, 12);
    place_use(block->place);
    struct lane lane = lane_any(block->place, rng);
    block_order(block, lane.stream);
    delay(block->place, lane.stream, rng);
    if (way == 0 && stress.plan.captures && write_by_graph(thread, block, tag, lane.stream)) {
        /* Done. */
    } else if (way <= 2 && block->bytes <= STAGED_BYTES) {
        write_by_host(block, tag, lane.stream);
    } else if (way <= 5) {
        MUST(cuMemsetD32Async(block->ptr, tag, words, lane.stream));
    } else {
        submit_fill(block->place, lane.stream, block->ptr, block->bytes, tag);
    }
    block->tag = tag;
    block->filled = true;
    block_used(block, lane.stream);
    lane_done(lane);
    stress_note("write", block->ptr, tag);
}

void block_add(struct thread *thread, struct block *block)
{
    place_use(block->place);
    struct lane lane = lane_any(block->place, &thread->rng);
    block_order(block, lane.stream);
    delay(block->place, lane.stream, &thread->rng);
    submit_add(block->place, lane.stream, block->ptr, block->bytes, 0x10101);
    block->tag += 0x10101;
    block_used(block, lane.stream);
    lane_done(lane);
    stress_note("add", block->ptr, block->tag);
}

void block_copy(struct thread *thread, struct block *dst, struct block *src)
{
    if (src->bytes < dst->bytes || dst->place != src->place) {
        return;
    }
    place_use(dst->place);
    struct lane lane = lane_any(dst->place, &thread->rng);
    block_order(dst, lane.stream);
    block_order(src, lane.stream);
    delay(dst->place, lane.stream, &thread->rng);
    if (rng_once_in(&thread->rng, 2)) {
        submit_copy(dst->place, lane.stream, dst->ptr, src->ptr, dst->bytes);
    } else {
        MUST(cuMemcpyDtoDAsync(dst->ptr, src->ptr, dst->bytes, lane.stream));
    }
    dst->tag = src->tag;
    dst->filled = true;
    block_used(dst, lane.stream);
    block_used(src, lane.stream);
    lane_done(lane);
    stress_note("copy", dst->ptr, dst->tag);
}

void block_check(struct thread *thread, struct block *block)
{
    place_use(block->place);
    struct lane lane = lane_any(block->place, &thread->rng);
    block_order(block, lane.stream);
    delay(block->place, lane.stream, &thread->rng);
    check_queue(thread, block, lane.stream);
    block_used(block, lane.stream);
    lane_done(lane);
    stress_note("check", block->ptr, block->tag);
}

void block_read(struct thread *thread, struct block *block)
{
    size_t words = block->bytes / sizeof(uint32_t);
    uint32_t *copy = malloc(block->bytes);
    REQUIRE(copy, "no host memory");
    place_use(block->place);
    struct lane lane = lane_any(block->place, &thread->rng);
    block_order(block, lane.stream);
    MUST(cuMemcpyDtoHAsync(copy, block->ptr, words * sizeof(uint32_t), lane.stream));
    MUST(cuStreamSynchronize(lane.stream));
    block_used(block, lane.stream);
    lane_done(lane);
    for (size_t i = 0; i < words; i++) {
        if (copy[i] != block->tag) {
            stress_fail_at(__FILE__, __LINE__, block->ptr,
                           "word %zu of %#llx (%zu bytes) is %#x, not %#x", i,
                           (unsigned long long)block->ptr, block->bytes, copy[i], block->tag);
        }
    }
    free(copy);
}
