/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: eight threads free the same pointer at once. One of them succeeds, the others get the
 * code of a bad free, and the block is not handed out twice afterwards.
 */
#include "tools.h"

enum { THREADS = 8, ROUNDS = 60 };

static pthread_barrier_t barrier;
static CUdeviceptr shared;
static uint32_t successes; /* atomic */

static void free_shared(void *data)
{
    uintptr_t self = (uintptr_t)data;
    for (int round = 0; round < ROUNDS; round++) {
        if (self == 0) {
            OK(cuMemAlloc(&shared, round % 2 ? 2 * MIB : 4 * KIB));
        }
        pthread_barrier_wait(&barrier);
        CUresult rc = round % 3 == 2 && self % 2 ? cuMemFreeAsync(shared, CU_STREAM_PER_THREAD)
                                                 : cuMemFree(shared);
        CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_INVALID_VALUE, "%d", (int)rc);
        __atomic_fetch_add(&successes, rc == CUDA_SUCCESS, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&barrier);
        if (self == 0) {
            CUdeviceptr first;
            CUdeviceptr second;
            CHECK(read_word(&successes) == 1, "%u frees succeeded", read_word(&successes));
            __atomic_store_n(&successes, 0, __ATOMIC_SEQ_CST);
            OK(cuCtxSynchronize());
            OK(cuMemAlloc(&first, round % 2 ? 2 * MIB : 4 * KIB));
            OK(cuMemAlloc(&second, round % 2 ? 2 * MIB : 4 * KIB));
            CHECK(first != second, "handed out twice");
            OK(cuMemFree(first));
            OK(cuMemFree(second));
        }
        pthread_barrier_wait(&barrier);
    }
}

int main(void)
{
    struct worker workers[THREADS];
    victim_start();
    if (!pooled() && !simulated()) {
        victim_skip("the driver of an H200 (580.159) does not survive this");
    }
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        worker_start(&workers[i], free_shared, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    return 0;
}
