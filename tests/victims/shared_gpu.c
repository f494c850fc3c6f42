/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a service that has freed most of the GPU, and another process that wants it. What a pool
 * keeps a neighbour cannot have. Usage: shared_gpu; as `shared_gpu SHARE` it is the neighbour,
 * which takes so many percent of the device.
 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PERCENT = 60, PIECES = 6 };

static size_t share_of_device(size_t percent)
{
    size_t now;
    size_t total;
    OK(cuMemGetInfo(&now, &total));
    return total / 100 * percent / (2 * MIB) * (2 * MIB);
}

/* In pieces, as programs do. 0 or the driver's code. */
static int take_and_free(size_t bytes)
{
    CUdeviceptr pieces[PIECES];
    int count = 0;
    CUresult rc = CUDA_SUCCESS;
    while (count < PIECES && rc == CUDA_SUCCESS) {
        rc = cuMemAlloc(&pieces[count], bytes / PIECES);
        count += rc == CUDA_SUCCESS;
    }
    while (count > 0) {
        OK(cuMemFree(pieces[--count]));
    }
    return (int)rc;
}

/* The simulated GPU is shared through a file. */
static void share_device(char *path, size_t size)
{
    snprintf(path, size, "/tmp/zsim-shared-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    setenv("ZSIM_SHARED", path, 1);
}

int main(int argc, char **argv)
{
    char path[64];
    char percent[8];
    int status;
    if (argc > 1) {
        victim_start();
        return take_and_free(share_of_device(strtoul(argv[1], NULL, 10)));
    }
    share_device(path, sizeof path);
    victim_start();
    OK(take_and_free(share_of_device(PERCENT)));
    OK(cuCtxSynchronize());
    snprintf(percent, sizeof percent, "%d", PERCENT);
    pid_t child = fork();
    if (child == 0) {
        execl(argv[0], argv[0], percent, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
    unlink(path);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the neighbour got %d",
          WEXITSTATUS(status));
    OK(take_and_free(share_of_device(PERCENT)));
    return 0;
}
