/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that no other thread may be beside of: contexts end, one block is freed twice, a
 * kernel waits for a later one. Work that was submitted before goes on meanwhile.
 */
#include "ops.h"

#include "claim.h"

#include <stdlib.h>

/* A kernel that waits gives up after so long; busy machines and sanitizers are slow. */
enum { STALE = 8, GATE_US = 3000000 };

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

/* What a place held is nobody's any more; another context takes its place. */
static void replace(struct place *place, struct ending_place *ending, uint32_t how)
{
    forget_all(ending);
    place_end(place, how);
    for (unsigned t = 0; t < stress.thread_count; t++) {
        check_forget(&stress.threads[t], place);
        leaving_forget(&stress.threads[t], place);
    }
    place_begin(place);
}

/* A context ends with memory live, cached and pending and work under way. */
static void op_reset(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    struct ending_place ending = {.place = place};
    replace(place, &ending, (uint32_t)rng_next(&thread->rng));
    for (unsigned i = 0; i < ending.count; i++) {
        CUresult rc = cuMemFree(ending.stale[i]);
        REQUIRE(rc == CUDA_ERROR_INVALID_VALUE || (rc == INJECTED && stress.plan.inject),
                "memory of a context that has ended: its free gave %d", (int)rc);
    }
}

static bool has_faults(const struct plan *plan)
{
    return plan->resets && !plan->inject && !plan->async && !stress.conf.unsafe;
}

/* A kernel writes where nothing is. From the first call that has asked the device on, all give that
 * code, though a block of this size is there to be had. */
static void op_fault(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    struct ending_place ending = {.place = place};
    struct block *blocks[3];
    CUdeviceptr ptr;
    unsigned count = 0;
    while (count < 3 && (blocks[count] = block_new(thread, place, PLAIN, MIB)) != NULL) {
        count++;
    }
    place_use(place);
    if (count == 3) {
        block_free_now(blocks[2]);
        MUST(cuCtxSynchronize());
        submit_fault(place, place->streams[2]);
        stress.faults = true;
        CUresult rcs[] = {cuCtxSynchronize(), cuMemFree(blocks[0]->ptr), cuMemAlloc(&ptr, MIB),
                          cuMemFree(blocks[1]->ptr)};
        for (unsigned i = 0; i < sizeof rcs / sizeof rcs[0]; i++) {
            REQUIRE(rcs[i] == CUDA_ERROR_ILLEGAL_ADDRESS, "after a fault, call %u gave %d", i,
                    (int)rcs[i]);
        }
        count = 2;
    }
    for (unsigned i = 0; i < count; i++) {
        block_forget(blocks[i]);
    }
    replace(place, &ending, 1 + 4 * rng_below(&thread->rng, 2));
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

struct storm {
    pthread_barrier_t start;
    struct place *place;
    size_t bytes;
    unsigned rounds;
    struct claim claim; /* of all */
};

static void *storm_thread(void *arg)
{
    struct storm *storm = arg;
    bool full = false;
    place_use(storm->place);
    pthread_barrier_wait(&storm->start);
    for (unsigned i = 0; i < storm->rounds && !full; i++) {
        CUdeviceptr two[2];
        unsigned got = 0;
        for (; got < 2; got++) {
            CUresult rc = cuMemAlloc(&two[got], storm->bytes);
            if (rc == CUDA_ERROR_OUT_OF_MEMORY && claim_may_fail(&storm->claim)) {
                full = true; /* it has waited for long: not again */
                break;
            }
            stress_check_rc(__FILE__, __LINE__, "cuMemAlloc", rc);
            claim_own(two[got], storm->bytes);
            atomic_fetch_add(&stress.allocs, 1);
        }
        while (got > 0) {
            claim_disown(two[--got], storm->bytes);
            MUST(cuMemFree(two[got]));
        }
    }
    return NULL;
}

/* One size, again and again, by many threads and nothing else: what the locks of the fast paths are
 * for, a few instructions long. */
static void op_storm(struct thread *thread)
{
    enum { STORM = 6 };
    static const size_t sizes[] = {2 * KIB, 2 * KIB, 48 * KIB, MIB};
    pthread_t threads[STORM];
    struct storm storm = {.place = place_any(&thread->rng),
                          .rounds = stress.conf.pools ? 1000 : 20};
    storm.bytes = sizes[rng_below(&thread->rng, sizeof sizes / sizeof sizes[0])];
    storm.claim = claim_take(STORM * 2 * claim_chunks(PLAIN, storm.bytes));
    pthread_barrier_init(&storm.start, NULL, STORM);
    for (unsigned i = 0; i < STORM; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, storm_thread, &storm) == 0,
                "cannot start a thread");
    }
    for (unsigned i = 0; i < STORM; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&storm.start);
    claim_give(storm.claim.chunks);
}

static CUstream stream_new(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* A kernel that waits for a later one: natively nothing between the two waits. On streams of their
 * own: work that is queued already must not be what the kernel waits for. */
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
    /* With little left an allocation may have to wait for what others freed, or be refused behind
     * the kernel that waits (docs/DESIGN.md, "Not answered yet"). */
    bool roomy = !stress.simulated || stress_capacity() - zsim_bytes() > bytes + 8 * MIB;
    place_use(place);
    CUstream waiting = stream_new();
    CUstream later = stream_new();
    submit_spin(place, place->streams[2], 100);
    block_free_now(freed);
    __atomic_store_n(&words[0], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&words[1], 0, __ATOMIC_SEQ_CST);
    uint64_t records = zsim_calls_of("cuCtxRecordEvent");
    uint64_t waits = zsim_calls_of("cuEventSynchronize") + zsim_calls_of("cuCtxSynchronize");
    submit_waitflag(place, waiting, &words[0], &words[1], GATE_US);
    claim_disturb(roomy ? 0 : 1);
    struct block *block = block_new(thread, place, PLAIN, bytes);
    claim_disturb(roomy ? 0 : -1);
    place_use(place);
    submit_signal(place, later, &words[0]);
    records = zsim_calls_of("cuCtxRecordEvent") - records;
    waits = zsim_calls_of("cuEventSynchronize") + zsim_calls_of("cuCtxSynchronize") - waits;
    MUST(cuStreamSynchronize(waiting));
    MUST(cuStreamDestroy(waiting));
    MUST(cuStreamDestroy(later));
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
    {"fault", 3, op_fault, true, has_faults},
    {"double", 6, op_double, true, NULL},
    {"duel", 3, op_duel, true, NULL},
    {"storm", 6, op_storm, true, NULL},
    {"gate", 3, op_gate, true, NULL},
    {NULL, 0, NULL, false, NULL},
};
