/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a request for which the device has room only if memory that the program freed is really
 * free. The row makes the device small. Also what an honest out-of-memory looks like.
 */
#include "tools.h"

#define PIECE (10 * MIB)

enum { PIECES = 20 };

static CUstream side;
static size_t total;

/* Both ends of it. */
static void check_contents(CUdeviceptr ptr, size_t bytes)
{
    CUdeviceptr end = ptr + (bytes - MIB) / 4 * 4;
    launch_fill(side, ptr, MIB / 4, 5);
    launch_fill(side, end, MIB / 4, 6);
    CHECK(count_wrong(side, ptr, MIB / 4, 5) == 0, "%zu bytes", bytes);
    CHECK(count_wrong(side, end, MIB / 4, 6) == 0, "%zu bytes", bytes);
}

/* Frees that many pieces of which no size is the next request's. */
static void fill_cache(void)
{
    CUdeviceptr pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        OK(cuMemAlloc(&pieces[i], PIECE + i * 512));
    }
    for (size_t i = 0; i < PIECES; i++) {
        OK(cuMemFree(pieces[i]));
    }
}

static void other_sizes(void)
{
    CUdeviceptr ptr;
    fill_cache();
    OK(cuMemAlloc(&ptr, PIECES * PIECE));
    check_contents(ptr, PIECES * PIECE);
    OK(cuMemFree(ptr));
}

/* Pieces of which each takes almost twice its size, as the driver's steps are 2 MiB. */
static void small_pieces(void)
{
    CUdeviceptr pieces[PIECES * 5 / 2];
    CUdeviceptr ptr;
    for (size_t i = 0; i < PIECES * 5 / 2; i++) {
        OK(cuMemAlloc(&pieces[i], 2 * MIB + 512));
    }
    for (size_t i = 0; i < PIECES * 5 / 2; i++) {
        OK(cuMemFree(pieces[i]));
    }
    OK(cuMemAlloc(&ptr, PIECES * PIECE));
    check_contents(ptr, PIECES * PIECE);
    OK(cuMemFree(ptr));
}

/* The freed block is still written when the larger one is asked for. */
static void busy_block(void)
{
    CUdeviceptr ptr;
    CUdeviceptr larger;
    fill_cache();
    OK(cuMemAlloc(&ptr, total / 3));
    launch_spin(side, 30);
    launch_fill(side, ptr, total / 3 / 4, 1);
    OK(cuMemFree(ptr));
    OK(cuMemAlloc(&larger, total / 4 * 3));
    check_contents(larger, total / 4 * 3);
    OK(cuMemFree(larger));
}

/* Through the runtime: an allocation that was rescued leaves no error behind; one that was not
 * leaves it once. */
static void last_error(void)
{
    void *ptr = NULL;
    fill_cache();
    OK(cudaMalloc(&ptr, PIECES * PIECE));
    OK(cudaGetLastError());
    void *more = NULL;
    EXPECT(cudaErrorMemoryAllocation, cudaMalloc(&more, total / 2));
    EXPECT(cudaErrorMemoryAllocation, cudaGetLastError());
    OK(cudaGetLastError());
    CHECK(!more);
    check_contents((CUdeviceptr)(uintptr_t)ptr, PIECES * PIECE); /* is still the program's */
    OK(cudaFree(ptr));
}

/* Requests that nothing could serve must not cost what is cached. */
static void hopeless(void)
{
    CUdeviceptr held;
    CUdeviceptr cached;
    CUdeviceptr none = 77;
    OK(cuMemAlloc(&held, total / 2));
    OK(cuMemAlloc(&cached, 8 * MIB));
    OK(cuMemFree(cached));
    OK(cuCtxSynchronize());
    uint64_t frees = driver_frees();
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, total - total / 8));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 16 * total));
    CHECK(none == 77);
    CHECK(driver_frees() == frees, "the cache was given back for nothing");
    uint64_t allocs = driver_allocs();
    OK(cuMemAlloc(&cached, 8 * MIB));
    CHECK(driver_allocs() == allocs || !pooled(), "the cached block is gone");
    OK(cuMemFree(cached));
    OK(cuMemFree(held));
}

int main(void)
{
    size_t left;
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemGetInfo(&left, &total));
    CHECK(left > PIECES * PIECE + 2 * PIECE && total < 2 * PIECES * PIECE, "%zu of %zu", left,
          total);
    other_sizes();
    small_pieces();
    busy_block();
    last_error();
    hopeless();
    return 0;
}
