/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that no other thread may be beside of: contexts end, one block is freed twice, a
 * kernel waits for a later one. Work that was submitted before goes on meanwhile.
 */
#include "ops.h"

#include "claim.h"

#include <stdlib.h>

enum { STALE = 8 };

struct ending_place {
    const struct place *place;
    CUdeviceptr stale[STALE]; /* some addresses that were live */
    unsigned count;
};

static bool forget_visit(struct block *block, void *arg)
{
    struct ending_place *ending = arg;
    if (block->place != ending->place) {
        return false;
    }
    if (ending->count < STALE && block->kind != ASYNC) {
        ending->stale[ending->count++] = block->ptr;
    }
    block_forget(block);
    return true;
}

static bool has_resets(const struct plan *plan)
{
    return plan->resets;
}

static void forget_all(struct ending_place *ending)
{
    blocks_each(forget_visit, ending);
}

/* A context ends with memory live, cached and pending and work under way; another takes its place.
 * What it held is nobody's any more. */
static void op_reset(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    struct ending_place ending = {.place = place};
    forget_all(&ending);
    place_end(place, (uint32_t)rng_next(&thread->rng));
    for (unsigned t = 0; t < stress.thread_count; t++) {
        check_forget(&stress.threads[t], place);
        leaving_forget(&stress.threads[t], place);
    }
    place_begin(place);
    for (unsigned i = 0; i < ending.count; i++) {
        CUresult rc = cuMemFree(ending.stale[i]);
        REQUIRE(rc == CUDA_ERROR_INVALID_VALUE || (rc == INJECTED && stress.plan.inject),
                "memory of a context that has ended: its free gave %d", (int)rc);
    }
}

/* Freed memory is unknown, and a second free is an error. */
static void op_double(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    struct block *block = block_new(thread, place, PLAIN, block_size_any(&thread->rng));
    if (!block) {
        return;
    }
    CUdeviceptr ptr = block->ptr;
    CUdeviceptr base = 0;
    size_t size = 0;
    block_write(thread, block);
    CUresult rc = block->bytes > 512 ? cuMemFree(ptr + 512) : CUDA_ERROR_INVALID_VALUE;
    REQUIRE(rc == CUDA_ERROR_INVALID_VALUE || (rc == INJECTED && stress.plan.inject),
            "a free of an inner address gave %d", (int)rc);
    MUST(block_free_plainly(block));
    rc = cuMemFree(ptr);
    REQUIRE(rc == CUDA_ERROR_INVALID_VALUE || (rc == INJECTED && stress.plan.inject),
            "a second free gave %d", (int)rc);
    rc = cuMemGetAddressRange(&base, &size, ptr);
    REQUIRE(rc == CUDA_ERROR_NOT_FOUND || !stress.conf.exact, "the range of freed memory gave %d",
            (int)rc);
    MUST(cuEventDestroy(block->used));
    free(block);
}

struct duel {
    pthread_barrier_t start;
    CUcontext ctx;
    CUdeviceptr ptr;
    CUresult rc;
};

static void *duel_thread(void *arg)
{
    struct duel *duel = arg;
    CUresult rc = cuCtxSetCurrent(duel->ctx);
    pthread_barrier_wait(&duel->start);
    duel->rc = rc == CUDA_SUCCESS ? cuMemFree(duel->ptr) : rc;
    return NULL;
}

/* Two threads free one block at the same moment: one of them has freed it. */
static void op_duel(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    for (unsigned i = 0; i < 12; i++) {
        struct block *block = block_new(thread, place, PLAIN, block_size_any(&thread->rng));
        struct duel duel = {.ctx = place->ctx};
        pthread_t other;
        if (!block) {
            return;
        }
        duel.ptr = block->ptr;
        claim_disown(block->ptr, block->bytes);
        pthread_barrier_init(&duel.start, NULL, 2);
        REQUIRE(pthread_create(&other, NULL, duel_thread, &duel) == 0, "cannot start a thread");
        pthread_barrier_wait(&duel.start);
        CUresult rc = cuMemFree(block->ptr);
        pthread_join(other, NULL);
        pthread_barrier_destroy(&duel.start);
        if (!stress.plan.inject) {
            REQUIRE((rc == CUDA_SUCCESS) + (duel.rc == CUDA_SUCCESS) == 1 &&
                        (int)rc + (int)duel.rc == (int)CUDA_ERROR_INVALID_VALUE,
                    "two frees at once gave %d and %d", (int)rc, (int)duel.rc);
        } else if (rc != CUDA_SUCCESS && duel.rc != CUDA_SUCCESS) {
            MUST(cuMemFree(block->ptr));
        }
        claim_give(block->chunks);
        MUST(cuEventDestroy(block->used));
        free(block);
    }
}

/* A kernel that waits for a later one: natively nothing between the two waits. */
static void op_gate(struct thread *thread)
{
    static uint32_t *words;
    struct place *place = place_any(&thread->rng);
    words = words ? words : words_new(2);
    struct block *freed = block_new(thread, place, PLAIN, block_size_any(&thread->rng));
    if (!freed) {
        return;
    }
    size_t bytes = freed->bytes;
    /* With little left an allocation may have to wait for what others freed. */
    bool roomy = !stress.simulated || stress_capacity() - zsim_bytes() > bytes + 8 * MIB;
    place_use(place);
    submit_spin(place, place->streams[2], 100);
    MUST(block_free_plainly(freed));
    MUST(cuEventDestroy(freed->used));
    free(freed);
    __atomic_store_n(&words[0], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&words[1], 0, __ATOMIC_SEQ_CST);
    uint64_t records = zsim_calls_of("cuCtxRecordEvent");
    uint64_t waits = zsim_calls_of("cuEventSynchronize") + zsim_calls_of("cuCtxSynchronize");
    submit_waitflag(place, place->streams[3], &words[0], &words[1], 500000);
    struct block *block = block_new(thread, place, PLAIN, bytes);
    submit_signal(place, place->streams[4], &words[0]);
    records = zsim_calls_of("cuCtxRecordEvent") - records;
    waits = zsim_calls_of("cuEventSynchronize") + zsim_calls_of("cuCtxSynchronize") - waits;
    MUST(cuStreamSynchronize(place->streams[3]));
    if (block && roomy && !stress.plan.inject) {
        REQUIRE(__atomic_load_n(&words[1], __ATOMIC_SEQ_CST) == 1,
                "an allocation waited for a kernel that waits for a later one");
        REQUIRE(records == 0 && waits == 0, "an allocation recorded %llu events, waited %llu times",
                (unsigned long long)records, (unsigned long long)waits);
    }
    if (block) {
        block_write(thread, block);
        block_free(thread, block);
    }
}

const struct op ops_alone[] = {
    {"reset", 6, op_reset, true, has_resets},
    {"double", 6, op_double, true, NULL},
    {"duel", 3, op_duel, true, NULL},
    {"gate", 3, op_gate, true, NULL},
    {NULL, 0, NULL, false, NULL},
};
