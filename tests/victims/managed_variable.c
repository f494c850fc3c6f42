/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: like managed_after_free, with a __managed__ variable of a module in place of allocated
 * memory. The simulated GPU has no variables, so this runs on a real one only.
 */
#include "victim.h"

static const char ptx[] = ".version 7.0\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .global .attribute(.managed) .align 4 .b32 words[1024];\n";

int main(void)
{
    CUmodule module;
    CUdeviceptr variable;
    size_t bytes;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetGlobal(&variable, &bytes, module, "words"));
    CHECK(bytes == 4096, "%zu bytes", bytes);
    for (uint32_t round = 0; round < 5; round++) {
        CUdeviceptr other;
        uint32_t value = 40 + round;
        OK(cuMemAlloc(&other, round % 2 ? 4096 : 4 * MIB));
        launch_spin(stream, 10);
        launch_fill(stream, variable, 1024, value);
        OK(cuMemFree(other));
        uint32_t seen = read_word((const uint32_t *)(uintptr_t)variable + 1023);
        CHECK(seen == value, "the free did not wait: %u instead of %u", seen, value);
    }
    return 0;
}
