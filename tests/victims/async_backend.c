/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that uses cudaMalloc and the driver's default pool side by side, as it may.
 * With backend:cudaMallocAsync both have the same memory, and what one frees the other may get: in
 * use by nobody, at once for every stream, and without a wait that natively is none.
 * Usage: async_backend PART.
 */
#include "tools.h"

#include <string.h>
#include <unistd.h>

#define BYTES    (4 * MIB)
#define LIMIT_MS 400.0

enum { WORDS = BYTES / 4 };

static CUstream busy, other;

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static uint64_t pool_bytes(CUmemPool_attribute attribute)
{
    uint64_t bytes = 0;
    OK(cuMemPoolGetAttribute(default_pool(), attribute, &bytes));
    return bytes;
}

static bool served(void)
{
    return pooled() && configured("cudaMallocAsync");
}

static void keep_all(void)
{
    uint64_t all = UINT64_MAX;
    OK(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* The first memory of a context tells whose it is and is cuMemAlloc's own. */
static void first_block(void)
{
    CUdeviceptr first;
    OK(cuMemAlloc(&first, 1));
    OK(cuMemFree(first));
}

/* The program's own stream-ordered allocation after a free, while work from before it runs. */
static void handed_over(bool capture)
{
    CUdeviceptr ptr;
    CUdeviceptr next;
    CUgraph graph;
    CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 4; round++) {
        OK(cuMemAlloc(&ptr, BYTES));
        launch_spin(busy, 30);
        launch_fill(busy, ptr, WORDS, 1);
        if (capture) {
            OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        }
        OK(cuMemFree(ptr));
        usleep(3000); /* a free that has been given to the driver has run by then */
        OK(cuMemAllocAsync(&next, BYTES, other));
        launch_fill(other, next, WORDS, 2);
        OK(cuStreamSynchronize(other));
        OK(cuStreamSynchronize(busy));
        if (capture) {
            OK(cuStreamEndCapture(captured, &graph));
            OK(cuGraphDestroy(graph));
        }
        CHECK(count_wrong(other, next, WORDS, 2) == 0, "memory in use was handed over");
        OK(cuMemFreeAsync(next, other));
        OK(cuStreamSynchronize(other));
    }
    OK(cuStreamDestroy(captured));
}

static void in_use(void)
{
    handed_over(false);
}

static void in_capture(void)
{
    handed_over(true);
}

/* An allocation waits for nobody: not for what the program freed in the order of a stream. */
static void no_wait(void)
{
    CUdeviceptr freed;
    CUdeviceptr ptr;
    int on = 1;
    for (int round = 0; round < 3; round++) {
        OK(cuMemAllocAsync(&freed, BYTES, busy));
        OK(cuStreamSynchronize(busy));
        struct gate gate = gate_close(busy, LIMIT_MS * slowness());
        OK(cuMemFreeAsync(freed, busy));
        OK(cuMemAlloc(&ptr, BYTES));
        CHECK(ptr != freed, "memory that a stream still has to free");
        gate_open(gate);
        OK(cuStreamSynchronize(busy));
        CHECK(gate_outcome(gate) == GATE_OPENED, "an allocation waited for a stream");
        OK(cuMemFree(ptr));
    }
    OK(cuMemPoolGetAttribute(default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                             &on));
    CHECK(on == !served(), "internal dependencies are %d", on);
}

/* Good for every stream as soon as the call returns. */
static void every_stream(void)
{
    CUdeviceptr ptr;
    uint64_t waits = driver_calls("cuStreamSynchronize");
    uint64_t allocs = driver_calls("cuMemAllocAsync");
    for (uint32_t round = 1; round < 20; round++) {
        OK(cuMemAlloc(&ptr, BYTES));
        /* The simulated pool has its memory ready too soon to show more. */
        CHECK(!served() || !simulated() ||
              driver_calls("cuStreamSynchronize") - waits >=
                  driver_calls("cuMemAllocAsync") - allocs);
        waits = driver_calls("cuStreamSynchronize");
        allocs = driver_calls("cuMemAllocAsync");
        launch_fill(round % 2 ? busy : other, ptr, WORDS, round);
        CHECK(count_wrong(round % 2 ? busy : other, ptr, WORDS, round) == 0);
        OK(cuMemFree(ptr));
    }
    CHECK(!served() || pool_bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) > 0);
    CHECK(!served() || driver_calls("cuMemFree_v2") <= 1, "a free of the driver's that waits");
}

/* What the program sees of its memory is as natively. */
static void answers(void)
{
    CUdeviceptr ptr;
    CUdeviceptr base;
    CUcontext context;
    CUcontext current;
    CUmemoryPool pool;
    size_t size;
    size_t before;
    size_t after;
    size_t total;
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemAlloc(&ptr, 50000));
    OK(cuMemGetAddressRange(&base, &size, ptr + 49999));
    CHECK(base == ptr && size == 50000, "%zu", size);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    OK(cuCtxGetCurrent(&current));
    CHECK(context == current, "another context");
    CUresult rc = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
    CHECK(rc != CUDA_SUCCESS || pool == NULL, "of a pool");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr + 512));
    OK(cuMemFree(ptr));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
    OK(cuMemAlloc(&ptr, 32 * MIB));
    OK(cuMemFree(ptr));
    OK(cuMemGetInfo(&after, &total));
    CHECK(after + (simulated() ? 4 : 64) * MIB >= before, "%zu of %zu bytes are free again", after,
          before);
}

/* The driver's pool keeps max_cached_mb, or what the program has told it. */
static void threshold(void)
{
    CUdeviceptr ptr[4];
    uint64_t keeps = pool_bytes(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    CHECK(!served() || keeps == (configured("max_cached_mb:16") ? 16 * MIB : UINT64_MAX));
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&ptr[i], 64 * MIB));
    }
    for (int i = 0; i < 4; i++) {
        OK(cuMemFree(ptr[i]));
    }
    OK(cuCtxSynchronize());
    OK(cuMemAlloc(&ptr[0], MIB)); /* frees that ran by now are known to have */
    OK(cuMemFree(ptr[0]));
    OK(cuCtxSynchronize());
    CHECK(!configured("max_cached_mb:16") ||
          pool_bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= (simulated() ? 18 : 64) * MIB);
}

/* What the driver's pool keeps is in no other call's way. */
static void other_calls(void)
{
    CUdeviceptr ptr;
    size_t pitch;
    OK(cuMemAlloc(&ptr, 180 * MIB));
    OK(cuMemFree(ptr));
    OK(cuMemAllocPitch(&ptr, &pitch, MIB, 180, 4));
    OK(cuMemFree(ptr));
}

/* A context's memory goes with it, and so does what is cached. */
static void contexts(void)
{
    size_t before = driver_bytes();
    uint64_t used = pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr ptr;
        CUcontext context = new_context(0);
        first_block();
        for (int i = 0; i < 300; i++) {
            OK(cuMemAlloc(&ptr, 64 * KIB));
        }
        OK(cuMemFree(ptr));
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        launch_spin(stream, 5);
        OK(cuCtxDestroy(context));
        CHECK(pool_bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used, "left in the pool");
        CHECK(driver_bytes() <= before, "%zu bytes, %zu before", driver_bytes(), before);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
    bool keeps; /* the program tells the pool to keep everything */
} parts[] = {
    {"in_use", in_use, true},
    {"in_capture", in_capture, true},
    {"no_wait", no_wait, true},
    {"every_stream", every_stream, false},
    {"answers", answers, false},
    {"threshold", threshold, false},
    {"other_calls", other_calls, false},
    {"contexts", contexts, false},
};

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage: async_backend PART");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(parts[i].name, argv[1]) == 0) {
            victim_start();
            busy = new_stream(CU_STREAM_NON_BLOCKING);
            other = new_stream(CU_STREAM_NON_BLOCKING);
            if (parts[i].keeps) {
                keep_all();
            }
            first_block();
            CUdeviceptr second; /* the pool's */
            OK(cuMemAlloc(&second, 1));
            OK(cuMemFree(second));
            parts[i].run();
            return 0;
        }
    }
    CHECK(false, "no part %s", argv[1]);
}
