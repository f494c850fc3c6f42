/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the plain way through both interfaces. Allocate, fill, check, copy back, free.
 */
#include "victim.h"

int main(void)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (size_t bytes = 4; bytes <= 16 * MIB; bytes *= 4) {
        CUdeviceptr ptr;
        uint32_t first = 0;
        OK(cuMemAlloc(&ptr, bytes));
        launch_fill(stream, ptr, bytes / 4, 7);
        CHECK(count_wrong(stream, ptr, bytes / 4, 7) == 0, "%zu bytes", bytes);
        OK(cuMemcpyDtoH(&first, ptr, sizeof first));
        CHECK(first == 7, "read %u", first);
        OK(cuMemFree(ptr));
    }
    void *memory;
    uint32_t words[256];
    OK(cudaMalloc(&memory, sizeof words));
    OK(cudaMemset(memory, 0x11, sizeof words));
    OK(cudaMemcpy(words, memory, sizeof words, cudaMemcpyDeviceToHost));
    CHECK(words[255] == 0x11111111u, "read %x", words[255]);
    OK(cudaFree(memory));
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    return 0;
}
