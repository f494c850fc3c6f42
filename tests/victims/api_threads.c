/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: threads allocate and free, contexts come and go, and other threads count, reset, empty
 * the cache and change settings meanwhile. Nobody hangs, nothing in use is given back, and in the
 * end the numbers are right.
 */
#include "tools.h"
#include "zone_api.h"

enum { CHURNERS = 2, ASKERS = 2, ROUNDS = 300, WORDS = 1024 };

static struct zone_api api;
static uint32_t stop; /* atomic */

static void churn(void *arg)
{
    uint32_t value = (uint32_t)(uintptr_t)arg;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < ROUNDS / slowness(); i++) {
        CUdeviceptr ptr[2];
        OK(cuMemAlloc(&ptr[0], 4096 << i % 4));
        OK(cuMemAlloc(&ptr[1], MIB << i % 3));
        launch_fill(stream, ptr[0], WORDS, value + i);
        launch_fill(stream, ptr[1], WORDS, value - i);
        CHECK(count_wrong(stream, ptr[0], WORDS, value + i) == 0);
        CHECK(count_wrong(stream, ptr[1], WORDS, value - i) == 0);
        OK(cuMemFree(ptr[1]));
        OK(cuMemFree(ptr[0]));
    }
}

static void contexts(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 20 / slowness() + 1; i++) {
        CUdeviceptr ptr;
        CUcontext before;
        OK(cuCtxGetCurrent(&before));
        CUcontext context = new_context(0);
        OK(cuMemAlloc(&ptr, 2 * MIB));
        OK(cuMemFree(ptr));
        OK(cuMemAlloc(&ptr, 4096));
        OK(cuCtxDestroy(context));
        OK(cuCtxSetCurrent(before));
    }
}

static void ask(void *arg)
{
    static const char *const settings[] = {"max_cached_mb:2,min_free_mb:1", "max_pending_mb:0",
                                           "max_cached_mb:unlimited,max_pending_mb:auto"};
    for (unsigned i = 0; !read_word(&stop); i++) {
        size_t bytes;
        OK(api.memory_allocated((int)(i % 2) - 1, &bytes));
        OK(api.max_memory_allocated(-1, &bytes));
        OK(api.reset_peak_memory_stats(0));
        OK(api.memory_reserved(0, &bytes));
        if (arg) {
            OK(api.empty_cache(0, NULL));
            OK(api.set_allocator_settings(settings[i % 3]));
        }
    }
}

int main(void)
{
    struct worker churners[CHURNERS];
    struct worker askers[ASKERS];
    struct worker other;
    CUdeviceptr held;
    victim_start();
    if (!zone_api_load(&api)) {
        return 0;
    }
    OK(cuMemAlloc(&held, 4 * MIB));
    for (uintptr_t i = 0; i < ASKERS; i++) {
        worker_start(&askers[i], ask, (void *)i);
    }
    worker_start(&other, contexts, NULL);
    for (uintptr_t i = 0; i < CHURNERS; i++) {
        worker_start(&churners[i], churn, (void *)(i * 10000 + 5000));
    }
    for (int i = 0; i < CHURNERS; i++) {
        worker_join(&churners[i]);
    }
    worker_join(&other);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < ASKERS; i++) {
        worker_join(&askers[i]);
    }
    OK(api.reset_peak_memory_stats(0));
    OK(api.empty_cache(0, NULL));
    CHECK(zone_api_bytes(api.memory_allocated, 0, ZONE_OK) == 4 * MIB);
    CHECK(zone_api_bytes(api.max_memory_allocated, 0, ZONE_OK) == 4 * MIB);
    CHECK(zone_api_bytes(api.memory_reserved, 0, ZONE_OK) == 4 * MIB);
    OK(cuMemFree(held));
    return 0;
}
