/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that uses the second device alone. The first stays untouched: no context there,
 * no memory taken.
 */
#include "tools.h"

#include "../sim/zsim.h"

#include <string.h>

static uint64_t taken(int device)
{
    uint64_t (*chunks)(int);
    void *found = zsim("zsim_chunks");
    memcpy(&chunks, &found, sizeof chunks);
    return found ? chunks(device) : 0;
}

int main(void)
{
    int devices = 0;
    unsigned flags;
    int active = 1;
    OK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        victim_skip("needs two devices");
    }
    OK(cudaSetDevice(1));
    for (int i = 0; i < 40; i++) {
        void *ptr;
        OK(cudaMalloc(&ptr, i % 2 ? 4 * KIB : 2 * MIB));
        OK(cudaMemset(ptr, i, 4 * KIB));
        OK(cudaFree(ptr));
    }
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active, "device 0 has a context");
    CHECK(taken(0) == 0, "%llu chunks of device 0", (unsigned long long)taken(0));
    return 0;
}
