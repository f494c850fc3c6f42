/* SPDX-License-Identifier: Apache-2.0
 *
 * A fixed sequence of allocations and frees, some of them left live at the end, built with static
 * cudart, shared cudart and the driver API. Under libzone the three reports must count the same
 * calls and bytes, whichever way the program reaches the driver.
 * Prints what it did: allocations, frees, live_bytes.
 */
#include "api.h"

enum { SLOTS = 64, STEPS = 2000 };

int main(void)
{
    gpu_ptr blocks[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    unsigned seed = 12345;
    long allocations = 0, frees = 0;
    size_t live_bytes = 0;
    gpu_start();
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1103515245u + 12345u;
        unsigned slot = (seed >> 16) % SLOTS;
        if (sizes[slot] != 0) {
            gpu_free(blocks[slot]);
            frees++;
            live_bytes -= sizes[slot];
            sizes[slot] = 0;
            continue;
        }
        seed = seed * 1103515245u + 12345u;
        size_t bytes = (size_t)1 << (8 + (seed >> 16) % 17);
        blocks[slot] = gpu_alloc(bytes + (seed >> 20) % 100);
        sizes[slot] = bytes + (seed >> 20) % 100;
        gpu_fill(blocks[slot], step & 0xff, sizes[slot]);
        live_bytes += sizes[slot];
        allocations++;
    }
    gpu_sync();
    put("allocations", (double)allocations);
    put("frees", (double)frees);
    put("live_bytes", (double)live_bytes);
    return 0;
}
