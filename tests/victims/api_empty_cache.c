/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program empties the cache: freed memory goes back once the work of before is done, what
 * it holds stays, a capture lives on, and after a fault the call returns the driver's code.
 */
#include "tools.h"
#include "zone_api.h"

enum { BLOCKS = 4, SMALL = 64 };

static struct zone_api api;

static void pending_and_small(void)
{
    CUdeviceptr large[BLOCKS];
    CUdeviceptr small[SMALL];
    CUdeviceptr live;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&live, 2 * MIB));
    launch_fill(stream, live, 1024, 5);
    OK(cuStreamSynchronize(stream));
    size_t start = driver_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemAlloc(&large[i], 4 * MIB));
    }
    for (int i = 0; i < SMALL; i++) {
        OK(cuMemAlloc(&small[i], 4096));
    }
    struct gate gate = gate_close(stream, 200 * slowness());
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemFree(large[i]));
    }
    for (int i = 0; i < SMALL; i++) {
        OK(cuMemFree(small[i]));
    }
    size_t bytes = zone_api_bytes(api.memory_reserved, 0, ZONE_OK) - 2 * MIB;
    CHECK(!frees_run_ahead() || gate_outcome(gate) == GATE_CLOSED);
    size_t given = 0;
    OK(api.empty_cache(-1, &given));
    CHECK(gate_outcome(gate) == GATE_GAVE_UP, "it did not wait");
    CHECK(given == bytes && given >= BLOCKS * 4 * MIB, "%zu of %zu bytes", given, bytes);
    CHECK(driver_bytes() <= start, "%zu bytes stay", driver_bytes() - start);
    CHECK(zone_api_bytes(api.memory_reserved, 0, ZONE_OK) == 2 * MIB);
    uint64_t records = driver_calls("cuCtxRecordEvent");
    CHECK(zone_api_bytes(api.empty_cache, 0, ZONE_OK) == 0);
    CHECK(driver_calls("cuCtxRecordEvent") == records);
    CHECK(count_wrong(stream, live, 1024, 5) == 0);
    OK(cuMemFree(live));
}

static void beside_a_capture(void)
{
    CUgraph graph = NULL;
    CUdeviceptr ptr;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&ptr, 4 * MIB));
    OK(cuMemFree(ptr));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    uint64_t frees = driver_frees();
    zone_api_bytes(api.empty_cache, 0, ZONE_ERROR_CAPTURE);
    CHECK(driver_frees() == frees);
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph);
    OK(cuGraphDestroy(graph));
    CHECK(zone_api_bytes(api.empty_cache, 0, ZONE_OK) == 4 * MIB);
    CHECK(zone_api_bytes(api.memory_reserved, 0, ZONE_OK) == 0);
}

static void no_context(void *arg)
{
    (void)arg;
    OK(cuCtxSetCurrent(NULL));
    zone_api_bytes(api.empty_cache, -1, ZONE_ERROR_DEVICE);
    size_t given = 0;
    OK(api.empty_cache(0, &given));
    CHECK(given == 8 * MIB, "%zu", given);
}

static void after_a_fault(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 4 * MIB));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemFree(ptr));
    launch_fault(stream);
    zone_api_bytes(api.empty_cache, -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    zone_api_bytes(api.empty_cache, 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(zone_api_bytes(api.memory_reserved, -1, ZONE_OK) == 4 * MIB);
}

int main(void)
{
    CUdeviceptr ptr;
    victim_start();
    if (!zone_api_load(&api)) {
        return 0;
    }
    pending_and_small();
    OK(api.empty_cache(0, NULL));
    beside_a_capture();
    OK(cuMemAlloc(&ptr, 8 * MIB));
    OK(cuMemFree(ptr));
    in_thread(no_context, NULL);
    after_a_fault();
    return 0;
}
