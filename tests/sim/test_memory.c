/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: capacity, addresses, slabs, pools and scripted failures. It runs with
 * ZSIM_MEMORY_MB=64 and a scripted failure of the 3rd cuMemAllocHost_v2.
 */
#include "../victims/victim.h"
#include "zsim.h"

#include <stdlib.h>
#include <string.h>

static size_t free_mib(void)
{
    size_t bytes;
    OK(cuMemGetInfo(&bytes, NULL));
    return bytes / MIB;
}

/* A large block takes 2 MiB steps; small ones share a step, which comes and goes with them. */
static void capacity(void)
{
    size_t start = free_mib();
    CUdeviceptr large;
    CUdeviceptr small[5];
    OK(cuMemAlloc(&large, 2 * MIB + 1));
    CHECK(free_mib() == start - 4);
    for (int i = 0; i < 5; i++) {
        OK(cuMemAlloc(&small[i], 1));
        CHECK(i == 0 || small[i] == small[i - 1] + 512);
    }
    CHECK(free_mib() == start - 6);
    for (int i = 0; i < 5; i++) {
        OK(cuMemFree(small[i]));
    }
    OK(cuMemFree(large));
    CHECK(free_mib() == start);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&large, (start + 2) * MIB));
    OK(cuMemAlloc(&large, start * MIB));
    CHECK(free_mib() == 0);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&small[0], 1));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&small[0], 1, NULL));
    OK(cuMemFree(large));
}

/* Other users of memory run out of it too. */
static void other_users(void)
{
    CUmodule module;
    CUarray array;
    CUdeviceptr all;
    CUDA_ARRAY_DESCRIPTOR descriptor = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
    size_t start = free_mib();
    OK(cuMemAlloc(&all, start * MIB));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&module, victim_ptx));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuArrayCreate(&array, &descriptor));
    OK(cuMemFree(all));
    OK(cuArrayCreate(&array, &descriptor));
    CHECK(free_mib() == start - 4);
    OK(cuArrayDestroy(array));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    OK(cuModuleLoadData(&module, victim_ptx));
    OK(cuModuleUnload(module));
    CHECK(free_mib() == start);
}

static void stream_ordered(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr;
    CUdeviceptr again;
    CUdeviceptr elsewhere;
    CUmemoryPool pool;
    CUmemoryPool of;
    uint64_t keep = UINT64_MAX;
    uint64_t used;
    int depend = 0;
    size_t start = free_mib();
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &depend));
    launch_spin(stream, 20);
    OK(cuMemAllocAsync(&ptr, 4 * MIB, stream));
    OK(cuMemFreeAsync(ptr, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(ptr, stream));
    OK(cuMemAllocAsync(&again, 4 * MIB, stream));
    CHECK(again == ptr, "the same stream gets it at once");
    OK(cuMemFreeAsync(again, stream));
    OK(cuMemAllocAsync(&elsewhere, 4 * MIB, other));
    CHECK(elsewhere != ptr, "another stream got memory still in use");
    OK(cuMemFreeAsync(elsewhere, other));
    OK(cuCtxSynchronize());
    CHECK(free_mib() == start, "a threshold of 0 gives everything back");
    depend = 1;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &depend));
    launch_spin(stream, 20);
    OK(cuMemAllocAsync(&ptr, 4 * MIB, stream));
    OK(cuMemFreeAsync(ptr, stream));
    OK(cuMemAllocAsync(&elsewhere, 4 * MIB, other));
    CHECK(elsewhere == ptr, "with internal dependencies another stream gets it, too");
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    OK(cuStreamSynchronize(other));
    OK(cuStreamQuery(stream));
    OK(cuMemFreeAsync(elsewhere, other));
    OK(cuCtxSynchronize());

    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&ptr, 4 * MIB, stream));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
    CHECK(of == pool);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 4 * MIB);
    CHECK(count_wrong(stream, ptr, MIB, 0) == 0, "fresh stream-ordered memory is zero");
    OK(cuMemFreeAsync(ptr, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_mib() == start - 4, "kept");
    OK(cuMemAllocAsync(&again, 4 * MIB, other));
    CHECK(again == ptr, "any stream gets it once the free has run");
    OK(cuMemFreeAsync(again, other));
    OK(cuStreamSynchronize(other));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(free_mib() == start);
    keep = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

/* What is freed is unmapped: a kernel that still writes there faults. */
static void use_after_free(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 4 * MIB));
    OK(cuMemFree(ptr));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(ptr, 1, 1));
    launch_fill(NULL, ptr, 16, 1);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuDevicePrimaryCtxReset(0));
}

static void scripted_failures(void)
{
    int (*fail)(const char *, uint64_t, int);
    uint64_t (*calls)(const char *);
    void *found = zsim("zsim_fail");
    void *ptr;
    CUdeviceptr memory;
    memcpy(&fail, &found, sizeof fail);
    found = zsim("zsim_calls");
    memcpy(&calls, &found, sizeof calls);
    for (int i = 1; i <= 4; i++) {
        EXPECT(i == 3 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, cuMemAllocHost(&ptr, 4096));
    }
    uint64_t before = calls("cuMemAlloc_v2");
    CHECK(fail("cuMemAlloc_v2", 2, 999) == 0 && fail("no such call", 1, 1) == -1);
    OK(cuMemAlloc(&memory, 16));
    EXPECT(999, cuMemAlloc(&memory, 16));
    OK(cuMemFree(memory));
    OK(cuMemAlloc(&memory, 16));
    OK(cuMemFree(memory));
    CHECK(calls("cuMemAlloc_v2") == before + 3 && calls("cuMemAllocHost_v2") == 4);
}

int main(void)
{
    victim_start();
    OK(cuCtxSynchronize());
    scripted_failures();
    capacity();
    other_users();
    stream_ordered();
    use_after_free();
    return 0;
}
