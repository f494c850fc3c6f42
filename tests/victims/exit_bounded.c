/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program exits while a kernel still runs that it launched after its last free. Natively
 * nothing waits for it, so the process must be gone long before the kernel is. With `small` the
 * last frees are of blocks so small that a pool records nothing in them: what they would have
 * waited for cannot be told from the kernel any more. Usage: exit_bounded [small].
 */
#include "tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL_MS 20000.0

static void free_last(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
    OK(cuMemFree(ptr));
}

static void program(bool small)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    gate_open(gate_close(stream, 1)); /* loads the kernel */
    OK(cuCtxSynchronize());
    free_last(4 * MIB);
    for (uint64_t records = driver_calls("cuCtxRecordEvent"); small;) {
        uint64_t before = records;
        free_last(4 * KIB);
        records = driver_calls("cuCtxRecordEvent");
        if (records == before) {
            break; /* this one recorded nothing */
        }
    }
    gate_close(stream, KERNEL_MS);
    exit(0);
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    int status = -1;
    double start = now_us();
    pid_t child = fork();
    if (child == 0) {
        program(small);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77, "%d", WEXITSTATUS(status));
    double seconds = (now_us() - start) / 1e6;
    CHECK(seconds < KERNEL_MS / 2e3, "%f seconds", seconds);
    return WEXITSTATUS(status);
}
