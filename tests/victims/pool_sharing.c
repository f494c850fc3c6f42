/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a memory pool shared with another process by a file descriptor, and pointers of it. The
 * other process reads what this one wrote and writes what this one reads, while both allocate and
 * free other memory. Usage: pool_sharing [FD PIPE].
 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 3, WORDS = 2048 };

static const CUmemAllocationHandleType by_fd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

static void pairs(void)
{
    CUdeviceptr ptr;
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&ptr, i % 2 ? 2 * MIB : 4 * KIB));
        OK(cuMemsetD32(ptr, 0xffffffffu, 64));
        OK(cuMemFree(ptr));
    }
}

/* The other process. */
static int importer(int fd, int from)
{
    CUmemoryPool pool;
    CUmemPoolPtrExportData data[BLOCKS];
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(read(from, data, sizeof data) == (ssize_t)sizeof data);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, by_fd, 0));
    pairs();
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUdeviceptr ptr;
        OK(cuMemPoolImportPointer(&ptr, pool, &data[i]));
        CHECK(count_wrong(stream, ptr, WORDS, i + 1) == 0, "block %u", i);
        launch_fill(stream, ptr, WORDS, 100 + i);
        pairs();
        OK(cuMemFreeAsync(ptr, stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    return 0;
}

static int run_importer(const char *self, int fd, int from)
{
    char first[16];
    char second[16];
    int status = 0;
    snprintf(first, sizeof first, "%d", fd);
    snprintf(second, sizeof second, "%d", from);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, first, second, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = by_fd,
                            .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemPoolPtrExportData data[BLOCKS];
    CUdeviceptr blocks[BLOCKS];
    int fd = -1;
    int ends[2];
    if (argc == 3) {
        return importer(atoi(argv[1]), atoi(argv[2]));
    }
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, by_fd, 0));
    for (unsigned i = 0; i < BLOCKS; i++) {
        OK(cuMemAllocFromPoolAsync(&blocks[i], i == 2 ? 4 * MIB : 8 * KIB, pool, stream));
        launch_fill(stream, blocks[i], WORDS, i + 1);
        OK(cuMemPoolExportPointer(&data[i], blocks[i]));
    }
    pairs();
    OK(cuStreamSynchronize(stream));
    CHECK(pipe(ends) == 0 && write(ends[1], data, sizeof data) == (ssize_t)sizeof data);
    int keep = dup(fd); /* without close-on-exec, whatever the driver gave */
    CHECK(run_importer(argv[0], keep, ends[0]) == 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(count_wrong(stream, blocks[i], WORDS, 100 + i) == 0, "block %u", i);
        OK(cuMemFreeAsync(blocks[i], stream));
    }
    CUdeviceptr plain;
    OK(cuMemAlloc(&plain, 4096));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data[0], plain));
    OK(cuMemFree(plain));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    return 0;
}
