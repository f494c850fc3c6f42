/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the last thing a program does is a free, after which it exits. Natively the free waited,
 * so a kernel's last writes to shared memory are there when the process is gone.
 */
#include "victim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void program(uint32_t *shared, size_t bytes)
{
    CUdeviceptr ptr;
    CUdeviceptr device;
    victim_start();
    OK(cuMemHostRegister(shared, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&device, shared, 0));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&ptr, bytes));
    launch_spin(stream, 30);
    launch_fill(stream, device, 1, 42);
    OK(cuMemFree(ptr));
    exit(0);
}

int main(void)
{
    const size_t sizes[] = {4096, 4 * MIB};
    for (int i = 0; i < 2; i++) {
        int status;
        uint32_t *shared =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        pid_t child = fork();
        if (child == 0) {
            program(shared, sizes[i]);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            return WEXITSTATUS(status);
        }
        CHECK(read_word(shared) == 42, "%u: the kernel's write is lost", read_word(shared));
    }
    return 0;
}
