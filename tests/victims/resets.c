/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a device reset and contexts destroyed with blocks live, cached and pending, again and
 * again. Memory does not shrink, nothing of an old context is handed to a new one.
 */
#include "tools.h"

static size_t free_now(void)
{
    size_t bytes;
    OK(cudaMemGetInfo(&bytes, NULL));
    return bytes;
}

static void device_resets(int rounds)
{
    size_t before = 0;
    size_t taken = 0;
    for (int round = 0; round < rounds; round++) {
        char *live;
        char *cached;
        char *again;
        unsigned char byte = 1;
        OK(cudaMalloc((void **)&live, 4 * MIB));
        OK(cudaMalloc((void **)&cached, 3 * MIB));
        OK(cudaMemset(cached, 7, 4096));
        OK(cudaFree(cached));
        OK(cudaMalloc((void **)&again, 3 * MIB));
        OK(cudaMemset(again, 9, 4096));
        OK(cudaMemcpy(&byte, again, 1, cudaMemcpyDeviceToHost));
        CHECK(byte == 9);
        OK(cudaFree(again));
        OK(cudaDeviceReset());
        EXPECT(cudaErrorInvalidValue, cudaFree(live));
        EXPECT(cudaErrorInvalidValue, cudaFree(again));
        cudaGetLastError();
        if (round >= 2) {
            size_t now = free_now();
            before = round == 2 ? now : before;
            taken = round == 2 ? driver_bytes() : taken;
            /* A real driver may take a while to have everything back. */
            CHECK(now == before || !simulated(), "round %d: %zu bytes free, then %zu", round,
                  before, now);
            CHECK(driver_bytes() == taken, "round %d: %zu bytes taken, then %zu", round, taken,
                  driver_bytes());
        }
    }
    CHECK(free_now() >= before, "%zu bytes free, then %zu", before, free_now());
}

static void contexts_destroyed(int rounds)
{
    OK(cudaDeviceSynchronize());
    size_t before = free_now();
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr live;
        CUdeviceptr cached;
        CUcontext context = new_context(0);
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc(&live, 4 * MIB));
        OK(cuMemAlloc(&cached, 3 * MIB));
        launch_spin(stream, 1);
        launch_fill(stream, cached, 1024, 5);
        OK(cuMemFree(cached)); /* pending */
        OK(cuCtxDestroy(context));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(live));
    }
    OK(cudaDeviceSynchronize());
    CHECK(free_now() >= before, "%zu bytes free, then %zu", before, free_now());
}

int main(void)
{
    victim_start();
    /* A real device takes a good part of a second for each. */
    device_resets(simulated() ? 1000 : 10);
    contexts_destroyed(simulated() ? 20 : 5);
    return 0;
}
