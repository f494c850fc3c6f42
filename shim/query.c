/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs ask about memory. The driver's answers are right but for the size (it knows the
 * class, or the segment, not what was asked for), base and SYNC_MEMOPS of a block that was cut from
 * a segment, the buffer id (new for every allocation), and memory that the program has freed while
 * the pool holds it. An answer is changed only for the pool's own blocks and only where the
 * driver's call succeeded.
 */
#include "query.h"

#include "context.h"
#include "hooks.h"
#include "life.h"
#include "mempool.h"
#include "ptrmap.h"

#include <string.h>

/* An address that the driver knows nothing about, as it knows nothing of freed memory: not
 * canonical, so no allocation can ever have it. */
#define QUERY_NOWHERE ((CUdeviceptr)1 << 62)

enum zone_query_place zone_query_find(const struct zone_driver *driver, CUdeviceptr ptr,
                                      struct zone_block **ret_block)
{
    if (!zone_life_is_on()) {
        return ZONE_QUERY_FOREIGN;
    }
    struct zone_block *block = zone_ptrmap_get(ptr);
    if (!block) {
        CUdeviceptr base = 0;
        size_t size = 0;
        if (ZONE_REAL(driver, cuMemGetAddressRange_v2)(&base, &size, ptr) == CUDA_SUCCESS) {
            block = zone_ptrmap_get(base);
        }
    }
    if (block && block->segment && ptr - block->addr >= block->bytes) {
        block = zone_ptrmap_below(ptr, block->addr);
    }
    if (!block || zone_block_kind(block) != ZONE_BLOCK_DEVICE) {
        return ZONE_QUERY_FOREIGN;
    }
    *ret_block = block;
    bool live = atomic_load_explicit(&block->state, memory_order_acquire) == ZONE_BLOCK_LIVE;
    return live && ptr - block->addr < block->req_bytes ? ZONE_QUERY_LIVE : ZONE_QUERY_FREE;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    struct zone_block *block = NULL;
    enum zone_query_place place = zone_query_find(driver, dptr, &block);
    if (place == ZONE_QUERY_FREE) {
        dptr = QUERY_NOWHERE;
    }
    CUresult rc = ZONE_REAL(driver, cuMemGetAddressRange_v2)(base, size, dptr);
    if (rc == CUDA_SUCCESS && place == ZONE_QUERY_LIVE && size) {
        *size = block->req_bytes;
    }
    if (rc == CUDA_SUCCESS && place == ZONE_QUERY_LIVE && base) {
        *base = block->addr;
    }
    return rc;
}

/* Stream-ordered memory is the device's default pool's, not a context's, and nobody else's. True if
 * the attribute is about that. */
static bool query_correct_stream(const struct zone_block *block, CUpointer_attribute attribute,
                                 void *data)
{
    CUcontext ctx = NULL;
    CUmemoryPool pool = zone_mempool_default(block->pool->device);
    unsigned long long types = 0;
    int no = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        memcpy(data, &ctx, sizeof(CUcontext));
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        memcpy(data, &pool, sizeof(CUmemoryPool));
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memcpy(data, &types, sizeof(types));
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        memcpy(data, &no, sizeof(no));
        return true;
    default:
        return false;
    }
}

/* Corrects the answer to one attribute of a live block. */
static void query_correct(struct zone_block *block, CUpointer_attribute attribute, void *data)
{
    if (block->in_stream && query_correct_stream(block, attribute, data)) {
        return;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        memcpy(data, &block->req_bytes, sizeof(block->req_bytes));
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        memcpy(data, &block->addr, sizeof(block->addr));
    } else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID && !block->fresh) {
        uint64_t id = zone_block_buffer_id(block);
        memcpy(data, &id, sizeof(id));
    } else if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && block->segment) {
        int set = block->sync_memops;
        memcpy(data, &set, sizeof(set));
    } else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && block->pool->process->gpu->give) {
        /* The driver's pools belong to no context. */
        memcpy(data, &block->pool->ctx, sizeof(block->pool->ctx));
    } else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        memset(data, 0, sizeof(CUmemoryPool));
    } else if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
        zone_pool_taint((struct zone_block *)block);
    }
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    struct zone_block *block = NULL;
    enum zone_query_place place = zone_query_find(driver, ptr, &block);
    if (place == ZONE_QUERY_FREE) {
        ptr = QUERY_NOWHERE;
    }
    CUresult rc = ZONE_REAL(driver, cuPointerGetAttribute)(data, attribute, ptr);
    if (rc == CUDA_SUCCESS && place == ZONE_QUERY_LIVE && data) {
        query_correct(block, attribute, data);
    }
    return rc;
}

CUresult hook_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                     void **data, CUdeviceptr ptr)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    struct zone_block *block = NULL;
    enum zone_query_place place = zone_query_find(driver, ptr, &block);
    CUdeviceptr asked = place == ZONE_QUERY_FREE ? QUERY_NOWHERE : ptr;
    CUresult rc = ZONE_REAL(driver, cuPointerGetAttributes)(count, attributes, data, asked);
    if (rc != CUDA_SUCCESS || !attributes || !data) {
        return rc;
    }
    for (unsigned i = 0; i < count; i++) {
        if (place == ZONE_QUERY_LIVE) {
            query_correct(block, attributes[i], data[i]);
        } else if (place == ZONE_QUERY_FREE) {
            /* An answer may repeat the address asked about. */
            CUdeviceptr echo = QUERY_NOWHERE;
            bool pointer = attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
            if (pointer && memcmp(data[i], &echo, sizeof(echo)) == 0) {
                memcpy(data[i], &ptr, sizeof(ptr));
            }
        }
    }
    return rc;
}

/* The most that a limit leaves of the bytes that are free on a device. */
static size_t query_limited(int device, size_t free_bytes, size_t total)
{
    zone_limit_set(zone_life_process()->options, device, total);
    size_t limit = zone_limit_bytes(device);
    size_t live = limit == SIZE_MAX ? 0 : zone_registry_live(device);
    size_t left = live < limit ? limit - live : 0;
    return free_bytes < left ? free_bytes : left;
}

/* Free memory counts what an allocation could have: the driver's own and what the pools of the
 * device hold unused, within the limit. */
CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    size_t whole = 0;
    CUresult rc = ZONE_REAL(driver, cuMemGetInfo_v2)(free_bytes, total ? total : &whole);
    if (rc == CUDA_SUCCESS && free_bytes && zone_life_is_on()) {
        CUcontext ctx;
        struct zone_pool *pool = zone_context_pool(driver, &ctx);
        size_t sum = pool ? *free_bytes + zone_registry_cached(pool->device) : *free_bytes;
        CUdevice device;
        whole = total ? *total : whole;
        *free_bytes = sum < whole ? sum : whole;
        if (ctx && ZONE_REAL(driver, cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
            *free_bytes = query_limited(device, *free_bytes, whole);
        }
    }
    return rc;
}

static void query_settle(struct zone_pool *pool, void *arg)
{
    if (pool->order == ZONE_FREE_ORDER_AUTO) {
        *(bool *)arg = true;
        zone_pool_settle(pool);
    }
}

/* An end event that is not ready because a free did not wait for it: natively that free would have,
 * so waits for what earlier frees recorded, no more, and asks again. */
static CUresult query_elapsed(zone_fn_cuEventElapsedTime real, float *ms, CUevent start,
                              CUevent end)
{
    CUresult rc = real(ms, start, end);
    bool automatic = false;
    if (rc != CUDA_ERROR_NOT_READY || !zone_life_is_on()) {
        return rc;
    }
    zone_registry_each(query_settle, &automatic);
    rc = real(ms, start, end);
    if (rc == CUDA_ERROR_NOT_READY && automatic && zone_pool_thread_has_open_frees()) {
        /* This thread's last frees were small and recorded nothing: the event itself stands in for
         * them. */
        const struct zone_driver *driver = zone_driver();
        ZONE_REAL(driver, cuEventSynchronize)(end);
        rc = real(ms, start, end);
    }
    return rc;
}

CUresult hook_cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuEventElapsedTime)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return query_elapsed(ZONE_REAL(driver, cuEventElapsedTime), ms, start, end);
}

CUresult hook_cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuEventElapsedTime_v2)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return query_elapsed(ZONE_REAL(driver, cuEventElapsedTime_v2), ms, start, end);
}
