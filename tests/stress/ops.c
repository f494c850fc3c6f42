/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that threads do beside each other, and the choice among all.
 */
#include "ops.h"

#include "claim.h"

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The driver's older form, whatever the headers call it. */
CUresult stress_elapsed(float *ms, CUevent start, CUevent end) __asm__("cuEventElapsedTime");

enum { SHELF = 24 };

/* Blocks on their way from one thread to another. */
static struct block *shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;

struct block *thread_take(struct thread *thread, unsigned index)
{
    struct block *block = thread->blocks[index];
    thread->blocks[index] = thread->blocks[--thread->block_count];
    thread->chunks -= block->chunks;
    return block;
}

void thread_put(struct thread *thread, struct block *block)
{
    thread->blocks[thread->block_count++] = block;
    thread->chunks += block->chunks;
}

struct block *thread_any(struct thread *thread)
{
    return thread->block_count > 0 ? thread->blocks[rng_below(&thread->rng, thread->block_count)]
                                   : NULL;
}

void blocks_each(bool (*visit)(struct block *block, void *arg), void *arg)
{
    for (unsigned t = 0; t < stress.thread_count; t++) {
        struct thread *thread = &stress.threads[t];
        for (unsigned i = thread->block_count; i > 0; i--) {
            size_t chunks = thread->blocks[i - 1]->chunks;
            if (visit(thread->blocks[i - 1], arg)) {
                thread->blocks[i - 1] = thread->blocks[--thread->block_count];
                thread->chunks -= chunks;
            }
        }
    }
    for (unsigned i = 0; i < SHELF; i++) {
        if (shelf[i] && visit(shelf[i], arg)) {
            shelf[i] = NULL;
        }
    }
}

static void op_free(struct thread *thread)
{
    if (thread->block_count == 0) {
        return;
    }
    struct block *block = thread_take(thread, rng_below(&thread->rng, thread->block_count));
    unsigned last = rng_below(&thread->rng, 4);
    if (last == 0 && block->filled) {
        block_check(thread, block);
    } else if (last <= 2) {
        block_write(thread, block);
    }
    block_free(thread, block);
}

static enum kind kind_any(struct rng *rng)
{
    if (stress.plan.async && rng_once_in(rng, 4)) {
        return ASYNC;
    }
    switch (rng_below(rng, 40)) {
    case 0:
        return PITCHED;
    case 1:
        return MANAGED;
    default:
        return PLAIN;
    }
}

static void op_new(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    enum kind kind = kind_any(&thread->rng);
    size_t bytes = block_size_any(&thread->rng);
    size_t share = claim_limit() * stress.plan.load / 100 / stress.thread_count;
    if (thread->block_count == BLOCKS || thread->chunks + claim_chunks(kind, bytes) > share) {
        op_free(thread);
        return;
    }
    struct block *block = block_new(thread, place, kind, bytes);
    if (block) {
        block_write(thread, block);
        thread_put(thread, block);
    }
}

static void op_write(struct thread *thread)
{
    struct block *block = thread_any(thread);
    if (block) {
        block_write(thread, block);
    }
}

static void op_add(struct thread *thread)
{
    struct block *block = thread_any(thread);
    if (block && block->filled) {
        block_add(thread, block);
    }
}

static void op_copy(struct thread *thread)
{
    struct block *src = thread_any(thread);
    struct block *dst = thread_any(thread);
    if (src && src != dst && src->filled) {
        block_copy(thread, dst, src);
    }
}

static void op_check(struct thread *thread)
{
    struct block *block = thread_any(thread);
    if (block && block->filled) {
        block_check(thread, block);
    }
}

static void op_read(struct thread *thread)
{
    struct block *block = thread_any(thread);
    if (block && block->filled) {
        block_read(thread, block);
    }
}

/* Hands a block over to whoever takes it, or takes one. */
static void op_swap(struct thread *thread)
{
    unsigned at = rng_below(&thread->rng, SHELF);
    struct block *mine = NULL;
    if (thread->block_count > 0 && rng_once_in(&thread->rng, 2)) {
        mine = thread_take(thread, rng_below(&thread->rng, thread->block_count));
    }
    pthread_mutex_lock(&shelf_lock);
    struct block *other = shelf[at];
    shelf[at] = mine;
    pthread_mutex_unlock(&shelf_lock);
    if (other && thread->block_count == BLOCKS) {
        block_free(thread, other);
    } else if (other) {
        thread_put(thread, other);
    }
}

/* One size, again and again, by many threads at once: what the fast paths and their locks are for.
 * Nothing is launched, so that natively too the frees are short. */
static void op_hammer(struct thread *thread)
{
    static const size_t sizes[] = {2 * KIB, 2 * KIB, 48 * KIB, MIB};
    struct place *place = &stress.places[0];
    size_t bytes = sizes[rng_below(&thread->rng, sizeof sizes / sizeof sizes[0])];
    unsigned rounds = stress.zone ? 400 : 8;
    bool full = false;
    struct claim claim = claim_take(2 * claim_chunks(PLAIN, bytes));
    place_use(place);
    for (unsigned i = 0; i < rounds && !full; i++) {
        CUdeviceptr two[2];
        unsigned got = 0;
        for (; got < 2; got++) {
            CUresult rc = cuMemAlloc(&two[got], bytes);
            if (rc == CUDA_ERROR_OUT_OF_MEMORY && stress.plan.inject) {
                rc = cuMemAlloc(&two[got], bytes);
            }
            if (rc == CUDA_ERROR_OUT_OF_MEMORY && claim_may_fail(&claim)) {
                full = true; /* it has waited for long: not again */
                break;
            }
            stress_check_rc(__FILE__, __LINE__, "cuMemAlloc", rc);
            claim_own(two[got], bytes);
            atomic_fetch_add(&stress.allocs, 1);
        }
        while (got > 0) {
            claim_disown(two[--got], bytes);
            MUST(cuMemFree(two[got]));
        }
    }
    claim_give(claim.chunks);
}

static bool has_captures(const struct plan *plan)
{
    return plan->captures;
}

/* Inside a relaxed capture memory may be had and given back; inside another one neither, and the
 * capture is lost. */
static void op_capture(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    bool relaxed = !rng_once_in(&thread->rng, 3);
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr ptr = 0;
    struct block *victim = thread->block_count > 0 ? thread_take(thread, 0) : NULL;
    if (victim) {
        block_write(thread, victim);
    }
    place_use(place);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    claim_disturb(1);
    MUST(cuStreamBeginCapture(stream, relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                                              : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    submit_spin(place, stream, 1);
    if (relaxed) {
        struct block *block = block_new(thread, place, PLAIN, block_size_any(&thread->rng));
        if (victim) {
            block_free(thread, victim);
            victim = NULL;
        }
        if (block) {
            /* Used for the first time by work outside of the capture. */
            block_write(thread, block);
            block_check(thread, block);
            block_free(thread, block);
        }
        place_use(place);
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphDestroy(graph));
    } else {
        CUresult rc = cuMemAlloc(&ptr, 4 * KIB);
        /* An injected lack of memory is made up for with what is cached. */
        bool odd = stress.plan.inject && (rc == INJECTED || rc == CUDA_SUCCESS);
        REQUIRE(rc == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || odd,
                "an allocation inside a capture gave %d", (int)rc);
        CUresult end = cuStreamEndCapture(stream, &graph);
        REQUIRE(end == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || odd,
                "the end of a capture that was spoilt gave %d", (int)end);
        if (rc == CUDA_SUCCESS) {
            atomic_fetch_add(&stress.allocs, 1);
            MUST(cuMemFree(ptr));
        }
    }
    if (rng_once_in(&thread->rng, 8)) {
        /* A capture that nobody ends. */
        MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    MUST(cuStreamDestroy(stream));
    claim_disturb(-1);
    if (victim) {
        block_free(thread, victim);
    }
}

/* A free natively waits for everything before it, and the host may look at what that wrote. */
static void op_managed(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    size_t words = 1024;
    uint32_t tag = block_tag(thread);
    struct block *managed = block_new(thread, place, MANAGED, words * sizeof(uint32_t));
    struct block *other =
        managed ? block_new(thread, place, PLAIN, block_size_any(&thread->rng)) : NULL;
    if (other) {
        struct lane lane = lane_any(place, &thread->rng);
        submit_spin(place, lane.stream, 100 + rng_below(&thread->rng, 400));
        submit_fill(place, lane.stream, managed->ptr, managed->bytes, tag);
        block_used(managed, lane.stream);
        lane_done(lane);
        block_free_now(other);
        const uint32_t *at = (const uint32_t *)(uintptr_t)managed->ptr;
        for (size_t i = 0; stress.conf.waits && !stress.plan.inject && i < words; i++) {
            REQUIRE(at[i] == tag, "after a free, word %zu of managed memory is %#x, not %#x", i,
                    at[i], tag);
        }
    }
    if (managed) {
        block_free(thread, managed);
    }
}

/* ... or ask how long it took. */
static void op_elapsed(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    struct block *block = block_new(thread, place, PLAIN, block_size_any(&thread->rng));
    if (!block) {
        return;
    }
    CUevent start;
    CUevent end;
    float ms = -1;
    MUST(cuEventCreate(&start, CU_EVENT_DEFAULT));
    MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
    struct lane lane = lane_any(place, &thread->rng);
    MUST(cuEventRecord(start, lane.stream));
    submit_spin(place, lane.stream, 100 + rng_below(&thread->rng, 400));
    MUST(cuEventRecord(end, lane.stream));
    lane_done(lane);
    MUST(block_free_plainly(block));
    CUresult rc = stress_elapsed(&ms, start, end);
    if (stress.conf.waits && !stress.plan.inject) {
        REQUIRE(rc == CUDA_SUCCESS && ms >= 0, "after a free, the time between events gave %d",
                (int)rc);
    }
    MUST(cuEventDestroy(start));
    MUST(cuEventDestroy(end));
    MUST(cuEventDestroy(block->used));
    free(block);
}

static void op_info(struct thread *thread)
{
    size_t free_bytes = 0;
    size_t total = 0;
    place_use(place_any(&thread->rng));
    MUST(cuMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes <= total, "%zu of %zu bytes free", free_bytes, total);
}

static void op_limit(struct thread *thread)
{
    size_t now = 0;
    size_t wanted = KIB * (1 + rng_below(&thread->rng, 8));
    place_use(place_any(&thread->rng));
    MUST(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, wanted));
    MUST(cuCtxGetLimit(&now, CU_LIMIT_STACK_SIZE));
}

static bool has_forks(const struct plan *plan)
{
    return plan->forks;
}

/* The child of a process that uses CUDA can do nothing with it; another program can. */
static void op_fork(struct thread *thread)
{
    const struct block *block = thread_any(thread);
    int status = 0;
    pid_t pid;
    if (rng_once_in(&thread->rng, 3)) {
        static char program[] = "/bin/true";
        char *const argv[] = {program, NULL};
        REQUIRE(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) == 0, "cannot spawn");
    } else {
        pid = fork();
        if (pid == 0) {
            CUdeviceptr ptr = 0;
            CUresult a = cuMemAlloc(&ptr, 4 * KIB);
            CUresult b = block ? cuMemFree(block->ptr) : CUDA_ERROR_NOT_INITIALIZED;
            CUresult c = cuMemGetInfo(NULL, NULL);
            bool right = a == CUDA_ERROR_NOT_INITIALIZED && b == a && c == a;
            _exit(right ? 0 : 1);
        }
    }
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid, "cannot fork");
    REQUIRE(status == 0, "a child ended with %#x", (unsigned)status);
}

static bool has_injections(const struct plan *plan)
{
    return plan->inject;
}

void fail_call(const char *name, uint64_t in_calls)
{
    int (*fail)(const char *, uint64_t, int);
    void *found = zsim("zsim_fail");
    memcpy(&fail, &found, sizeof fail);
    if (found) {
        fail(name, in_calls, INJECTED);
    }
}

static void op_inject(struct thread *thread)
{
    static const char *const names[] = {
        "cuMemAlloc_v2",       "cuMemFree_v2",      "cuCtxRecordEvent",      "cuCtxRecordEvent",
        "cuEventCreate",       "cuEventQuery",      "cuEventSynchronize",    "cuMemGetInfo_v2",
        "cuCtxSynchronize",    "cuMemAllocManaged", "cuPointerGetAttribute", "cuCtxPushCurrent_v2",
        "cuStreamIsCapturing", "cuCtxGetCurrent",   "cuMemAllocPitch_v2",    "cuCtxRecordEvent",
    };
    /* Half of them where most depends on it. */
    unsigned which = rng_below(&thread->rng, 2 * sizeof names / sizeof names[0]);
    which = which < sizeof names / sizeof names[0] ? which : 2;
    fail_call(names[which], 1 + rng_below(&thread->rng, 20));
}

const struct op ops_shared[] = {
    {"new", 300, op_new, false, NULL},
    {"free", 180, op_free, false, NULL},
    {"write", 80, op_write, false, NULL},
    {"add", 40, op_add, false, NULL},
    {"copy", 40, op_copy, false, NULL},
    {"check", 120, op_check, false, NULL},
    {"read", 20, op_read, false, NULL},
    {"swap", 80, op_swap, false, NULL},
    {"hammer", 12, op_hammer, false, NULL},
    {"capture", 10, op_capture, false, has_captures},
    {"managed", 10, op_managed, false, NULL},
    {"elapsed", 10, op_elapsed, false, NULL},
    {"info", 10, op_info, false, NULL},
    {"limit", 4, op_limit, false, NULL},
    {"fork", 2, op_fork, false, has_forks},
    {"inject", 20, op_inject, false, has_injections},
    {NULL, 0, NULL, false, NULL},
};
