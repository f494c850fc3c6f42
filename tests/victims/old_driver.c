/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a driver without context events (before 12.5; the row says which). There the free of a
 * large block waits for the context, as natively, and no function is called that the driver lacks.
 */
#include "tools.h"

#include <dlfcn.h>

#define LIMIT_MS 30.0

int main(void)
{
    int version = 0;
    victim_start();
    OK(cuDriverGetVersion(&version));
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(version < 12050 && handle && !dlsym(handle, "cuCtxRecordEvent"), "version %d", version);
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    uint64_t waits = driver_calls("cuCtxSynchronize");
    CUdeviceptr ptr;
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&ptr, 2 * MIB));
        struct gate gate = gate_close(side, LIMIT_MS);
        launch_fill(side, ptr, 1024, 3);
        OK(cuMemFree(ptr));
        CHECK(gate_outcome(gate) == GATE_GAVE_UP, "the free did not wait");
    }
    uint64_t allocs = driver_allocs();
    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc(&ptr, 2 * MIB));
        OK(cuMemFree(ptr));
    }
    OK(cuCtxSynchronize());
    CHECK(driver_calls("cuCtxRecordEvent") == 0);
    if (pooled()) {
        CHECK(driver_allocs() == allocs, "not pooled");
        CHECK(driver_calls("cuCtxSynchronize") - waits >= 4, "no wait in the free");
    }
    return 0;
}
