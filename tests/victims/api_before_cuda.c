/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program asks libzone before it uses CUDA. All is 0 and the driver learns nothing of it;
 * what is set then holds from the first allocation on. Under ZONE_DISABLE every call says so.
 */
#include "tools.h"
#include "zone_api.h"

#include <stdlib.h>

static const char *const driver_names[] = {
    "cuInit", "cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetCount", "cuDevicePrimaryCtxGetState",
};

int main(void)
{
    struct zone_api api;
    CUdeviceptr ptr;
    if (!zone_api_load(&api)) {
        return 0;
    }
    const char *disabled = getenv("ZONE_DISABLE");
    int code = disabled ? ZONE_ERROR_DISABLED : ZONE_OK;
    for (int device = -1; device < 32; device++) {
        zone_api_all(&api, device, code);
    }
    zone_api_all(&api, 32, disabled ? code : ZONE_ERROR_DEVICE);
    zone_api_all(&api, -2, disabled ? code : ZONE_ERROR_DEVICE);
    EXPECT(code, api.set_allocator_settings("max_cached_mb:64"));
    EXPECT(code, api.set_allocator_settings("min_free_mb:64,max_cached_mb:0"));
    for (size_t i = 0; i < sizeof driver_names / sizeof driver_names[0]; i++) {
        CHECK(driver_calls(driver_names[i]) == 0, "%s", driver_names[i]);
    }
    victim_start();
    size_t start = driver_bytes();
    OK(cuMemAlloc(&ptr, 8 * MIB));
    if (!disabled) {
        CHECK(zone_api_bytes(api.memory_allocated, -1, ZONE_OK) == 8 * MIB);
    }
    OK(cuMemFree(ptr));
    CHECK(driver_bytes() == start, "%zu bytes stay", driver_bytes() - start);
    if (disabled) {
        zone_api_all(&api, -1, code);
        zone_api_all(&api, 0, code);
    }
    return 0;
}
