/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program whose sizes never repeat, so that what it freed is of no use to it, and who
 * wants the rest of the GPU for other things. It says how much of the device was taken in the end.
 */
#include "tools.h"

enum { SIZES = 200, WORDS = 256 };

#define MOST (64 * MIB)

int main(void)
{
    CUdeviceptr ptr;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&ptr, MIB));
    size_t start = driver_bytes();
    for (size_t i = 0; i < SIZES; i++) {
        CUdeviceptr again;
        OK(cuMemAlloc(&again, 5 * MIB + i * 8 * KIB));
        launch_fill(stream, again, WORDS, (uint32_t)i);
        CHECK(count_wrong(stream, again, WORDS, (uint32_t)i) == 0);
        OK(cuMemFree(again));
    }
    size_t more = driver_bytes() - start;
    OK(cuMemFree(ptr));
    CHECK(more <= MOST, "%zu MiB are taken for nothing", more / MIB);
    return 0;
}
