/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program changes settings while it runs. Those that can change hold from then on, for
 * contexts that are there and those to come; others are refused with one line each and change
 * nothing, and the rest of the text applies.
 */
#include "tools.h"
#include "zone_api.h"

#include <stdio.h>
#include <string.h>

enum { BLOCKS = 8 };

static struct zone_api api;

static void take_and_free(void)
{
    CUdeviceptr ptr[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemAlloc(&ptr[i], 4 * MIB));
    }
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemFree(ptr[i]));
    }
}

static size_t kept(void)
{
    return zone_api_bytes(api.memory_reserved, -1, ZONE_OK);
}

static void bounds_change(void)
{
    take_and_free();
    CHECK(kept() == BLOCKS * 4 * MIB);
    OK(api.set_allocator_settings("max_cached_mb:8"));
    CHECK(kept() == BLOCKS * 4 * MIB); /* until the next free */
    take_and_free();
    CHECK(kept() == 8 * MIB, "%zu", kept());
    EXPECT(ZONE_ERROR_SETTINGS, api.set_allocator_settings("free_order:sync,max_cached_mb:16"));
    take_and_free();
    CHECK(kept() == 16 * MIB, "%zu", kept());
    OK(cuDevicePrimaryCtxReset(0)); /* a new pool */
    victim_forget_kernels();
    gates_forget();
    victim_start();
    take_and_free();
    CHECK(kept() == 16 * MIB, "%zu", kept());
    OK(api.set_allocator_settings("max_cached_mb:unlimited"));
    take_and_free();
    CHECK(kept() == BLOCKS * 4 * MIB, "%zu", kept());
}

/* Natively every free waits: so does this one with nothing allowed to be pending. */
static void throttle_changes(void)
{
    CUdeviceptr ptr;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(api.set_allocator_settings("max_pending_mb:0"));
    OK(cuMemAlloc(&ptr, 4 * MIB));
    struct gate gate = gate_close(stream, 100 * slowness());
    OK(cuMemFree(ptr));
    CHECK(gate_outcome(gate) == GATE_GAVE_UP, "the free did not wait");
    OK(api.set_allocator_settings("max_pending_mb:auto"));
    OK(cuMemAlloc(&ptr, 4 * MIB));
    gate = gate_close(stream, 1000 * slowness());
    OK(cuMemFree(ptr));
    CHECK(gate_outcome(gate) == GATE_CLOSED, "the free waited");
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
}

static void refused(bool started)
{
    if (started) {
        CUdeviceptr ptr;
        victim_start();
        OK(cuMemAlloc(&ptr, 4096));
    }
    EXPECT(ZONE_ERROR_SETTINGS, api.set_allocator_settings("oom_wait_ms:5,free_order:sync"));
    EXPECT(ZONE_ERROR_SETTINGS, api.set_allocator_settings("nonsense"));
    OK(api.set_allocator_settings("backend:native")); /* as it is */
}

int main(int argc, char **argv)
{
    int status;
    if (!zone_api_load(&api)) {
        return 0;
    }
    if (argc > 1) {
        refused(strcmp(argv[1], "started") == 0);
        return 0;
    }
    static const char *const when[] = {"started", "idle"};
    for (int i = 0; i < 2; i++) {
        static const char line[] = "zone_set_allocator_settings: free_order at 14: cannot be "
                                   "changed while the program runs; using the default (auto)";
        CHECK(lines_of_child(argv[0], when[i], line, &status) == 1 && status == 0, "%s", when[i]);
        CHECK(lines_of_child(argv[0], when[i], "zone_set_allocator_settings", &status) == 2);
        CHECK(lines_of_child(argv[0], when[i], "options: oom_wait_ms:5", &status) == (i == 0));
    }
    victim_start();
    bounds_change();
    throttle_changes();
    return 0;
}
