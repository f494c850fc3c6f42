/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a process forks again and again while its threads are in the middle of allocating and
 * freeing. Each child asks the driver, frees what it inherited, runs exit handlers or another
 * program; none may hang on a lock that a thread of the parent held, and none changes the parent.
 */
#include "tools.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 40, THREADS = 3, NOT_INITIALIZED = 3, LIMIT_S = 20 };

static uint32_t stop, rounds; /* atomic */

static void churn(void *data)
{
    size_t bytes = (size_t)(uintptr_t)data;
    while (!read_word(&stop)) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, bytes));
        OK(cuMemFree(ptr));
        __atomic_fetch_add(&rounds, 1, __ATOMIC_SEQ_CST);
    }
}

static void child(int number, CUdeviceptr inherited)
{
    CUdeviceptr own = 0;
    alarm(LIMIT_S); /* a child that hangs is a failure, not a test that never ends */
    int alloc = cuMemAlloc(&own, 4096);
    int large = cuMemAlloc(&own, 2 * MIB);
    int release = cuMemFree(inherited);
    if (alloc != NOT_INITIALIZED || large != NOT_INITIALIZED || release != NOT_INITIALIZED) {
        _exit(1);
    }
    if (number % 3 == 0) {
        _exit(0);
    }
    if (number % 3 == 1) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(2);
    }
    exit(0);
}

int main(void)
{
    struct worker workers[THREADS];
    const size_t sizes[THREADS] = {4 * KIB, 512, 2 * MIB};
    CUdeviceptr held;
    uint32_t value = 0;
    victim_start();
    OK(cuMemAlloc(&held, 4096));
    OK(cuMemsetD32(held, 77, 1024));
    OK(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++) {
        worker_start(&workers[i], churn, (void *)(uintptr_t)sizes[i]);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        uint32_t before = read_word(&rounds);
        while (read_word(&rounds) == before) {
            sleep_ms(0.05);
        }
        pid_t pid = fork();
        if (pid == 0) {
            child(i, held);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child %d: status %x", i,
              (unsigned)status);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    OK(cuMemcpyDtoH(&value, held + 4092, sizeof value));
    CHECK(value == 77, "%u", value);
    OK(cuMemFree(held));
    return 0;
}
