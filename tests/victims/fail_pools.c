/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls about stream-ordered memory and its pools fail. See calls.h. What libzone serves
 * asks the driver nothing, so memory here is of a pool of the program's own, or shared.
 */
#include "calls.h"

#include <string.h>

static CUmemoryPool own_pool(void)
{
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static CUdeviceptr shared_memory(void)
{
    unsigned on = 1;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 3 * MIB));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    return ptr;
}

#define ROWS(suffix, stream)                                                                       \
    static CUresult free_async##suffix(void)                                                       \
    {                                                                                              \
        CUdeviceptr ptr;                                                                           \
        CUmemoryPool pool = own_pool();                                                            \
        OK(cuMemAllocFromPoolAsync##suffix(&ptr, 4096, pool, stream));                             \
        CUresult rc = TRY(cuMemFreeAsync##suffix(ptr, stream));                                    \
        if (rc != CUDA_SUCCESS) {                                                                  \
            UNDO(rc, cuMemFreeAsync##suffix(ptr, stream));                                         \
        }                                                                                          \
        UNDO(rc, cuStreamSynchronize##suffix(stream));                                             \
        UNDO(rc, cuMemPoolDestroy(pool));                                                          \
        return rc;                                                                                 \
    }                                                                                              \
    static CUresult free_async_shared##suffix(void)                                                \
    {                                                                                              \
        CUdeviceptr ptr = shared_memory();                                                         \
        CUresult rc = TRY(cuMemFreeAsync##suffix(ptr, stream));                                    \
        if (rc != CUDA_SUCCESS) {                                                                  \
            UNDO(rc, cuMemFree_v2(ptr));                                                           \
        }                                                                                          \
        UNDO(rc, cuStreamSynchronize##suffix(stream));                                             \
        return rc;                                                                                 \
    }                                                                                              \
    static CUresult end_async##suffix(CUresult rc, CUdeviceptr ptr, CUmemoryPool pool)             \
    {                                                                                              \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuMemFreeAsync##suffix(ptr, stream));                                               \
        }                                                                                          \
        UNDO(rc, cuStreamSynchronize##suffix(stream));                                             \
        UNDO(rc, cuMemPoolDestroy(pool));                                                          \
        return rc;                                                                                 \
    }                                                                                              \
    /* From the device's pool, which is not its default one. */                                    \
    static CUresult alloc_async##suffix(void)                                                      \
    {                                                                                              \
        CUdeviceptr ptr = 0;                                                                       \
        CUmemoryPool pool = own_pool();                                                            \
        OK(cuDeviceSetMemPool(0, pool));                                                           \
        CUresult rc = TRY(cuMemAllocAsync##suffix(&ptr, 4096, stream));                            \
        UNDO(rc, cuDeviceSetMemPool(0, default_pool()));                                           \
        return end_async##suffix(rc, ptr, pool);                                                   \
    }                                                                                              \
    static CUresult alloc_pool##suffix(void)                                                       \
    {                                                                                              \
        CUdeviceptr ptr = 0;                                                                       \
        CUmemoryPool pool = own_pool();                                                            \
        CUresult rc = TRY(cuMemAllocFromPoolAsync##suffix(&ptr, 4096, pool, stream));              \
        return end_async##suffix(rc, ptr, pool);                                                   \
    }
ROWS(, scene.stream)
ROWS(_ptsz, NULL)

static CUresult get_attribute(void)
{
    cuuint64_t bytes = 0;
    return TRY(cuMemPoolGetAttribute(default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
}

static CUresult set_attribute(void)
{
    cuuint64_t zero = 0;
    return TRY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
}

static CUresult trim_to(void)
{
    return TRY(cuMemPoolTrimTo(default_pool(), 0));
}

static CUresult set_access(void)
{
    CUmemAccessDesc own = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return TRY(cuMemPoolSetAccess(default_pool(), &own, 1));
}

static CUresult destroy(void)
{
    CUmemoryPool pool = own_pool();
    CUresult rc = TRY(cuMemPoolDestroy(pool));
    if (rc != CUDA_SUCCESS) {
        UNDO(rc, cuMemPoolDestroy(pool));
    }
    return rc;
}

static CUresult set_pool(void)
{
    return TRY(cuDeviceSetMemPool(0, default_pool()));
}

static CUresult set_location_pool(void)
{
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return TRY(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, default_pool()));
}

static const struct call_row rows[] = {
    {"cuMemFreeAsync", "memory of another pool", free_async},
    {"cuMemFreeAsync", "shared memory", free_async_shared},
    {"cuMemFreeAsync_ptsz", "memory of another pool", free_async_ptsz},
    {"cuMemFreeAsync_ptsz", "shared memory", free_async_shared_ptsz},
    {"cuMemAllocAsync", NULL, alloc_async},
    {"cuMemAllocAsync_ptsz", NULL, alloc_async_ptsz},
    {"cuMemAllocFromPoolAsync", NULL, alloc_pool},
    {"cuMemAllocFromPoolAsync_ptsz", NULL, alloc_pool_ptsz},
    {"cuMemPoolGetAttribute", NULL, get_attribute},
    {"cuMemPoolSetAttribute", NULL, set_attribute},
    {"cuMemPoolTrimTo", NULL, trim_to},
    {"cuMemPoolSetAccess", NULL, set_access},
    {"cuMemPoolDestroy", NULL, destroy},
    {"cuDeviceSetMemPool", NULL, set_pool},
    {"cuMemSetMemPool", NULL, set_location_pool},
};

int main(int argc, char **argv)
{
    return call_rows(rows, sizeof rows / sizeof rows[0], argc, argv);
}
