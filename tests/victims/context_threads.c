/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: threads that each make a context, work in it, free what a thread in another context
 * allocated, and destroy it, all at once. Handles of dead contexts come back for new ones; no block
 * of a dead context is handed to a new one, and no memory is lost.
 */
#include "tools.h"

enum { THREADS = 6, WORDS = 4096, MAILBOXES = 4 };

static uint32_t failures; /* atomic */
static uint32_t rounds;

static void fill_and_check(CUstream stream, CUdeviceptr ptr, uint32_t value)
{
    uint32_t seen[2] = {0, 0};
    OK(cuMemsetD32Async(ptr, value, WORDS, stream));
    OK(cuMemcpyDtoHAsync(&seen[0], ptr, 4, stream));
    OK(cuMemcpyDtoHAsync(&seen[1], ptr + (WORDS - 1) * 4, 4, stream));
    OK(cuStreamSynchronize(stream));
    if (seen[0] != value || seen[1] != value) {
        __atomic_fetch_add(&failures, 1, __ATOMIC_SEQ_CST);
    }
}

static void one_life(uint32_t name)
{
    CUdeviceptr live;
    CUdeviceptr ptr;
    CUcontext context = new_context(0);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&live, WORDS * 4)); /* never freed */
    for (uint32_t i = 0; i < 5; i++) {
        OK(cuMemAlloc(&ptr, i % 2 ? WORDS * 4 : 2 * MIB));
        fill_and_check(stream, ptr, name + i);
        OK(cuMemFree(ptr));
    }
    OK(cuMemAlloc(&ptr, 2 * MIB));
    OK(cuMemsetD32Async(ptr, name, WORDS, stream));
    OK(cuMemFree(ptr)); /* pending when the context goes */
    OK(cuCtxDestroy(context));
}

static void live_and_die(void *data)
{
    for (uint32_t i = 0; i < rounds; i++) {
        one_life((uint32_t)(uintptr_t)data * 1000000 + i * 100);
    }
}

/* One thread allocates in its context, the other frees it with another one current. */
static void free_elsewhere(void *data)
{
    CUdeviceptr *mailbox = data;
    CUcontext context = new_context(0);
    for (uint32_t i = 0; i < rounds * MAILBOXES; i++) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, i % 2 ? 4 * KIB : 2 * MIB));
        OK(cuMemFree(__atomic_exchange_n(&mailbox[i % MAILBOXES], ptr, __ATOMIC_SEQ_CST)));
    }
    for (int i = 0; i < MAILBOXES; i++) {
        OK(cuMemFree(__atomic_exchange_n(&mailbox[i], 0, __ATOMIC_SEQ_CST)));
    }
    OK(cuCtxSynchronize());
    /* The context stays: the other thread may hold what was allocated in it. */
    (void)context;
}

static void both(void (*run)(void *), void *data, int count)
{
    struct worker workers[THREADS];
    for (int i = 0; i < count; i++) {
        worker_start(&workers[i], run, data ? data : (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < count; i++) {
        worker_join(&workers[i]);
    }
}

int main(void)
{
    CUdeviceptr mailbox[MAILBOXES] = {0};
    size_t before;
    size_t after;
    victim_start();
    rounds = simulated() ? 60 : 3; /* a real context takes a tenth of a second to make */
    OK(cuCtxSynchronize());
    both(live_and_die, NULL, 1);
    OK(cuMemGetInfo(&before, NULL));
    both(live_and_die, NULL, THREADS);
    OK(cuMemGetInfo(&after, NULL));
    CHECK(read_word(&failures) == 0, "%u wrong contents", read_word(&failures));
    CHECK(after + 4 * MIB >= before, "%zu bytes free, then %zu", before, after);
    both(free_elsewhere, mailbox, 2);
    return 0;
}
