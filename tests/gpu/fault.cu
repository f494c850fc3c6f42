/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel writes to an address that nobody mapped: prints the codes of the calls after it, up to
 * cudaDeviceReset and the work after that. The codes natively and under libzone are compared.
 */
#include <cuda_runtime.h>
#include "gpu.h"

static __global__ void write_to(int *address)
{
    *address = 1;
}

int main(void)
{
    int *before = NULL, *cached = NULL, *after = NULL;
    size_t left = 0, total = 0;
    RT(cudaMalloc((void **)&before, MIB(4)));
    RT(cudaMalloc((void **)&cached, MIB(4)));
    RT(cudaFree(cached));
    RT(cudaDeviceSynchronize());
    write_to<<<1, 1>>>((int *)0x1000);
    put("launch", cudaGetLastError());
    put("synchronize", cudaDeviceSynchronize());
    /* Served from the cache if the fault went unnoticed: the first may be one call late. */
    put("malloc_1", cudaMalloc((void **)&after, MIB(4)));
    put("malloc_2", cudaMalloc((void **)&after, MIB(4)));
    put("malloc_new_size", cudaMalloc((void **)&after, MIB(5)));
    put("free_1", cudaFree(before));
    put("free_2", cudaFree(before));
    put("get_info", cudaMemGetInfo(&left, &total));
    put("last_error", cudaGetLastError());
    put("reset", cudaDeviceReset());
    after = NULL;
    put("malloc_after_reset", cudaMalloc((void **)&after, MIB(4)));
    put("memset_after_reset", cudaMemset(after, 1, MIB(4)));
    put("synchronize_after_reset", cudaDeviceSynchronize());
    put("free_after_reset", cudaFree(after));
    return 0;
}
