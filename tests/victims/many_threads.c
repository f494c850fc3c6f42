/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: many threads allocate and free as fast as they can. No block is ever given to two of
 * them: each writes its name into what it holds and finds it there before it frees.
 */
#include "victim.h"

#include <pthread.h>

#define THREADS 8
#define ROUNDS  400
#define HELD    8

static CUcontext context;

static void *worker(void *data)
{
    uint32_t name = *(uint32_t *)data;
    CUdeviceptr held[HELD] = {0};
    uint32_t state = name * 2654435761u;
    OK(cuCtxSetCurrent(context));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        state = state * 1664525u + 1013904223u;
        size_t bytes = (size_t)512 << (state >> 28) % 12;
        CUdeviceptr *slot = &held[i % HELD];
        if (*slot) {
            uint32_t found = 0;
            OK(cuMemcpyDtoHAsync(&found, *slot, 4, stream));
            OK(cuStreamSynchronize(stream));
            CHECK(found == name + i - HELD, "thread %u finds %u in its block", name, found);
            OK(cuMemFree(*slot));
        }
        OK(cuMemAlloc(slot, bytes));
        OK(cuMemsetD32Async(*slot, name + i, 1, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < HELD; i++) {
        OK(cuMemFree(held[i]));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint32_t names[THREADS];
    victim_start();
    OK(cuCtxGetCurrent(&context));
    for (uint32_t i = 0; i < THREADS; i++) {
        names[i] = (i + 1) * 100000;
        CHECK(pthread_create(&threads[i], NULL, worker, &names[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}
