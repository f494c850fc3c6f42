/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: small blocks that may share what the driver gave out, and yet are each their own: what
 * is set on one is not set on another, and each can be freed beside a capture by a thread that has
 * another context current, or none.
 */
#include "tools.h"

static CUcontext other;

static int sync_memops(CUdeviceptr ptr)
{
    int set = -1;
    OK(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    return set;
}

static void attributes(void)
{
    CUdeviceptr ptrs[3];
    int on = 1;
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemAlloc(&ptrs[i], 4 * KIB));
    }
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptrs[1]));
    CHECK(sync_memops(ptrs[0]) == 0 && sync_memops(ptrs[2]) == 0, "set on a neighbour, too");
    CHECK(sync_memops(ptrs[1] + 512) == 1, "not set");
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemFree(ptrs[i]));
    }
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemAlloc(&ptrs[i], 4 * KIB));
        CHECK(sync_memops(ptrs[i]) == 0, "set on new memory");
    }
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemFree(ptrs[i]));
    }
}

static void free_without_context(void *data)
{
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemFree(*(CUdeviceptr *)data));
}

static void free_from_another(void *data)
{
    CUcontext now;
    OK(cuCtxSetCurrent(other));
    OK(cuMemFree(*(CUdeviceptr *)data));
    OK(cuCtxGetCurrent(&now));
    CHECK(now == other);
}

static void captures(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptrs[2];
    CUgraph graph;
    OK(cuMemAlloc(&ptrs[0], 4 * KIB));
    OK(cuMemAlloc(&ptrs[1], 4 * KIB));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    in_thread(free_without_context, &ptrs[0]);
    in_thread(free_from_another, &ptrs[1]);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

int main(void)
{
    CUcontext mine;
    victim_start();
    OK(cuCtxGetCurrent(&mine));
    other = new_context(0);
    OK(cuCtxSetCurrent(mine));
    victim_forget_kernels();
    attributes();
    captures();
    return 0;
}
