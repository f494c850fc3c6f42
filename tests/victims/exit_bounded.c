/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program exits while a kernel still runs that it launched after its last free. Natively
 * nothing waits for it, so the process must be gone long before the kernel is.
 */
#include "tools.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL_MS 20000.0

static void program(void)
{
    CUdeviceptr ptr;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    gate_open(gate_close(stream, 1)); /* loads the kernel */
    OK(cuCtxSynchronize());
    OK(cuMemAlloc(&ptr, 4 * MIB));
    OK(cuMemFree(ptr));
    gate_close(stream, KERNEL_MS);
    exit(0);
}

int main(void)
{
    int status = -1;
    double start = now_us();
    pid_t child = fork();
    if (child == 0) {
        program();
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77, "%d", WEXITSTATUS(status));
    double seconds = (now_us() - start) / 1e6;
    CHECK(seconds < KERNEL_MS / 2e3, "%f seconds", seconds);
    return WEXITSTATUS(status);
}
