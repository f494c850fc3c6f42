/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that adds to memory it never cleared. Natively it finds zeros in each
 * allocation of 2 MiB and more (facts of a driver, not a promise of CUDA); a pool hands out old
 * bytes.
 */
#include "tools.h"

enum { ROUNDS = 6, WORDS = 64 };

int main(void)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr counters;
        OK(cuMemAlloc(&counters, 4 * MIB));
        for (int i = 0; i < 3; i++) {
            launch_add(stream, counters, WORDS, 1);
        }
        uint32_t wrong = count_wrong(stream, counters, WORDS, 3);
        CHECK(wrong == 0, "round %d: %u counters did not start at 0", round, wrong);
        OK(cuMemFree(counters));
        OK(cuCtxSynchronize());
    }
    return 0;
}
