/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program of ever new sizes, under a bound on what is kept (the row sets it to 16 MiB, to
 * nothing, or turns the pool off). What it held before does not pile up, and what it holds is never
 * touched.
 */
#include "tools.h"

enum { SIZES = 40, LIVE = 4 };

static size_t bound(void)
{
    return configured("max_cached_mb:16") ? 16 * MIB : 0;
}

int main(void)
{
    CUdeviceptr live[LIVE];
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t i = 0; i < LIVE; i++) {
        OK(cuMemAlloc(&live[i], 2 * MIB));
        launch_fill(stream, live[i], 1024, i);
    }
    size_t start = driver_bytes();
    uint64_t allocs = driver_allocs();
    for (size_t i = 0; i < SIZES; i++) {
        CUdeviceptr ptr;
        size_t bytes = 4 * MIB - i * 512; /* near what the driver takes for it */
        OK(cuMemAlloc(&ptr, bytes));
        launch_fill(stream, ptr, 1024, 99);
        OK(cuMemFree(ptr));
        size_t more = driver_bytes() - start;
        CHECK(driver_bytes() <= start || more <= bound() + 6 * MIB, "%zu bytes more", more);
    }
    CHECK(driver_allocs() - allocs == (simulated() ? SIZES : 0));
    for (uint32_t i = 0; i < LIVE; i++) {
        CHECK(count_wrong(stream, live[i], 1024, i) == 0, "block %u", i);
        OK(cuMemFree(live[i]));
    }
    OK(cuCtxSynchronize());
    return 0;
}
