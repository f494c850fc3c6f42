/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a kernel faults. Every later call reports it, a reset heals it. Under libzone the first
 * call after the fault may still be served from the pool; none may hang or crash.
 */
#include "victim.h"

enum { ILLEGAL_ADDRESS = 700 };

static void expect_fault(const char *what, int code, bool may_be_late)
{
    bool served = code == 0 && may_be_late && under_zone();
    CHECK(code == ILLEGAL_ADDRESS || served, "%s gave %d", what, code);
}

int main(void)
{
    void *small;
    void *large;
    void *last;
    void *again = NULL;
    size_t free_bytes;
    size_t total;
    victim_start();
    OK(cudaMalloc(&small, 4096));
    OK(cudaMalloc(&large, 8 * MIB));
    OK(cudaMalloc(&last, 4096));
    OK(cudaMalloc(&again, 4096));
    OK(cudaFree(again)); /* a pool now holds a block of this size */
    launch_fault(NULL);
    EXPECT(ILLEGAL_ADDRESS, cudaDeviceSynchronize());
    expect_fault("cudaMalloc", cudaMalloc(&again, 4096), true);
    expect_fault("cudaFree", cudaFree(small), true);
    expect_fault("cuMemFree", (int)cuMemFree((CUdeviceptr)(uintptr_t)large), true);
    expect_fault("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total), false);
    expect_fault("cudaMalloc later", cudaMalloc(&again, 4096), false);
    expect_fault("cudaFree later", cudaFree(last), false);
    OK(cudaDeviceReset());
    victim_forget_kernels();
    cudaGetLastError();
    /* Some machines refuse the device to the process from here on, natively too. */
    cudaError_t rc = cudaMalloc(&again, 4096);
    if (rc != cudaErrorDevicesUnavailable) {
        OK(rc);
        OK(cudaMemset(again, 1, 4096));
        OK(cudaDeviceSynchronize());
        OK(cudaFree(again));
    }
    return 0;
}
