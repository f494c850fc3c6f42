/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls after which somebody else may hold the memory itself: another process, a network card, a
 * peer's driver. Such a block is tainted: its free is the driver's, and it is never handed out
 * again. The calls go to the driver with their own arguments; for memory that the program has freed
 * they fail as natively.
 */
#include "hooks.h"
#include "pool.h"
#include "query.h"

/* Taints what the address lies in. False if natively nothing would be there. */
static bool sharing_taint(const struct zone_driver *driver, CUdeviceptr ptr)
{
    struct zone_block *block = NULL;
    enum zone_query_place place = zone_query_find(driver, ptr, &block);
    if (place == ZONE_QUERY_LIVE) {
        zone_pool_taint(block);
    }
    return place != ZONE_QUERY_FREE;
}

#define SHARING_HOOK(name, params, args, ptr)                                                      \
    CUresult hook_##name params                                                                    \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        return sharing_taint(driver, ptr) ? ZONE_REAL(driver, name) args                           \
                                          : CUDA_ERROR_INVALID_VALUE;                              \
    }

SHARING_HOOK(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr dptr), (handle, dptr), dptr)
SHARING_HOOK(cuPointerSetAttribute,
             (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
             (value, attribute, ptr), ptr)
SHARING_HOOK(cuMemGetHandleForAddressRange,
             (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType type,
              unsigned long long flags),
             (handle, dptr, size, type, flags), dptr)
