/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what a program is told about stream-ordered memory and the pools it comes from:
 * attributes of pointers and of the default pool, trimming, another pool of the device, access by
 * another device, captures. What is plain memory by now is told of as such.
 */
#include "tools.h"

static CUstream stream;

static CUmemoryPool default_pool(CUdevice device)
{
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

static CUmemoryPool new_pool(void)
{
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static uint64_t told(CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    OK(cuMemPoolGetAttribute(default_pool(0), attribute, &value));
    return value;
}

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAllocAsync(&ptr, bytes, stream));
    return ptr;
}

static void give(CUdeviceptr ptr)
{
    OK(cuMemFreeAsync(ptr, stream));
}

static CUmemoryPool pool_of(CUdeviceptr ptr)
{
    CUmemoryPool pool = NULL;
    OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
    return pool;
}

/* The block and the size asked for, no context, no handle for other processes. */
static void pointers(size_t bytes)
{
    CUdeviceptr ptr = get(bytes);
    CUdeviceptr base = 0;
    size_t size = 0;
    CUipcMemHandle handle;
    OK(cuMemGetAddressRange(&base, &size, ptr + bytes / 2));
    CHECK(base == ptr && size == bytes, "%zu bytes: %zu", bytes, size);
    CHECK(pool_of(ptr) == default_pool(0));
    CUcontext context = (CUcontext)(uintptr_t)1;
    CUmemoryPool pool = NULL;
    int legacy = 1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&context, &pool, &legacy};
    OK(cuPointerGetAttributes(3, attributes, values, ptr));
    CHECK(context == NULL && pool == default_pool(0) && legacy == 0, "%d", legacy);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, ptr));
    give(ptr);
    OK(cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, ptr));
}

/* A pool may hand the same bytes out as plain memory, which then is plain memory. */
static void plain(size_t bytes)
{
    CUdeviceptr ptr;
    CUipcMemHandle handle;
    CUcontext own;
    CUcontext context = NULL;
    give(get(bytes));
    OK(cuStreamSynchronize(stream));
    OK(cuMemAlloc(&ptr, bytes));
    OK(cuCtxGetCurrent(&own));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    CHECK(context == own);
    CHECK(pool_of(ptr) == NULL);
    OK(cuIpcGetMemHandle(&handle, ptr));
    OK(cuMemFree(ptr));
    OK(cuMemAlloc(&ptr, bytes));
    OK(cuMemFreeAsync(ptr, stream));
    ptr = get(bytes);
    CHECK(pool_of(ptr) == default_pool(0));
    OK(cuMemFree(ptr));
}

static void bytes_held(void)
{
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    uint64_t used = told(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    cuuint64_t none = 0;
    cuuint64_t all = UINT64_MAX;
    int yes = -1;
    OK(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    CHECK(told(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == all);
    OK(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &yes));
    CHECK(yes == 1);
    OK(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
    OK(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
    CHECK(told(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == used);
    CUdeviceptr a = get(8 * MIB);
    CUdeviceptr b = get(2 * MIB);
    CHECK(told(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used + 10 * MIB, "%llu bytes",
          (unsigned long long)told(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    CHECK(told(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used + 10 * MIB);
    give(a);
    OK(cuStreamSynchronize(stream));
    CHECK(told(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used + 2 * MIB);
    CHECK(told(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == used + 10 * MIB);
    CHECK(told(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used + 10 * MIB, "not kept");
    OK(cuMemPoolTrimTo(default_pool(0), used + 10 * MIB));
    CHECK(told(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used + 10 * MIB, "trimmed too far");
    size_t taken = driver_bytes();
    give(b);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    CHECK(told(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used);
    /* An H200 had more in use, by its own count, than it held. */
    uint64_t held = told(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CHECK(held == used || (!simulated() && held < used), "not trimmed: %llu bytes, %llu in use",
          (unsigned long long)held, (unsigned long long)used);
    CHECK(!simulated() || driver_bytes() <= taken - 10 * MIB, "the driver did not get it");
    CHECK(told(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= used + 10 * MIB);
    OK(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
}

/* Another pool becomes the device's, and is named by hand. */
static void other_pool(void)
{
    CUmemoryPool pool = new_pool();
    CUdeviceptr ptr = get(2 * MIB);
    OK(cuDeviceSetMemPool(0, pool));
    give(ptr);
    ptr = get(2 * MIB);
    CHECK(pool_of(ptr) == pool);
    give(ptr);
    OK(cuMemAllocFromPoolAsync(&ptr, 4096, default_pool(0), stream));
    CHECK(pool_of(ptr) == default_pool(0));
    give(ptr);
    OK(cuDeviceSetMemPool(0, default_pool(0)));
    ptr = get(2 * MIB);
    CHECK(pool_of(ptr) == default_pool(0));
    give(ptr);
    OK(cuMemAllocFromPoolAsync(&ptr, 4096, pool, stream));
    CHECK(pool_of(ptr) == pool);
    give(ptr);
    /* Destroyed while it is the device's: that is the default one again. */
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    ptr = get(2 * MIB);
    CHECK(pool_of(ptr) == default_pool(0));
    give(ptr);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&ptr, 4096, NULL, stream));
}

/* A capturing stream gets nodes; memory of no graph cannot be freed there. */
static void captured(void)
{
    CUgraph graph;
    CUdeviceptr held = get(2 * MIB);
    CUdeviceptr node;
    size_t nodes = 0;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&node, 2 * MIB, stream));
    CHECK(node != held);
    OK(cuMemFreeAsync(node, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 2, "%zu nodes", nodes);
    OK(cuGraphDestroy(graph));
    give(held);
    /* Another stream's capture is nobody else's business. */
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    held = get(2 * MIB);
    launch_fill(stream, held, MIB / 4, 1);
    give(held);
    OK(cuStreamEndCapture(other, &graph));
    OK(cuGraphDestroy(graph));
    CHECK(count_wrong(stream, held = get(2 * MIB), 0, 0) == 0);
    give(held);
}

/* The default pool is opened to the other device: what is allocated from then on is, too. */
static void shared_pool(void)
{
    int devices = 0;
    int possible = 0;
    OK(cuDeviceGetCount(&devices));
    if (devices > 1) {
        OK(cuDeviceCanAccessPeer(&possible, 1, 0));
    }
    if (!possible) {
        return;
    }
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess(default_pool(0), &access, 1));
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemPoolGetAccess(&flags, default_pool(0), &access.location));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    uint64_t before = driver_calls("cuMemAllocAsync");
    CUdeviceptr ptr = get(2 * MIB);
    CHECK(!simulated() || driver_calls("cuMemAllocAsync") == before + 1, "not the driver's");
    CHECK(pool_of(ptr) == default_pool(0));
    give(ptr);
}

int main(void)
{
    victim_start();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    give(get(4096));
    pointers(100000);
    pointers(3 * MIB);
    plain(100000);
    plain(4 * MIB);
    bytes_held();
    other_pool();
    captured();
    OK(cuStreamSynchronize(stream));
    bytes_held();
    shared_pool();
    return 0;
}
