/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: native answers that need another thread or process: a thread without a context, a forked
 * child, legacy IPC with a child that was exec'ed.
 */
#include "victim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void *without_context(void *data)
{
    CUdeviceptr own = 0;
    CUdeviceptr *good = data;
    int64_t malloced = cuMemAlloc(&own, 4096);
    int64_t freed = cuMemFree(*good);
    *good = (CUdeviceptr)(malloced * 1000 + freed);
    return NULL;
}

static int64_t bare_thread(void)
{
    pthread_t thread;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 4096));
    CHECK(pthread_create(&thread, NULL, without_context, &ptr) == 0);
    pthread_join(thread, NULL);
    return (int64_t)ptr;
}

static int64_t exit_code(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int64_t forked(void)
{
    void *ptr;
    OK(cudaMalloc(&ptr, 4096));
    pid_t child = fork();
    if (child == 0) {
        void *own = NULL;
        int malloced = cudaMalloc(&own, 4096);
        int freed = cudaFree(ptr);
        _exit(malloced * 10 + freed);
    }
    int64_t answer = exit_code(child);
    OK(cudaFree(ptr));
    return answer;
}

#define BLOCKS 4

/* The child: opens each handle and counts those that do not hold what the parent wrote. */
static int importer(const char *path)
{
    cudaIpcMemHandle_t handles[BLOCKS + 1];
    FILE *file = fopen(path, "re");
    int wrong = 0;
    CHECK(file && fread(handles, sizeof handles, 1, file) == 1);
    fclose(file);
    victim_start();
    for (int i = 0; i < BLOCKS; i++) {
        void *ptr;
        unsigned char byte = 0;
        OK(cudaIpcOpenMemHandle(&ptr, handles[i], cudaIpcMemLazyEnablePeerAccess));
        OK(cudaMemcpy(&byte, ptr, 1, cudaMemcpyDeviceToHost));
        wrong += byte != 0x11 * (i + 1);
        OK(cudaMemset(ptr, 0x99, 16));
        OK(cudaDeviceSynchronize());
        OK(cudaIpcCloseMemHandle(ptr));
    }
    return wrong;
}

static int64_t spawn(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, path, (char *)NULL);
        _exit(99);
    }
    return exit_code(child);
}

/* Blocks wrong in the child, blocks in which its writes did not arrive, interior handle differs. */
static int64_t ipc(void)
{
    const size_t sizes[BLOCKS] = {4096, 4096, 300 * KIB, 8 * MIB};
    cudaIpcMemHandle_t handles[BLOCKS + 1];
    char *blocks[BLOCKS];
    char path[] = "/tmp/victim-ipc-XXXXXX";
    int fd = mkstemp(path);
    int64_t silent = 0;
    for (int i = 0; i < BLOCKS; i++) {
        void *first; /* so that the block comes from a pool, if there is one */
        OK(cudaMalloc(&first, sizes[i]));
        OK(cudaFree(first));
        OK(cudaMalloc((void **)&blocks[i], sizes[i]));
        OK(cudaMemset(blocks[i], 0x11 * (i + 1), sizes[i]));
        OK(cudaIpcGetMemHandle(&handles[i], blocks[i]));
    }
    OK(cudaIpcGetMemHandle(&handles[BLOCKS], blocks[3] + 4096));
    OK(cudaDeviceSynchronize());
    CHECK(write(fd, handles, sizeof handles) == (ssize_t)sizeof handles);
    close(fd);
    int64_t wrong = spawn(path);
    unlink(path);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char byte = 0;
        OK(cudaMemcpy(&byte, blocks[i], 1, cudaMemcpyDeviceToHost));
        silent += byte != 0x99;
        OK(cudaFree(blocks[i]));
    }
    bool same = memcmp(&handles[3], &handles[BLOCKS], sizeof handles[0]) == 0;
    return wrong * 100 + silent * 10 + !same;
}

static int64_t ipc_own(void)
{
    cudaIpcMemHandle_t handle;
    void *ptr;
    void *opened;
    OK(cudaMalloc(&ptr, 4096));
    OK(cudaIpcGetMemHandle(&handle, ptr));
    int64_t code = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
    OK(cudaFree(ptr));
    cudaGetLastError();
    return code != 0;
}

static const struct answer rows[] = {
    {"thread without a context: cuMemAlloc, cuMemFree", bare_thread, 201000, ALWAYS},
    {"child after fork: cudaMalloc, cudaFree", forked, 33, ALWAYS},
    {"legacy IPC: wrong in the child, not written back, interior differs", ipc, 0, ALWAYS},
    {"legacy IPC: a process does not open its own handle", ipc_own, 1, ALWAYS},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        return importer(argv[1]);
    }
    victim_start();
    return victim_answers(rows, sizeof rows / sizeof rows[0]) > 0;
}
