/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program times its kernels with events and never synchronises, because the free at the
 * end of each round does. cuEventElapsedTime must not say "not ready" where natively it would not.
 */
#include "victim.h"

/* The answer does not wait for the end of a capture that another stream is in. */
static void beside_a_capture(CUstream stream, CUevent start, CUevent end)
{
    CUstream capturing = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr;
    CUgraph graph;
    float ms = -1;
    OK(cuMemAlloc(&ptr, 4 * MIB));
    OK(cuEventRecord(start, stream));
    launch_spin(stream, 5);
    OK(cuEventRecord(end, stream));
    OK(cuMemFree(ptr));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms >= 4 && ms < 1000, "%f ms", (double)ms);
    OK(cuStreamEndCapture(capturing, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(capturing));
}

int main(int argc, char **argv)
{
    (void)argv;
    CUevent start;
    CUevent end;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (int round = 0; round < 6; round++) {
        CUdeviceptr ptr;
        float ms = -1;
        OK(cuMemAlloc(&ptr, round % 2 ? 4096 : 4 * MIB));
        OK(cuEventRecord(start, stream));
        launch_spin(stream, 5);
        OK(cuEventRecord(end, stream));
        OK(cuMemFree(ptr));
        OK(cuEventElapsedTime(&ms, start, end));
        CHECK(ms >= 4 && ms < 1000, "%f ms", (double)ms);
    }
    beside_a_capture(stream, start, end);
    /* Where natively it is not ready, it must stay so: no free came after this kernel. */
    CUdeviceptr last;
    OK(cuMemAlloc(&last, argc > 1 ? 4096 : 4 * MIB));
    OK(cuMemFree(last));
    launch_spin(stream, 20);
    OK(cuEventRecord(end, stream));
    float ms;
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    return 0;
}
