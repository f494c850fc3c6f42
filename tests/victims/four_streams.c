/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: four streams, each allocating, filling, checking and freeing without a wait of its own.
 * Natively every free waits; a pool that hands a block on before its last kernel is done shows
 * wrong values.
 */
#include "victim.h"

#include <pthread.h>
#include <stdio.h>

#define STREAMS 4
#define ROUNDS  60
#define WORDS   ((uint64_t)64 << 10)

static CUcontext context;
static CUdeviceptr bad;

static void round_on(CUstream stream, uint32_t value, uint64_t words)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, words * 4));
    launch_fill(stream, ptr, words, value);
    launch_spin(stream, 0.2);
    launch_check(stream, ptr, words, value, bad);
    OK(cuMemFree(ptr));
}

static void *one_thread(void *data)
{
    CUstream stream = data;
    OK(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        round_on(stream, (uint32_t)(uintptr_t)stream + i, i % 2 ? WORDS : WORDS * 8);
    }
    return NULL;
}

int main(void)
{
    uint32_t wrong = 1;
    CUstream streams[STREAMS];
    pthread_t threads[STREAMS];
    victim_start();
    OK(cuCtxGetCurrent(&context));
    OK(cuMemAlloc(&bad, 4));
    OK(cuMemsetD32(bad, 0, 1));
    OK(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    }
    /* One thread that feeds all streams in turn, then a thread for each. */
    for (uint32_t i = 0; i < ROUNDS * STREAMS; i++) {
        round_on(streams[i % STREAMS], i, i % 3 ? WORDS : WORDS * 8);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(pthread_create(&threads[i], NULL, one_thread, streams[i]) == 0);
    }
    for (int i = 0; i < STREAMS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&wrong, bad, 4));
    CHECK(wrong == 0, "%u wrong values", wrong);
    OK(cuMemFree(bad));
    return 0;
}
