/* SPDX-License-Identifier: Apache-2.0
 *
 * Resets the device again and again with blocks live, cached and in use by a kernel, and watches
 * the free memory: nothing may be lost, and the cache of a dead context may not be handed out.
 * Usage: reset [times]. Prints the free memory after the first and the last reset and the lowest.
 */
#include "spin.cuh"

static __global__ void use(char *block, long long cycles)
{
    block[0] = 1;
    spin_until(clock64(), cycles);
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 100;
    double first = 0, last = 0, lowest = 1e18;
    double start = now_us();
    for (int i = 0; i < times; i++) {
        char *blocks[4];
        size_t left = 0, total = 0;
        for (int k = 0; k < 4; k++) {
            RT(cudaMalloc((void **)&blocks[k], MIB(16) << k));
        }
        use<<<1, 1>>>(blocks[1], cycles_for_us(500));
        RT(cudaFree(blocks[0]));
        RT(cudaFree(blocks[1]));
        RT(cudaDeviceReset());
        RT(cudaMemGetInfo(&left, &total));
        last = (double)left;
        first = i == 0 ? last : first;
        lowest = last < lowest ? last : lowest;
    }
    put("resets", times);
    put("free_first", first);
    put("free_last", last);
    put("free_lowest", lowest);
    put("reset_ms", (now_us() - start) / 1e3 / times);
    return 0;
}
