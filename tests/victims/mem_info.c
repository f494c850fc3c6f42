/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: programs that size themselves by cuMemGetInfo. Free memory and what the program holds
 * never exceed the total, cached memory counts as free, and what is reported free can be had.
 */
#include "tools.h"

enum { BLOCKS = 12 };

/* Free as the program is told, checked against what it holds. */
static size_t free_now(size_t held)
{
    size_t left = 0;
    size_t total = 0;
    OK(cuMemGetInfo(&left, &total));
    CHECK(left + held <= total, "%zu free, %zu held, %zu in all", left, held, total);
    return left;
}

/* A share of what is free can be allocated, whatever was freed before. */
static void take(unsigned percent, unsigned times)
{
    CUdeviceptr ptrs[2];
    size_t bytes = free_now(0) / 100 * percent;
    for (unsigned i = 0; i < times; i++) {
        OK(cuMemAlloc(&ptrs[i], bytes));
        OK(cuMemsetD8(ptrs[i], 1, 4096));
    }
    free_now(times * bytes);
    for (unsigned i = 0; i < times; i++) {
        OK(cuMemFree(ptrs[i]));
    }
}

int main(void)
{
    CUdeviceptr ptrs[BLOCKS];
    victim_start();
    size_t start = free_now(0);
    size_t held = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t bytes = (i + 1) * MIB + 700 * i;
        OK(cuMemAlloc(&ptrs[i], bytes));
        held += bytes;
        free_now(held);
    }
    size_t least = free_now(held);
    CHECK(start - least >= held - BLOCKS * 2 * MIB, "%zu, then %zu", start, least);
    for (size_t i = 0; i < BLOCKS; i++) {
        OK(cuMemFree(ptrs[i]));
    }
    /* A pool counts the bytes of its blocks; the driver takes up to 2 MiB more for each. */
    CHECK(free_now(0) + BLOCKS * 2 * MIB >= start, "freed memory is not reported");
    take(95, 1);
    take(45, 2);
    take(75, 1);
    take(45, 2);
    return 0;
}
