/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that reads on the host what a kernel writes to mapped memory, after nothing but
 * a cudaFree of something else: that waits natively for everything.
 */
#include "tools.h"

enum { WORDS = 16 };

int main(void)
{
    CUdeviceptr scratch;
    CUdeviceptr seen;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *words = host_words(WORDS);
    OK(cuMemHostGetDevicePointer(&seen, words, 0));
    for (uint32_t round = 1; round < 4; round++) {
        OK(cuMemAlloc(&scratch, 4 * MIB));
        launch_spin(stream, 30);
        launch_fill(stream, seen, WORDS, round);
        OK(cuMemFree(scratch));
        CHECK(read_word(&words[WORDS - 1]) == round, "round %u: read too early", round);
    }
    return 0;
}
