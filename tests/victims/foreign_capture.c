/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: one thread captures while others allocate and free, and blocks freed before, during and
 * after are used again. The capture ends as natively, and no block comes back too early.
 */
#include "victim.h"

#include <pthread.h>

#define WORDS ((uint64_t)1 << 18)

static CUcontext context;
static CUstream stream;

struct call {
    CUdeviceptr ptr;
    CUresult alloc, free;
};

static void *allocate(void *data)
{
    struct call *call = data;
    OK(cuCtxSetCurrent(context));
    call->alloc = cuMemAlloc(&call->ptr, WORDS * 4);
    call->free = call->alloc == CUDA_SUCCESS ? cuMemFree(call->ptr) : CUDA_SUCCESS;
    return NULL;
}

static void in_thread(struct call *call)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate, call) == 0);
    pthread_join(thread, NULL);
}

static void warm(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, WORDS * 4));
    OK(cuMemFree(ptr));
    OK(cuCtxSynchronize());
}

static void end(CUresult code)
{
    CUgraph graph = NULL;
    EXPECT(code, cuStreamEndCapture(stream, &graph));
    if (graph) {
        OK(cuGraphDestroy(graph));
    }
}

/* A cached block must not hide that natively the allocation would have broken the capture. */
static void global(void)
{
    struct call call = {0};
    warm();
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_spin(stream, 0.1);
    in_thread(&call);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call.alloc);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void relaxed(CUstreamCaptureMode mode)
{
    struct call call = {0};
    warm();
    OK(cuStreamBeginCapture(stream, mode));
    launch_spin(stream, 0.1);
    for (int i = 0; i < 3; i++) {
        in_thread(&call);
        OK(call.alloc);
        OK(call.free);
    }
    end(CUDA_SUCCESS);
}

/* Freed during a capture, while the GPU still uses it: there is no event to ask, and no reuse. */
static void freed_meanwhile(void)
{
    CUstream slow = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream fast = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *bad = host_words(1);
    for (int round = 0; round < 4; round++) {
        CUdeviceptr ptr;
        CUdeviceptr again;
        OK(cuMemAlloc(&ptr, WORDS * 4));
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        launch_spin(slow, 10);
        launch_fill(slow, ptr, WORDS, 1);
        OK(cuMemFree(ptr));
        if (round % 2) {
            end(CUDA_SUCCESS);
        }
        OK(cuMemAlloc(&again, WORDS * 4));
        launch_fill(fast, again, WORDS, 2);
        launch_spin(fast, 15);
        launch_check(fast, again, WORDS, 2, (CUdeviceptr)(uintptr_t)bad);
        if (round % 2 == 0) {
            end(CUDA_SUCCESS);
        }
        OK(cuCtxSynchronize());
        OK(cuMemFree(again));
    }
    CHECK(read_word(bad) == 0, "%u wrong values", read_word(bad));
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&context));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    global();
    relaxed(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    relaxed(CU_STREAM_CAPTURE_MODE_RELAXED);
    freed_meanwhile();
    return 0;
}
