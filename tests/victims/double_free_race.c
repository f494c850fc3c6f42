/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: eight threads free the same pointers at once. One of them succeeds for each, the others
 * get the code of a bad free, and no block is handed out twice afterwards.
 */
#include "tools.h"

#include <sched.h>
#include <stdlib.h>

enum { THREADS = 8, BLOCKS = 64 };

static CUdeviceptr shared[BLOCKS];
static uint32_t successes; /* atomic */
static uint32_t arrived;   /* atomic; at barriers, ever */
static int rounds;

/* Lets all go on in the same moment, as far as there are processors: a thread that sleeps at a
 * barrier comes too late for a race. */
static void meet(void)
{
    uint32_t mine = __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
    uint32_t full = (mine + THREADS - 1) / THREADS * THREADS;
    for (unsigned i = 0; read_word(&arrived) < full; i++) {
        if (i % 2000 == 1999) {
            sched_yield();
        }
    }
}

/* All free the same blocks in the same order, and so get into each other's way again and again. */
static void free_shared(int round, uintptr_t self)
{
    bool async = round % 3 == 2 && self % 2;
    for (int i = 0; i < BLOCKS; i++) {
        CUresult rc =
            async ? cuMemFreeAsync(shared[i], CU_STREAM_PER_THREAD) : cuMemFree(shared[i]);
        CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_INVALID_VALUE, "%d", (int)rc);
        __atomic_fetch_add(&successes, rc == CUDA_SUCCESS, __ATOMIC_SEQ_CST);
    }
}

static int by_address(const void *a, const void *b)
{
    const CUdeviceptr *first = a;
    const CUdeviceptr *second = b;
    return *first < *second ? -1 : *first > *second;
}

/* The same blocks are there again, each once. */
static void check(size_t bytes)
{
    CHECK(read_word(&successes) == BLOCKS, "%u frees of %d succeeded", read_word(&successes),
          BLOCKS);
    __atomic_store_n(&successes, 0, __ATOMIC_SEQ_CST);
    OK(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemAlloc(&shared[i], bytes));
    }
    qsort(shared, BLOCKS, sizeof shared[0], by_address);
    for (int i = 1; i < BLOCKS; i++) {
        CHECK(shared[i] != shared[i - 1], "handed out twice");
    }
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemFree(shared[i]));
    }
}

static void race(void *data)
{
    uintptr_t self = (uintptr_t)data;
    for (int round = 0; round < rounds; round++) {
        size_t bytes = round % 4 ? 4 * KIB : 2 * MIB;
        for (int i = 0; self == 0 && i < BLOCKS; i++) {
            OK(cuMemAlloc(&shared[i], bytes));
        }
        meet();
        free_shared(round, self);
        meet();
        if (self == 0) {
            check(bytes);
        }
        meet();
    }
}

int main(void)
{
    struct worker workers[THREADS];
    victim_start();
    if (!pooled() && !simulated()) {
        victim_skip("the driver of an H200 (580.159) does not survive this");
    }
    rounds = pooled() ? 2500 : 60;
    for (uintptr_t i = 0; i < THREADS; i++) {
        worker_start(&workers[i], race, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    return 0;
}
