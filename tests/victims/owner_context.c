/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory belongs to the context that allocated it, and so does the work that a free has to
 * wait for: also when another context is current, none is, the context is a green one, or the
 * stream is already destroyed.
 */
#include "victim.h"

#include <pthread.h>

#define WORDS ((uint64_t)1 << 18)

static CUcontext primary;

/* Fills on one stream what was freed there on another: wrong if the block came back too early. */
static uint32_t reused_wrong(CUstream slow, CUstream fast, void (*free_it)(CUdeviceptr))
{
    uint32_t *bad = host_words(1);
    for (uint32_t round = 0; round < 3; round++) {
        CUdeviceptr ptr;
        CUdeviceptr again;
        OK(cuMemAlloc(&ptr, WORDS * 4));
        launch_spin(slow, 10);
        launch_fill(slow, ptr, WORDS, 1);
        free_it(ptr);
        OK(cuMemAlloc(&again, WORDS * 4));
        launch_fill(fast, again, WORDS, 2);
        launch_spin(fast, 15);
        launch_check(fast, again, WORDS, 2, (CUdeviceptr)(uintptr_t)bad);
        OK(cuStreamSynchronize(fast));
        OK(cuMemFree(again));
    }
    OK(cuCtxSynchronize());
    return read_word(bad);
}

static void plain_free(CUdeviceptr ptr)
{
    OK(cuMemFree(ptr));
}

static CUcontext elsewhere;

static void free_under_another(CUdeviceptr ptr)
{
    CUcontext own;
    OK(cuCtxGetCurrent(&own));
    OK(cuCtxSetCurrent(elsewhere));
    OK(cuMemFree(ptr));
    OK(cuCtxSetCurrent(own));
}

static void *bare_thread(void *data)
{
    OK(cuMemFree(*(CUdeviceptr *)data));
    return NULL;
}

static void free_without_context(CUdeviceptr ptr)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, bare_thread, &ptr) == 0);
    pthread_join(thread, NULL);
}

static void destroyed_stream(void)
{
    CUstream fast = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *bad = host_words(1);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr ptr;
        CUdeviceptr again;
        CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc(&ptr, WORDS * 4));
        launch_spin(gone, 10);
        launch_fill(gone, ptr, WORDS, 1);
        OK(cuStreamDestroy(gone));
        OK(cuMemFree(ptr));
        OK(cuMemAlloc(&again, WORDS * 4));
        launch_fill(fast, again, WORDS, 2);
        launch_spin(fast, 15);
        launch_check(fast, again, WORDS, 2, (CUdeviceptr)(uintptr_t)bad);
        OK(cuStreamSynchronize(fast));
        OK(cuMemFree(again));
    }
    CHECK(read_word(bad) == 0, "destroyed stream: %u wrong values", read_word(bad));
}

static void green_context(void)
{
    CUdevResource all;
    CUdevResource part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUcontext context;
    CUstream slow;
    unsigned groups = 1;
    int version;
    OK(cuDriverGetVersion(&version));
    if (version < 12050) {
        return; /* no streams of green contexts yet */
    }
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuGreenCtxStreamCreate(&slow, green, CU_STREAM_NON_BLOCKING, 0));
    CUstream fast = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *bad = host_words(1);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr ptr;
        CUdeviceptr again;
        OK(cuCtxSetCurrent(round % 2 ? context : primary));
        OK(cuMemAlloc(&ptr, WORDS * 4));
        OK(cuCtxSetCurrent(context));
        launch_spin(slow, 10);
        launch_fill(slow, ptr, WORDS, 1);
        OK(cuMemFree(ptr));
        OK(cuCtxSetCurrent(primary));
        OK(cuMemAlloc(&again, WORDS * 4));
        launch_fill(fast, again, WORDS, 2);
        launch_spin(fast, 15);
        launch_check(fast, again, WORDS, 2, (CUdeviceptr)(uintptr_t)bad);
        OK(cuStreamSynchronize(fast));
        OK(cuMemFree(again));
    }
    CHECK(read_word(bad) == 0, "green context: %u wrong values", read_word(bad));
    OK(cuCtxSetCurrent(primary));
    OK(cuCtxSynchronize());
    OK(cuGreenCtxDestroy(green));
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&primary));
    CUcontext second = new_context(0);
    CUstream slow = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream fast = new_stream(CU_STREAM_NON_BLOCKING);
    elsewhere = primary;
    CHECK(reused_wrong(slow, fast, plain_free) == 0);
    CHECK(reused_wrong(slow, fast, free_under_another) == 0, "freed under the primary context");
    CHECK(reused_wrong(slow, fast, free_without_context) == 0, "freed without a context");
    OK(cuCtxSetCurrent(primary));
    slow = new_stream(CU_STREAM_NON_BLOCKING);
    fast = new_stream(CU_STREAM_NON_BLOCKING);
    elsewhere = second;
    CHECK(reused_wrong(slow, fast, free_under_another) == 0, "freed under the second context");
    CHECK(reused_wrong(slow, CU_STREAM_PER_THREAD, plain_free) == 0);
    CHECK(reused_wrong(CU_STREAM_LEGACY, fast, plain_free) == 0);
    CHECK(reused_wrong(CU_STREAM_PER_THREAD, fast, plain_free) == 0);
    destroyed_stream();
    OK(cuCtxDestroy(second));
    victim_forget_kernels();
    green_context();
    return 0;
}
