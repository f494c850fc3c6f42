/* SPDX-License-Identifier: Apache-2.0
 *
 * See mempool.h. The default pool stays the driver's: what passes by the pool lives in it, its
 * attributes are kept by it, and to what it says of its bytes the pool's own are added.
 */
#include "mempool.h"

#include "hooks.h"
#include "life.h"
#include "registry.h"
#include "stream.h"

enum {
    MEMPOOL_LOOKED = 1, /* the default pool is known */
    MEMPOOL_OTHER = 2,  /* the device's current pool is another one */
    MEMPOOL_SHARED = 4, /* other devices were given access to the default pool */
};

struct mempool {
    _Atomic unsigned state;
    CUmemoryPool _Atomic handle;
};

static struct mempool mempools[ZONE_OPTIONS_DEVICES];

static bool mempool_is_device(int device)
{
    return device >= 0 && device < ZONE_OPTIONS_DEVICES;
}

CUmemoryPool zone_mempool_default(int device)
{
    return mempool_is_device(device)
               ? atomic_load_explicit(&mempools[device].handle, memory_order_acquire)
               : NULL;
}

bool zone_mempool_serves(int device)
{
    return atomic_load_explicit(&mempools[device].state, memory_order_relaxed) == MEMPOOL_LOOKED;
}

/* Which pool does cuMemAllocAsync take from now? */
static void mempool_look_again(const struct zone_driver *driver, int device)
{
    CUmemoryPool own = NULL;
    CUmemoryPool current = NULL;
    if (!mempool_is_device(device) || !ZONE_REAL(driver, cuDeviceGetDefaultMemPool) ||
        !ZONE_REAL(driver, cuDeviceGetMemPool) ||
        ZONE_REAL(driver, cuDeviceGetDefaultMemPool)(&own, device) != CUDA_SUCCESS ||
        ZONE_REAL(driver, cuDeviceGetMemPool)(&current, device) != CUDA_SUCCESS) {
        return;
    }
    struct mempool *mempool = &mempools[device];
    atomic_store_explicit(&mempool->handle, own, memory_order_release);
    if (current == own) {
        atomic_fetch_and(&mempool->state, ~(unsigned)MEMPOOL_OTHER);
    } else {
        atomic_fetch_or(&mempool->state, MEMPOOL_OTHER);
    }
    atomic_fetch_or(&mempool->state, MEMPOOL_LOOKED);
}

void zone_mempool_look(const struct zone_driver *driver, int device)
{
    if (mempool_is_device(device) && !(atomic_load(&mempools[device].state) & MEMPOOL_LOOKED)) {
        mempool_look_again(driver, device);
    }
}

bool zone_mempool_may_depend(int device)
{
    const struct zone_driver *driver = zone_driver();
    CUmemoryPool pool = zone_mempool_default(device);
    int allowed = 0;
    return pool && ZONE_REAL(driver, cuMemPoolGetAttribute) &&
           ZONE_REAL(driver, cuMemPoolGetAttribute)(
               pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed) == CUDA_SUCCESS &&
           allowed;
}

/* The device whose default pool this is and of which the pool knows; -1: none. */
static int mempool_device(CUmemoryPool pool)
{
    for (int device = 0; pool && zone_life_is_on() && device < ZONE_OPTIONS_DEVICES; device++) {
        if (zone_mempool_default(device) == pool) {
            return device;
        }
    }
    return -1;
}

/* What the pools of a device hold in stream order. */
struct held {
    int device;
    bool reset_used;
    bool reset_reserved;
    size_t used, used_high, reserved, reserved_high;
};

static void held_visit(struct zone_pool *pool, void *arg)
{
    struct held *held = arg;
    struct zone_streams *streams = &pool->streams;
    if (pool->device != held->device) {
        return;
    }
    if (held->reset_used) {
        zone_level_reset_peak(&streams->used);
    }
    if (held->reset_reserved) {
        zone_level_reset_peak(&streams->reserved);
    }
    held->used += zone_level_now(&streams->used);
    held->reserved += zone_level_now(&streams->reserved);
    held->used_high += atomic_load_explicit(&streams->used.peak, memory_order_relaxed);
    held->reserved_high += atomic_load_explicit(&streams->reserved.peak, memory_order_relaxed);
}

static struct held mempool_held(int device)
{
    struct held held = {.device = device};
    zone_registry_each(held_visit, &held);
    return held;
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemPoolGetAttribute)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuMemPoolGetAttribute)(pool, attribute, value);
    int device = rc == CUDA_SUCCESS ? mempool_device(pool) : -1;
    if (device < 0 || attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        return rc;
    }
    struct held held = mempool_held(device);
    cuuint64_t *bytes = value;
    *bytes += attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? held.reserved
              : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH  ? held.reserved_high
              : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? held.used
                                                                : held.used_high;
    return rc;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemPoolSetAttribute)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuMemPoolSetAttribute)(pool, attribute, value);
    struct held held = {
        .device = rc == CUDA_SUCCESS ? mempool_device(pool) : -1,
        .reset_used = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        .reset_reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
    };
    if (held.device >= 0 && (held.reset_used || held.reset_reserved)) {
        zone_registry_each(held_visit, &held);
    }
    return rc;
}

struct trim {
    int device;
    size_t rest; /* bytes that the other pools, and the driver's, may not go below */
};

static void trim_visit(struct zone_pool *pool, void *arg)
{
    const struct trim *trim = arg;
    if (pool->device == trim->device) {
        size_t own = zone_level_now(&pool->streams.reserved);
        size_t others = mempool_held(trim->device).reserved - own;
        zone_stream_trim(pool, others < trim->rest ? trim->rest - others : 0);
    }
}

/* The pool's part first, then the driver's, as far as more than keep bytes are there. */
CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemPoolTrimTo)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    int device = mempool_device(pool);
    cuuint64_t real = 0;
    if (device < 0 || ZONE_REAL(driver, cuMemPoolGetAttribute)(
                          pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &real) != CUDA_SUCCESS) {
        return ZONE_REAL(driver, cuMemPoolTrimTo)(pool, keep);
    }
    struct trim trim = {.device = device, .rest = keep > real ? keep - (size_t)real : 0};
    zone_registry_each(trim_visit, &trim);
    size_t own = mempool_held(device).reserved;
    return ZONE_REAL(driver, cuMemPoolTrimTo)(pool, keep > own ? keep - own : 0);
}

CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemPoolSetAccess)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuMemPoolSetAccess)(pool, map, count);
    for (int device = 0; rc == CUDA_SUCCESS && device < ZONE_OPTIONS_DEVICES; device++) {
        CUmemoryPool own = NULL;
        if (!ZONE_REAL(driver, cuDeviceGetDefaultMemPool) ||
            ZONE_REAL(driver, cuDeviceGetDefaultMemPool)(&own, device) != CUDA_SUCCESS) {
            break; /* no more devices */
        }
        for (size_t i = 0; own == pool && i < count; i++) {
            bool other =
                map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id != device;
            if (other && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
                atomic_fetch_or(&mempools[device].state, MEMPOOL_SHARED);
            }
        }
    }
    return rc;
}

/* Another pool may be the current one of a device from now on. */
static void mempool_changed(const struct zone_driver *driver)
{
    for (int device = 0; device < ZONE_OPTIONS_DEVICES; device++) {
        if (atomic_load(&mempools[device].state) & MEMPOOL_LOOKED) {
            mempool_look_again(driver, device);
        }
    }
}

#define MEMPOOL_CHANGES(name, params, args)                                                        \
    CUresult hook_##name params                                                                    \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        CUresult rc = ZONE_REAL(driver, name) args;                                                \
        mempool_changed(driver);                                                                   \
        return rc;                                                                                 \
    }

MEMPOOL_CHANGES(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool))
MEMPOOL_CHANGES(cuMemSetMemPool, (CUmemLocation * location, int type, CUmemoryPool pool),
                (location, type, pool))
MEMPOOL_CHANGES(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
