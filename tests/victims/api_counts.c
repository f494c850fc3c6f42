/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what a program holds, held at most, and what is reserved for it, by libzone's own calls:
 * of the current device or another one, from any thread, and after a reset of the peaks.
 */
#include "tools.h"
#include "zone_api.h"

static struct zone_api api;

static void expect(int device, size_t allocated, size_t peak, size_t reserved)
{
    size_t got[] = {zone_api_bytes(api.memory_allocated, device, ZONE_OK),
                    zone_api_bytes(api.max_memory_allocated, device, ZONE_OK),
                    zone_api_bytes(api.memory_reserved, device, ZONE_OK)};
    CHECK(got[0] == allocated && got[1] == peak && got[2] == reserved,
          "device %d: %zu allocated, %zu peak, %zu reserved", device, got[0], got[1], got[2]);
}

static void without_a_context(void *arg)
{
    (void)arg;
    OK(cuCtxSetCurrent(NULL));
    zone_api_all(&api, -1, ZONE_ERROR_DEVICE);
    expect(0, 12 * MIB, 12 * MIB, 12 * MIB);
}

static void unknown_devices(void)
{
    int count;
    OK(cuDeviceGetCount(&count));
    for (int device = count; device < 34; device++) {
        zone_api_all(&api, device, ZONE_ERROR_DEVICE);
    }
    zone_api_all(&api, -2, ZONE_ERROR_DEVICE);
}

/* A context of another device, which has no pool until it allocates. */
static void other_device(void)
{
    CUdeviceptr ptr;
    CUcontext before;
    OK(cuCtxGetCurrent(&before));
    expect(1, 0, 0, 0);
    new_context(1);
    expect(-1, 0, 0, 0);
    OK(cuMemAlloc(&ptr, 4 * MIB));
    expect(-1, 4 * MIB, 4 * MIB, 4 * MIB);
    expect(1, 4 * MIB, 4 * MIB, 4 * MIB);
    OK(api.reset_peak_memory_stats(-1));
    OK(cuMemFree(ptr));
    OK(cuCtxSetCurrent(before));
}

int main(void)
{
    int count;
    CUdeviceptr ptr[3];
    victim_start();
    if (!zone_api_load(&api)) {
        return 0;
    }
    expect(-1, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&ptr[i], 4 * MIB - 100)); /* sizes are those of the classes */
    }
    expect(-1, 12 * MIB, 12 * MIB, 12 * MIB);
    in_thread(without_a_context, NULL);
    unknown_devices();
    OK(cuMemFree(ptr[0]));
    OK(cuMemFree(ptr[1]));
    expect(-1, 4 * MIB, 12 * MIB, 12 * MIB);
    OK(cuDeviceGetCount(&count));
    if (count > 1) {
        other_device();
    }
    expect(0, 4 * MIB, 12 * MIB, 12 * MIB);
    OK(api.reset_peak_memory_stats(-1));
    expect(0, 4 * MIB, 4 * MIB, 12 * MIB);
    OK(cuMemAlloc(&ptr[0], 4 * MIB));
    OK(cuMemFree(ptr[0]));
    expect(0, 4 * MIB, 8 * MIB, 12 * MIB);
    OK(cuMemFree(ptr[2]));
    return 0;
}
