/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: threads that take what they can get of each device, while the rows limit it. What is live
 * and what the driver has given never pass the limit; what fits within it is had, whatever was
 * freed before; what does not is refused with the driver's code, which the driver is not asked for.
 * With the argument "first" the first allocation is too large, with "capture" it happens while a
 * stream captures.
 */
#include "tools.h"

#include <string.h>

enum { DEVICES = 2, THREADS = 3, HELD = 6, STEPS = 400 };

struct device {
    CUcontext context;
    CUdevice number;
    size_t limit;   /* SIZE_MAX: none */
    size_t base;    /* what the driver had taken before */
    size_t most;    /* what is free for the program */
    uint64_t live;  /* atomic */
    uint32_t turns; /* atomic; gives each thread another seed */
};

static struct device devices[DEVICES];

static size_t limit_of(CUdevice device, size_t total)
{
    if (!pooled()) {
        return SIZE_MAX;
    }
    if (configured("max_reserved_mb:[0:40,1:80]")) {
        return (device == 0 ? 40 : 80) * MIB;
    }
    if (configured("max_reserved_mb:96")) {
        return 96 * MIB;
    }
    return configured("per_process_memory_fraction:0.25") ? total / 4 : SIZE_MAX;
}

static void check_limit(struct device *device)
{
    uint64_t live = __atomic_load_n(&device->live, __ATOMIC_SEQ_CST);
    size_t taken = driver_bytes_of(device->number);
    if (device->limit != SIZE_MAX) {
        CHECK(live <= device->limit, "device %d: %llu live", device->number,
              (unsigned long long)live);
        CHECK(taken <= device->base + device->limit, "device %d: the driver gave %zu",
              device->number, taken - device->base);
    }
}

static void give(struct device *device, CUdeviceptr *ptr, size_t bytes)
{
    __atomic_sub_fetch(&device->live, bytes, __ATOMIC_SEQ_CST);
    OK(cuMemFree(*ptr));
    *ptr = 0;
}

/* Sizes that the driver takes as they are: whole chunks. */
static void take_and_give(void *arg)
{
    struct device *device = arg;
    CUdeviceptr ptrs[HELD] = {0};
    size_t sizes[HELD] = {0};
    OK(cuCtxSetCurrent(device->context));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t seed = __atomic_add_fetch(&device->turns, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < STEPS / slowness(); i++) {
        seed = seed * 1103515245 + 12345;
        unsigned at = (seed >> 16) % HELD;
        if (ptrs[at]) {
            give(device, &ptrs[at], sizes[at]);
            continue;
        }
        sizes[at] = (1 + (seed >> 20) % 12) * 2 * MIB;
        CUresult rc = cuMemAlloc(&ptrs[at], sizes[at]);
        CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "%d", rc);
        if (rc == CUDA_SUCCESS) {
            __atomic_add_fetch(&device->live, sizes[at], __ATOMIC_SEQ_CST);
            launch_fill(stream, ptrs[at], 1024, i);
        } else {
            ptrs[at] = 0;
        }
        check_limit(device);
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (ptrs[i]) {
            give(device, &ptrs[i], sizes[i]);
        }
    }
    OK(cuStreamDestroy(stream));
}

static void open_device(struct device *device, CUdevice number)
{
    size_t total;
    size_t left;
    CUdeviceptr first;
    device->number = number;
    OK(cuDevicePrimaryCtxRetain(&device->context, number));
    OK(cuCtxSetCurrent(device->context));
    victim_load_kernels();
    OK(cuMemGetInfo(&left, &total));
    device->limit = limit_of(number, total);
    device->base = driver_bytes_of(number);
    OK(cuMemAlloc(&first, 2 * MIB));
    OK(cuMemFree(first));
    OK(cuMemGetInfo(&device->most, &total));
    CHECK(device->most <= device->limit, "%zu of %zu free", device->most, device->limit);
    check_limit(device);
}

/* All that is within the limit can be had, and nothing more. */
static void all_and_more(struct device *device)
{
    CUdeviceptr all;
    CUdeviceptr more;
    size_t left;
    OK(cuCtxSetCurrent(device->context));
    OK(cuMemGetInfo(&left, NULL));
    CHECK(left == device->most || device->limit == SIZE_MAX, "%zu, now %zu", device->most, left);
    size_t bytes = device->limit == SIZE_MAX ? left - 16 * MIB : device->limit;
    OK(cuMemAlloc(&all, bytes));
    check_limit(device);
    uint64_t allocs = driver_allocs();
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 32 * MIB));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, (size_t)1 << 45));
    if (device->limit != SIZE_MAX) {
        CHECK(driver_allocs() == allocs, "the driver was asked");
        OK(cuMemGetInfo(&left, NULL));
        CHECK(left == 0, "%zu free", left);
    }
    OK(cuMemFree(all));
}

static void in_a_capture(void)
{
    CUdeviceptr ptrs[3];
    CUgraph graph;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&ptrs[0], 64 * MIB));
    OK(cuMemAlloc(&ptrs[1], 32 * MIB));
    CUresult rc = cuMemAlloc(&ptrs[2], 2 * MIB);
    CHECK(rc == (pooled() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS), "%d", rc);
    OK(cuMemFree(ptrs[0]));
    OK(cuMemAlloc(&ptrs[0], 64 * MIB));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemFree(ptrs[0]));
    OK(cuMemFree(ptrs[1]));
    OK(cuMemAlloc(&ptrs[0], 96 * MIB));
    OK(cuMemFree(ptrs[0]));
}

static void at_once(void)
{
    CUdeviceptr ptr;
    uint64_t allocs = driver_allocs();
    CUresult rc = cuMemAlloc(&ptr, 128 * MIB);
    CHECK(rc == (pooled() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS), "%d", rc);
    CHECK(!pooled() || driver_allocs() == allocs, "the driver was asked");
    OK(cuMemAlloc(&ptr, 96 * MIB));
}

int main(int argc, char **argv)
{
    struct worker workers[DEVICES * THREADS];
    int count;
    victim_start();
    if (argc > 1 && strcmp(argv[1], "capture") == 0) {
        in_a_capture();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "first") == 0) {
        at_once();
        return 0;
    }
    OK(cuDeviceGetCount(&count));
    count = count < DEVICES ? count : DEVICES;
    if (count < 2 && configured("1:80")) {
        victim_skip("one device");
    }
    for (int i = 0; i < count; i++) {
        open_device(&devices[i], i);
    }
    for (int i = 0; i < count * THREADS; i++) {
        worker_start(&workers[i], take_and_give, &devices[i % count]);
    }
    for (int i = 0; i < count * THREADS; i++) {
        worker_join(&workers[i]);
    }
    for (int i = 0; i < count; i++) {
        all_and_more(&devices[i]);
    }
    return 0;
}
