/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the program reads managed memory on the host after a free of something else, and relies
 * on that free having waited for the kernel that wrote it.
 */
#include "victim.h"

int main(void)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 5; round++) {
        CUdeviceptr managed;
        CUdeviceptr other;
        uint32_t value = 40 + (uint32_t)round;
        OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
        OK(cuMemAlloc(&other, round % 2 ? 4096 : 4 * MIB));
        launch_spin(stream, 10);
        launch_fill(stream, managed, 1024, value);
        OK(cuMemFree(other));
        uint32_t seen = read_word((const uint32_t *)(uintptr_t)managed + 1023);
        CHECK(seen == value, "the free did not wait: %u instead of %u", seen, value);
        OK(cuMemFree(managed));
    }
    return 0;
}
