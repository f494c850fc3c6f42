/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory freed by a destructor while the process exits, after the driver has shut down.
 * Natively cudaFree gives cudaErrorCudartUnloading (4) and nothing crashes.
 */
#include "victim.h"

#include <unistd.h>

static void *held;

__attribute__((destructor)) static void free_late(void)
{
    int code = cudaFree(held);
    if (code != cudaErrorCudartUnloading) {
        static const char message[] = "cudaFree in a destructor did not give 4\n";
        ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
        _exit(written < 0 ? 2 : 1);
    }
}

int main(void)
{
    victim_start();
    OK(cudaMalloc(&held, 4096));
    return 0;
}
