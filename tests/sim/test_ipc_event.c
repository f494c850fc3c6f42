/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: one process waits for another's event, on the host and on a stream,
 * and sees the memory that the other wrote before it.
 */
#include "../victims/victim.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 1024

struct letter {
    CUipcEventHandle event;
    CUipcMemHandle memory;
};

/* The child reads the letter, waits for the event and checks what came before it. */
static int importer(int from)
{
    struct letter letter;
    CUevent event;
    CUdeviceptr memory;
    CHECK(read(from, &letter, sizeof letter) == (ssize_t)sizeof letter);
    victim_start();
    OK(cuIpcOpenEventHandle(&event, letter.event));
    OK(cuIpcOpenMemHandle(&memory, letter.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamWaitEvent(stream, event, 0));
    CHECK(count_wrong(stream, memory, WORDS, 7) == 0, "the stream did not wait");
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuIpcCloseMemHandle(memory));
    OK(cuEventDestroy(event));
    return 0;
}

int main(int argc, char **argv)
{
    int pipes[2];
    int status;
    struct letter letter;
    CUevent event;
    CUevent plain;
    CUdeviceptr memory;
    CHECK(pipe(pipes) == 0);
    if (argc > 1) {
        return importer(STDIN_FILENO);
    }
    pid_t child = fork(); /* before the driver is there, so that the child may use it */
    if (child == 0) {
        dup2(pipes[0], STDIN_FILENO);
        execl(argv[0], argv[0], "importer", (char *)NULL);
        _exit(99);
    }
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&memory, WORDS * 4));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(&letter.event, plain));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(event));
    OK(cuIpcGetEventHandle(&letter.event, event));
    OK(cuIpcGetMemHandle(&letter.memory, memory));
    launch_spin(stream, 40);
    launch_fill(stream, memory, WORDS, 7);
    OK(cuEventRecord(event, stream));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CHECK(write(pipes[1], &letter, sizeof letter) == (ssize_t)sizeof letter);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
    OK(cuEventQuery(event));
    return 0;
}
