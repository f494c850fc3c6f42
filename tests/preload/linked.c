/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked to the driver and, by its build rule, to libzone in front of it: the test makes it setuid.
 * A privileged program must not let the caller's environment choose a file to write.
 */
#include <cuda.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    CUcontext context = NULL;
    CUdeviceptr address = 0;

    printf("%s\n", geteuid() != getuid() ? "privileged" : "plain");
    fflush(stdout);
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&address, 4096) != CUDA_SUCCESS ||
        cuMemFree(address) != CUDA_SUCCESS) {
        return 1;
    }
    return 0;
}
