/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the first handle for another process is asked for at a bad moment. libzone then has to
 * find out how this driver writes handles, and must neither disturb the program nor draw a
 * conclusion for good. Usage: first_handle memory|capture.
 */
#include "tools.h"

#include <string.h>

int main(int argc, char **argv)
{
    const char *moment = argc > 1 ? argv[1] : "";
    CUipcMemHandle handle;
    CUipcMemHandle again;
    CUdeviceptr ptr;
    CUdeviceptr neighbour;
    victim_start();
    OK(cuMemAlloc(&neighbour, 4096));
    OK(cuMemAlloc(&ptr, 4096));
    if (strcmp(moment, "memory") == 0) {
        /* The program learns of no memory here: it asked for none. */
        if (under_zone()) {
            driver_fail("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
            EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, ptr));
        }
        OK(cuIpcGetMemHandle(&handle, ptr));
    } else {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CUgraph graph;
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuIpcGetMemHandle(&handle, ptr));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuIpcGetMemHandle(&again, ptr));
    CHECK(memcmp(&handle, &again, sizeof(handle)) == 0, "two handles of one allocation");
    OK(cuIpcGetMemHandle(&again, neighbour));
    CHECK(memcmp(&handle, &again, sizeof(handle)) != 0, "one handle of two allocations");
    OK(cuMemFree(ptr));
    OK(cuMemFree(neighbour));
    return 0;
}
