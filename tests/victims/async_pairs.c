/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: every pairing of the two allocators and the two frees, on streams with work under way.
 * Memory that is freed in stream order must stay usable by work before the free, and must not reach
 * another stream before that work is done. A stream-ordered free never waits.
 */
#include "tools.h"

#include <stdio.h>

#define LIMIT_MS 30.0

static CUstream side, reader;
static uint32_t *bad;

static void allocate(bool async, CUdeviceptr *ret, size_t bytes, CUstream stream)
{
    void *ptr = NULL;
    if (async) {
        OK(cudaMallocAsync(&ptr, bytes, stream));
    } else {
        OK(cudaMalloc(&ptr, bytes));
    }
    *ret = (CUdeviceptr)(uintptr_t)ptr;
}

static void release(bool async, CUdeviceptr ptr, CUstream stream)
{
    void *memory = (void *)(uintptr_t)ptr;
    if (async) {
        OK(cudaFreeAsync(memory, stream));
    } else {
        OK(cudaFree(memory));
    }
}

/* One owner on a held stream, the next on another. */
static void pair(bool alloc_async, bool free_async, size_t bytes)
{
    CUdeviceptr ptr;
    CUdeviceptr other;
    allocate(alloc_async, &ptr, bytes, side);
    struct gate gate = gate_close(side, LIMIT_MS);
    launch_fill(side, ptr, bytes / 4, 1);
    launch_check(side, ptr, bytes / 4, 1, (CUdeviceptr)(uintptr_t)bad);
    if (alloc_async && !free_async) {
        /* Natively this free neither waits nor keeps stream order, so a program has to. */
        gate_open(gate);
        OK(cuStreamSynchronize(side));
    }
    release(free_async, ptr, side);
    CHECK(gate_outcome(gate) == GATE_CLOSED || !free_async, "cudaFreeAsync waited");
    allocate(alloc_async, &other, bytes, reader);
    launch_fill(reader, other, bytes / 4, 2);
    gate_open_on(reader, gate);
    OK(cuStreamSynchronize(side));
    launch_check(reader, other, bytes / 4, 2, (CUdeviceptr)(uintptr_t)bad);
    OK(cuStreamSynchronize(reader));
    CHECK(read_word(bad) == 0, "%s + %s, %zu bytes: %u words",
          alloc_async ? "cudaMallocAsync" : "cudaMalloc", free_async ? "cudaFreeAsync" : "cudaFree",
          bytes, read_word(bad));
    release(free_async, other, reader);
}

/* Freed twice: the second is refused, where the driver already knows of the first. */
static void twice(bool alloc_async, bool first_async, bool second_async)
{
    CUdeviceptr ptr;
    if (first_async && second_async && !pooled() && !simulated()) {
        return; /* a driver may take both */
    }
    allocate(alloc_async, &ptr, 2 * MIB, side);
    release(first_async, ptr, side);
    void *memory = (void *)(uintptr_t)ptr;
    cudaError_t code = second_async ? cudaFreeAsync(memory, side) : cudaFree(memory);
    /* A stream-ordered free of plain memory may not have happened yet: then a plain one is. */
    bool early = !alloc_async && first_async && !second_async;
    CHECK(code == cudaErrorInvalidValue || (early && code == cudaSuccess), "%d %d %d: %d",
          alloc_async, first_async, second_async, (int)code);
    cudaGetLastError();
    OK(cuCtxSynchronize());
}

int main(void)
{
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    reader = new_stream(CU_STREAM_NON_BLOCKING);
    bad = host_words(1);
    for (int round = 0; round < 3; round++) {
        for (unsigned way = 0; way < 4; way++) {
            pair(way & 1, way & 2, 4 * KIB);
            pair(way & 1, way & 2, 2 * MIB);
        }
    }
    for (unsigned way = 0; way < 8; way++) {
        twice(way & 1, way & 2, way & 4);
    }
    /* The handle of a stream that is gone is an error, and the memory is still there. */
    CUdeviceptr ptr;
    CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuStreamDestroy(gone));
    OK(cuMemsetD8(ptr, 1, 4096));
    OK(cuMemFree(ptr));
    return 0;
}
