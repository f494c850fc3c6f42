/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls that libzone makes by itself fail, while a program allocates, frees, asks, captures
 * and ends contexts. The program sees that code at most once a failure and no other, or nothing at
 * all; nothing is lost. See calls.h. Usage: fail_inside [NAME WAY].
 */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12, WORDS = 1024, MOST_NTH = 3, MANY = 64 };

static const char *const names[] = {
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemGetAddressRange_v2",
    "cuPointerGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxSynchronize",
    "cuCtxRecordEvent",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuDevicePrimaryCtxGetState",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuStreamIsCapturing",
    "cuStreamIsCapturing_ptsz",
    "cuStreamGetCtx",
    "cuStreamGetId",
    "cuStreamGetId_ptsz",
    "cuStreamWaitEvent",
    "cuDeviceGetMemPool",
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuMemsetD8Async",
    "cuEventRecord",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolSetAttribute",
    "cuMemPoolGetAttribute",
    "cuMemPoolTrimTo",
    "cuStreamSynchronize",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
};

/* From here on libzone calls them only if it fills memory. */
static const char first_for_fills[] = "cuCtxGetStreamPriorityRange";

/* And from here on only with the driver's own pool. */
static const char first_for_async[] = "cuDeviceGetDefaultMemPool";

static int injected;
static unsigned injections, seen;
static bool lost;
static bool launches = true; /* launching asks for the current context, as libzone does */

/* True if the call went well. */
static bool fine(int code)
{
    CHECK(code == 0 || code == injected, "the program got %d, the driver said %d", code, injected);
    seen += code != 0;
    CHECK(lost || seen <= injections, "%d came more often than the driver said it", injected);
    return code == 0;
}

/* A free that failed: the memory is the program's, or the pool's, but not the driver's to take. */
static void freed(CUdeviceptr ptr, int code)
{
    if (!fine(code) && !lost) {
        int again = (int)cuMemFree_v2(ptr);
        CHECK(again == 0 || again == CUDA_ERROR_INVALID_VALUE || again == injected, "%d", again);
    }
}

static void free_it(CUdeviceptr ptr)
{
    if (ptr != 0) {
        freed(ptr, (int)cuMemFree_v2(ptr));
    }
}

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr ptr = 0;
    while (!fine((int)cuMemAlloc_v2(&ptr, bytes)) && !lost) {
    }
    return ptr;
}

/* Two owners of the same memory would see each other's words. */
static void pair(size_t bytes, uint32_t value)
{
    CUdeviceptr first = get(bytes);
    CUdeviceptr second = get(bytes);
    if (lost) {
        return;
    }
    if (launches) {
        launch_fill(scene.stream, first, WORDS, value);
        launch_fill(scene.stream, second, WORDS, ~value);
        CHECK(count_wrong(scene.stream, first, WORDS, value) == 0);
    }
    CUdeviceptr base = 0;
    if (fine((int)cuMemGetAddressRange_v2(&base, NULL, second))) {
        CHECK(base == second);
    }
    fine((int)cuMemGetAddressRange_v2(&base, NULL, second + bytes / 2));
    free_it(first);
    freed(second, (int)cuMemFreeAsync(second, scene.stream));
}

/* More than fits beside what is cached: the pool has to give back. Fills touch every page, so the
 * device is smaller with them, see main. */
static void press(void)
{
    size_t unit = configured("zero_fill") ? 3 : 10;
    for (size_t units = 4; units <= 10; units += 3) {
        free_it(get(units * unit * MIB));
    }
}

static CUdeviceptr get_async(size_t bytes, CUstream stream)
{
    CUdeviceptr ptr = 0;
    while (!fine((int)(stream ? cuMemAllocAsync(&ptr, bytes, stream)
                              : cuMemAllocAsync_ptsz(&ptr, bytes, stream))) &&
           !lost) {
    }
    return ptr;
}

/* In stream order; the second time the driver has no memory left, so one stream waits for the
 * other.
 */
static void ordered(void)
{
    CUdeviceptr ptr = get_async(8 * KIB, scene.stream);
    freed(ptr, (int)cuMemFreeAsync(ptr, scene.stream));
    if (!pooled() || configured("zero_fill") || configured("cudaMallocAsync")) {
        return; /* a driver may refuse the rest; to fill it takes too long */
    }
    ptr = get_async(70 * MIB, scene.stream);
    if (launches && !lost) {
        launch_spin(scene.stream, 2);
    }
    freed(ptr, (int)cuMemFreeAsync(ptr, scene.stream));
    ptr = get_async(70 * MIB, NULL);
    freed(ptr, (int)cuMemFreeAsync_ptsz(ptr, NULL));
}

/* While the host can watch memory, frees wait. */
static void watched(void)
{
    CUdeviceptr ptr = 0;
    if (fine((int)cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL))) {
        if (launches) {
            launch_spin(scene.stream, 2);
        }
        free_it(get(2 * MIB));
        free_it(ptr);
    }
}

/* In a context of its own: a pool is made, and ends. */
static void elsewhere(void)
{
    CUcontext context;
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUdeviceptr ptr = get(2 * MIB);
    free_it(ptr);
    free_it(get(4096));
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSetCurrent(scene.context));
}

/* Memory taken and given back on each kind of capturing stream; the capture has to end well. */
static void captured(CUstream stream, bool ptsz)
{
    CUgraph graph = NULL;
    CUdeviceptr held = get(2 * MIB);
    OK(ptsz ? cuStreamBeginCapture_v2_ptsz(stream, CU_STREAM_CAPTURE_MODE_RELAXED)
            : cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    free_it(get(2 * MIB));
    free_it(held);
    OK(ptsz ? cuStreamEndCapture_ptsz(stream, &graph) : cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    CUdeviceptr ptr = get(2 * MIB);
    freed(ptr, (int)cuMemFreeAsync_ptsz(ptr, NULL));
}

static void info(void)
{
    size_t left = 0;
    fine((int)cuMemGetInfo_v2(&left, NULL));
}

static void work(void)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        pair(i % 2 ? 2 * MIB : 8 * KIB, i);
    }
    elsewhere();
    ordered();
    watched();
    captured(scene.stream, false);
    captured(NULL, true);
    press();
    info();
    while (!fine((int)cuCtxSynchronize())) {
    }
}

/* When a device is first used. */
static bool at_first_only(const char *name)
{
    return strcmp(name, "cuDeviceGetName") == 0 || strcmp(name, "cuDeviceGetUuid_v2") == 0 ||
           strstr(name, "Priority");
}

/* When stream-ordered memory of a device is first asked for. */
static bool at_first_ordered_only(const char *name)
{
    return strstr(name, "MemPool");
}

static void start(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&scene.context));
    scene.stream = new_stream(CU_STREAM_NON_BLOCKING);
}

/* The first allocation of the process, in which the pool is made. */
static void run_first(const char *name)
{
    start();
    injected = CUDA_ERROR_UNKNOWN;
    injections = 1;
    driver_fail(name, 1, injected);
    uint64_t calls = driver_calls(name);
    free_it(get(2 * MIB));
    CHECK(driver_calls(name) > calls || !pooled() || !at_first_only(name));
    work();
    driver_fail_none();
    work();
}

/* What each failure lost would add up to more than the events that libzone may hold. */
static void fail_often(const char *name)
{
    uint64_t before = call_lives().events;
    injected = CUDA_ERROR_INVALID_VALUE;
    injections = seen = 0;
    for (unsigned i = 0; i < MANY; i++) {
        injections++;
        driver_fail(name, 1, injected);
        free_it(get(2 * MIB));
        free_it(get(6 * MIB));
        while (!fine((int)cuCtxSynchronize())) {
        }
        driver_fail_none();
    }
    uint64_t now = call_lives().events;
    CHECK(now < before + MANY / 2, "%llu events, then %llu", (unsigned long long)before,
          (unsigned long long)now);
}

static void run_codes(const char *name)
{
    static const int codes[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
                                CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN};
    unsigned shown = 0;
    start();
    free_it(get(SCENE_WORDS * 4));
    work(); /* what the driver makes at a first use is made */
    struct call_lives before = call_lives();
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        injected = codes[i];
        shown += seen > 0;
        injections = seen = 0;
        for (unsigned nth = 1; nth <= MOST_NTH; nth++) {
            uint64_t calls = driver_calls(name);
            injections++;
            driver_fail(name, nth, injected);
            for (unsigned turn = 0; turn < nth; turn++) {
                work();
            }
            calls = driver_calls(name) - calls;
            CHECK(calls >= nth || !pooled() || at_first_only(name) || at_first_ordered_only(name),
                  "%s was called %llu times", name, (unsigned long long)calls);
            driver_fail_none();
        }
        work();
    }
    shown += seen > 0;
    fail_often(name);
    call_check_lives(&before);
    printf("call\t%s\tmade by libzone itself\t%s\t%s\n", name, call_kind(name),
           shown > 0 ? "once" : "never");
}

/* The context is lost in the middle of such a call: no hang, no other code, and a reset heals. */
static void run_lost(const char *name)
{
    CUdeviceptr ptr[4];
    start();
    for (size_t i = 0; i < 4; i++) {
        OK(cuMemAlloc_v2(&ptr[i], i % 2 ? 2 * MIB : 4096));
    }
    lost = true;
    injected = CUDA_ERROR_ILLEGAL_ADDRESS;
    driver_fail(name, 1, injected);
    for (size_t i = 0; i < 4; i++) {
        free_it(ptr[i]);
        get(i % 2 ? 2 * MIB : 4096);
    }
    cuCtxDestroy_v2(NULL);
    info();
    fine((int)cuCtxSynchronize());
    driver_fail_none();
    cuDevicePrimaryCtxReset_v2(0);
    victim_forget_kernels();
    lost = false;
    seen = injections = 0;
    start();
    work();
}

int main(int argc, char **argv)
{
    int failures = 0;
    bool fills = false;
    bool async = false;
    if (argc == 3 && strcmp(argv[2], "lost") == 0) {
        run_lost(argv[1]);
        return 0;
    }
    /* The harness calls them, too. */
    launches = argc < 2 || (strcmp(argv[1], "cuCtxGetCurrent") != 0 &&
                            strcmp(argv[1], "cuStreamSynchronize") != 0);
    if (argc == 3 && strcmp(argv[2], "first") == 0) {
        run_first(argv[1]);
        return 0;
    }
    if (argc == 3) {
        run_codes(argv[1]);
        return 0;
    }
    setenv("ZONE_REPORT", "none", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fills = fills || strcmp(names[i], first_for_fills) == 0;
        async = async || strcmp(names[i], first_for_async) == 0;
        if (i % slowness() != 0) {
            continue;
        }
        if (async) {
            setenv("ZONE_ALLOC_CONF", "backend:cudaMallocAsync", 1);
            setenv("ZSIM_MEMORY_MB", "128", 1);
        } else if (fills) {
            setenv("ZONE_ALLOC_CONF", "zero_fill:True", 1);
            setenv("ZSIM_MEMORY_MB", "48", 1);
        }
        bool well = call_again(argv[0], names[i], "codes");
        well = call_again(argv[0], names[i], "first") && well;
        well = call_again(argv[0], names[i], "lost") && well;
        failures += !well;
    }
    CHECK(failures == 0, "%d names", failures);
    return 0;
}
