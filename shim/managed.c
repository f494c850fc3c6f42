/* SPDX-License-Identifier: Apache-2.0
 *
 * Managed allocations and __managed__ variables, counted in zone_process.host_watched. Variables
 * stay counted: which module holds them, and until when, is not followed.
 */
#include "managed.h"

#include "capture.h"
#include "context.h"
#include "hooks.h"
#include "life.h"
#include "ptrmap.h"
#include "retry.h"
#include "tally.h"
#include "zone_gpu_driver.h"

static void managed_watch(int by)
{
    atomic_fetch_add(&zone_life_process()->host_watched, by);
}

/* Enters a managed allocation in the pointer map, so that its free is noticed. */
static void managed_enter(const struct zone_driver *driver, CUdeviceptr dptr, size_t bytes)
{
    CUcontext ctx;
    struct zone_pool *pool = zone_context_pool(driver, &ctx);
    if (!pool && ctx && !zone_capture_is_active()) {
        pool = zone_context_adopt(ctx, dptr);
    }
    managed_watch(1);
    if (pool) {
        const struct zone_block like = {
            .addr = dptr,
            .bytes = bytes,
            .req_bytes = bytes,
            .pool = pool,
            .kind = ZONE_BLOCK_MANAGED,
            .state = ZONE_BLOCK_LIVE,
        };
        /* If it cannot be entered it is watched for good: waits too often, never too rarely. */
        zone_ptrmap_enter(&like);
    }
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemAllocManaged)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuMemAllocManaged)(dptr, bytes, flags);
    unsigned tries = 0;
    while (zone_retry_worth(driver, rc, &tries)) {
        rc = zone_retry_done(ZONE_REAL(driver, cuMemAllocManaged)(dptr, bytes, flags));
    }
    if (rc == CUDA_SUCCESS && zone_life_start()) {
        ZONE_TALLY(bypass_managed);
        managed_enter(driver, *dptr, bytes);
    }
    return rc;
}

CUresult zone_managed_free(const struct zone_driver *driver, struct zone_block *block)
{
    uint8_t live = ZONE_BLOCK_LIVE;
    CUdeviceptr dptr = block->addr;
    /* Out of the map before the driver may give the address out again. */
    bool mine = atomic_compare_exchange_strong(&block->state, &live, ZONE_BLOCK_LEAVING);
    CUresult rc = ZONE_REAL(driver, cuMemFree_v2)(dptr);
    if (mine && rc == CUDA_SUCCESS) {
        zone_ptrmap_remove(block);
        zone_block_delete(block);
        managed_watch(-1);
    } else if (mine) {
        atomic_store(&block->state, ZONE_BLOCK_LIVE);
    }
    return rc;
}

/* A variable that the program looked up: if it is managed, the host may watch it from now on. A
 * process that has not allocated yet starts here, or the variable would be missed. */
static CUresult managed_variable(CUresult rc, const CUdeviceptr *dptr)
{
    if (rc == CUDA_SUCCESS && dptr && *dptr && !zone_capture_is_active() &&
        zone_gpu_is_managed(*dptr) && zone_life_start()) {
        managed_watch(1);
    }
    return rc;
}

#define MANAGED_VARIABLE(name, type)                                                               \
    CUresult hook_##name(CUdeviceptr *dptr, size_t *bytes, type where, const char *variable)       \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        return managed_variable(ZONE_REAL(driver, name)(dptr, bytes, where, variable), dptr);      \
    }

MANAGED_VARIABLE(cuModuleGetGlobal_v2, CUmodule)
MANAGED_VARIABLE(cuLibraryGetGlobal, CUlibrary)
MANAGED_VARIABLE(cuLibraryGetManaged, CUlibrary)
