/* SPDX-License-Identifier: Apache-2.0
 *
 * What an allocation and a free take with so many blocks of a hundred thousand sizes live, in
 * random order and by address. Prints pair_ns and ordered_ns. Usage: scale BLOCKS.
 */
#include "api.h"

#include <stdint.h>

enum { SIZES = 100000, PAIRS = 200000, PASSES = 3 };

static uint64_t seed = 1;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(seed >> 33) % n;
}

static int by_address(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t) * (const gpu_ptr *)left;
    uintptr_t b = (uintptr_t) * (const gpu_ptr *)right;
    return (a > b) - (a < b);
}

static void again(gpu_ptr *block)
{
    gpu_free(*block);
    *block = gpu_alloc(1 + below(SIZES));
}

/* Nanoseconds a pair; the best of some passes. */
static double pass(gpu_ptr *blocks, size_t count, int ordered)
{
    double best = 1e18;
    for (int i = 0; i < PASSES; i++) {
        double start = now_us();
        for (size_t k = 0; k < PAIRS; k++) {
            again(&blocks[ordered ? k % count : below(count)]);
        }
        double ns = (now_us() - start) * 1e3 / PAIRS;
        best = ns < best ? ns : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    gpu_ptr *blocks = calloc(count, sizeof *blocks);
    gpu_start();
    for (size_t i = 0; i < count; i++) {
        blocks[i] = gpu_alloc(1 + below(SIZES));
    }
    for (size_t i = 0; i < count; i++) {
        again(&blocks[below(count)]);
    }
    put("blocks", (double)count);
    put("pair_ns", pass(blocks, count, 0));
    qsort(blocks, count, sizeof *blocks, by_address);
    put("ordered_ns", pass(blocks, count, 1));
    for (size_t i = 0; i < count; i++) {
        gpu_free(blocks[i]);
    }
    free(blocks);
    return 0;
}
