/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools as objects: made, destroyed, trimmed, their attributes and access, a device's pool.
 */
#include "pool.h"

#include <string.h>
#include <unistd.h>

CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    if (!pool || !poolProps || poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(poolProps->location.id);
    if (device) {
        struct sim_pool *made = sim_pool_new(device);
        made->exportable = poolProps->handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        *pool = (CUmemoryPool)made;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* With the lock on success. */
static CUresult begin_pool(CUmemoryPool handle, struct sim_pool **ret_pool)
{
    sim_lock();
    if (!sim_handle_is(handle, SIM_POOL)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_pool = (struct sim_pool *)handle;
    return CUDA_SUCCESS;
}

/* The structure stays while its allocations live. */
CUresult sim_cuMemPoolDestroy(CUmemoryPool handle)
{
    struct sim_pool *pool;
    CUresult rc = begin_pool(handle, &pool);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (pool == pool->device->default_pool) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        sim_handle_drop(pool);
        pool->destroyed = true;
        if (pool->imported) {
            close(pool->fd);
        }
        sim_pool_trim(pool, 0);
        if (pool->device->pool == pool) {
            pool->device->pool = NULL;
        }
        sim_pool_end(pool);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep)
{
    struct sim_pool *pool;
    CUresult rc = begin_pool(handle, &pool);
    if (rc == CUDA_SUCCESS) {
        sim_pool_trim(pool, minBytesToKeep);
        sim_unlock();
    }
    return rc;
}

static uint64_t *counter_of(struct sim_pool *pool, CUmemPool_attribute attr)
{
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static bool is_reuse(CUmemPool_attribute attr)
{
    return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
    struct sim_pool *pool;
    CUresult rc = value ? begin_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    uint64_t *counter = counter_of(pool, attr);
    bool high = attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (is_reuse(attr)) {
        memcpy(&pool->reuse[attr - 1], value, sizeof(int));
    } else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    } else if (high && *(uint64_t *)value == 0) {
        *counter = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved;
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
    struct sim_pool *pool;
    CUresult rc = value ? begin_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const uint64_t *counter = counter_of(pool, attr);
    if (is_reuse(attr)) {
        memcpy(value, &pool->reuse[attr - 1], sizeof(int));
    } else if (counter) {
        memcpy(value, counter, sizeof *counter);
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    struct sim_pool *pool;
    CUresult rc = map || count == 0 ? begin_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned bit = 1u << map[i].location.id;
        pool->access = map[i].flags ? pool->access | bit : pool->access & ~bit;
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                CUmemLocation *location)
{
    struct sim_pool *pool;
    CUresult rc = flags && location ? begin_pool(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        bool own = location->id == pool->device->ordinal;
        bool allowed = own || (pool->access & (1u << location->id));
        *flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        sim_unlock();
    }
    return rc;
}

static CUresult device_pool(CUmemoryPool *pool, CUdevice dev, bool the_default)
{
    if (!pool) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    if (device) {
        *pool = (CUmemoryPool)(the_default ? sim_default_pool(device) : sim_current_pool(device));
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return device_pool(pool, dev, true);
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return device_pool(pool, dev, false);
}

CUresult sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
    struct sim_pool *pool;
    CUresult rc = begin_pool(handle, &pool);
    if (rc == CUDA_SUCCESS) {
        struct sim_device *device = sim_device_at(dev);
        if (!device || pool->device != device) {
            rc = CUDA_ERROR_INVALID_DEVICE;
        } else {
            device->pool = pool;
        }
        sim_unlock();
    }
    return rc;
}

/* The device's pool under its newer name; other places have no pools here. */
CUresult sim_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_cuDeviceSetMemPool(location->id, pool);
}
