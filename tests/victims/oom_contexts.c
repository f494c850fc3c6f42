/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: one thread runs out of memory again and again, so that what the pools of other contexts
 * hold is given back, while threads make and destroy such contexts. Nobody's live memory may be
 * given back, and every request fits natively. The row makes the device small.
 */
#include "tools.h"

enum { LIVES = 3, ROUNDS = 20 };

#define PIECE (6 * MIB)

static uint32_t stop; /* atomic */

static void check(CUstream stream, CUdeviceptr ptr, uint32_t value)
{
    uint32_t seen = 0;
    OK(cuMemcpyDtoHAsync(&seen, ptr + PIECE - 4, 4, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(seen == value, "%u instead of %u", seen, value);
}

/* Contexts with one live block and one that was freed. */
static void live_and_die(void *data)
{
    uint32_t name = (uint32_t)(uintptr_t)data;
    for (uint32_t i = 0; !read_word(&stop); i++) {
        CUdeviceptr live;
        CUdeviceptr cached;
        CUcontext context = new_context(0);
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        uint32_t value = name << 24 | i;
        OK(cuMemAlloc(&live, PIECE));
        OK(cuMemsetD32Async(live, value, PIECE / 4, stream));
        OK(cuMemAlloc(&cached, PIECE));
        OK(cuMemsetD32Async(cached, 1, PIECE / 4, stream));
        OK(cuMemFree(cached));
        check(stream, live, value);
        OK(cuMemAlloc(&cached, PIECE));
        check(stream, live, value);
        OK(cuMemFree(cached));
        OK(cuCtxDestroy(context));
    }
}

int main(void)
{
    struct worker workers[LIVES];
    size_t left;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemGetInfo(&left, NULL));
    /* What natively always is left beside the others' blocks. */
    size_t most = left - (size_t)LIVES * (2 * PIECE + 4 * MIB);
    for (uintptr_t i = 0; i < LIVES; i++) {
        worker_start(&workers[i], live_and_die, (void *)(i + 1));
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CUdeviceptr ptr;
        size_t bytes = most - i % 8 * 2 * MIB;
        OK(cuMemAlloc(&ptr, bytes));
        OK(cuMemsetD32Async(ptr + bytes - PIECE, i, PIECE / 4, stream));
        check(stream, ptr + bytes - PIECE, i);
        OK(cuMemFree(ptr));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < LIVES; i++) {
        worker_join(&workers[i]);
    }
    return 0;
}
