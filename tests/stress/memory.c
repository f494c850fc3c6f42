/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: how a thread gets them and gives them back, and what must be true of new memory.
 */
#include "block.h"
#include "claim.h"

#include <stdlib.h>

enum { IDS = 4096 };

static struct {
    CUdeviceptr ptr;
    unsigned long long id;
} last_ids[IDS];
static unsigned long long ids[IDS]; /* seen before */
static pthread_mutex_t ids_lock = PTHREAD_MUTEX_INITIALIZER;

size_t block_size_any(struct rng *rng)
{
    static const size_t sizes[] = {
        512,     512,     1000,    4 * KIB, 4 * KIB,           20000,   64 * KIB,
        300000,  MIB - 8, MIB,     MIB,     2 * MIB,           2 * MIB, 2 * MIB + 4 * KIB,
        3 * MIB, 5 * MIB, 8 * MIB, MIB,     512 * (size_t)257, 4 * KIB,
    };
    return sizes[rng_below(rng, sizeof sizes / sizeof sizes[0])];
}

/* A number that no allocation had before, at this address or another one. */
static void check_id(CUdeviceptr ptr)
{
    unsigned long long id = 0;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    unsigned by_ptr = (unsigned)((ptr >> 9) % IDS);
    unsigned by_id = (unsigned)(id % IDS);
    pthread_mutex_lock(&ids_lock);
    bool repeated = (last_ids[by_ptr].ptr == ptr && last_ids[by_ptr].id == id) || ids[by_id] == id;
    last_ids[by_ptr].ptr = ptr;
    last_ids[by_ptr].id = id;
    ids[by_id] = id;
    pthread_mutex_unlock(&ids_lock);
    REQUIRE(!repeated, "buffer id %llu of %#llx is that of an earlier allocation", id,
            (unsigned long long)ptr);
}

/* What can be asked about an allocation is about this one. */
static void check_new(struct thread *thread, const struct block *block)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    int sync = 0;
    CUdeviceptr inside = block->ptr + rng_below(&thread->rng, (uint32_t)block->bytes);
    MUST(cuMemGetAddressRange(&base, &size, inside));
    /* A pool whose questions to the driver fail does not learn of a block, whose class it asked. */
    bool right = size == block->bytes || (stress.plan.inject && size - block->bytes < 512);
    REQUIRE(base == block->ptr && right, "range of %#llx is %#llx, %zu, not %zu",
            (unsigned long long)block->ptr, (unsigned long long)base, size, block->bytes);
    MUST(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->ptr));
    REQUIRE(sync == 0, "new memory has SYNC_MEMOPS set");
    check_id(block->ptr);
    if (rng_once_in(&thread->rng, 24)) {
        sync = 1;
        MUST(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->ptr));
    }
}

static CUresult obtain(struct block *block, CUstream stream)
{
    size_t pitch;
    switch (block->kind) {
    case PITCHED: {
        /* Eight rows, padding and all. */
        CUresult rc = cuMemAllocPitch(&block->ptr, &pitch, (block->bytes + 7) / 8, 8, 4);
        block->bytes = rc == CUDA_SUCCESS ? pitch * 8 : block->bytes;
        return rc;
    }
    case MANAGED:
        return cuMemAllocManaged(&block->ptr, block->bytes, CU_MEM_ATTACH_GLOBAL);
    case ASYNC:
        return cuMemAllocAsync(&block->ptr, block->bytes, stream);
    case PLAIN:
    case KINDS:
        break;
    }
    return cuMemAlloc(&block->ptr, block->bytes);
}

struct block *block_new(struct thread *thread, struct place *place, enum kind kind, size_t bytes)
{
    struct block *block = calloc(1, sizeof *block);
    REQUIRE(block, "no host memory");
    *block = (struct block){.place = place, .kind = kind, .bytes = bytes};
    /* The rows of a pitched allocation may take more. */
    block->chunks = claim_chunks(kind, kind == PITCHED ? bytes + 8 * KIB : bytes);
    struct claim claim = claim_take(block->chunks);
    place_use(place);
    struct lane lane = kind == ASYNC ? lane_any(place, &thread->rng) : (struct lane){0};
    CUresult rc = obtain(block, lane.stream);
    if (rc == INJECTED && stress.plan.inject) {
        rc = obtain(block, lane.stream);
    }
    if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        REQUIRE(claim_may_fail(&claim),
                "no memory for %zu bytes, though the program holds at most %zu of %zu chunks",
                bytes, claim_held(), claim_limit());
        claim_give(block->chunks);
        lane_done(lane);
        free(block);
        return NULL;
    }
    stress_check_rc(__FILE__, __LINE__, "allocation", rc);
    stress_note("new", block->ptr, block->bytes);
    claim_own(block->ptr, block->bytes);
    block->marked = true;
    MUST(cuEventCreate(&block->used, CU_EVENT_DISABLE_TIMING));
    if (kind == ASYNC) {
        block_used(block, lane.stream);
        lane_done(lane);
    }
    if (kind == PLAIN || kind == ASYNC) {
        atomic_fetch_add(&stress.allocs, 1);
    }
    if (kind == PLAIN && rng_once_in(&thread->rng, 3)) {
        check_new(thread, block);
    }
    return block;
}

static void block_gone(struct block *block)
{
    MUST(cuEventDestroy(block->used));
    free(block);
}

/* From here on somebody else may be given the address. */
static void block_disown(struct block *block, const char *how)
{
    stress_note(how, block->ptr, block->bytes);
    claim_disown(block->ptr, block->bytes);
    block->marked = false;
}

CUresult block_free_plainly(struct block *block)
{
    block_disown(block, "free");
    CUresult rc = cuMemFree(block->ptr);
    for (int i = 0; rc == INJECTED && stress.plan.inject && i < 9; i++) {
        rc = cuMemFree(block->ptr);
    }
    if (rc == CUDA_SUCCESS) {
        claim_give(block->chunks);
    }
    return rc;
}

void block_free_now(struct block *block)
{
    MUST(block_free_plainly(block));
    block_gone(block);
}

static void require_freed(const struct block *block, CUresult rc)
{
    if (rc != CUDA_SUCCESS) {
        stress_fail_at(__FILE__, __LINE__, block->ptr, "free of %#llx gave %d",
                       (unsigned long long)block->ptr, (int)rc);
    }
}

/* The same with any context current or none, as a destructor in another thread does it. */
static void free_anywhere(struct thread *thread, struct block *block)
{
    switch (rng_below(&thread->rng, 6)) {
    case 0:
        place_use(NULL);
        break;
    case 1:
        place_use(&stress.places[!block->place->index]);
        break;
    default:
        place_use(block->place);
        break;
    }
    require_freed(block, block_free_plainly(block));
}

static void free_in_stream(struct thread *thread, struct block *block)
{
    place_use(block->place);
    struct lane lane = lane_any(block->place, &thread->rng);
    block_order(block, lane.stream);
    block_disown(block, "free async");
    CUresult rc = cuMemFreeAsync(block->ptr, lane.stream);
    for (int i = 0; rc == INJECTED && stress.plan.inject && i < 9; i++) {
        rc = cuMemFreeAsync(block->ptr, lane.stream);
    }
    require_freed(block, rc);
    leaving_add(thread, block->place, lane.stream, block->chunks);
    lane_done(lane);
}

void block_free(struct thread *thread, struct block *block)
{
    bool in_stream = block->kind == ASYNC || (block->kind == PLAIN && rng_once_in(&thread->rng, 8));
    if (in_stream) {
        free_in_stream(thread, block);
    } else {
        free_anywhere(thread, block);
    }
    place_use(block->place);
    block_gone(block);
}

void block_forget(struct block *block)
{
    if (block->kind == ASYNC) {
        /* The device's, not the context's: it would stay. */
        place_use(block->place);
        block_disown(block, "free async");
        MUST(cuStreamWaitEvent(NULL, block->used, 0));
        MUST(cuMemFreeAsync(block->ptr, NULL));
    } else {
        block_disown(block, "context ends");
    }
    claim_give(block->chunks);
    free(block);
}
