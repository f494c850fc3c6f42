/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls after which somebody else may hold the memory itself: another process, a network card, a
 * peer's driver. Such a block is tainted: its free is the driver's, and it is never handed out
 * again. The calls go to the driver with their own arguments; for memory that the program has freed
 * they fail as natively.
 */
#include "hooks.h"
#include "ipc.h"
#include "pool.h"
#include "query.h"

#include <string.h>

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

/* A block that was cut from a segment: the driver would share all of the segment. */
static struct zone_block *sharing_cut(const struct zone_driver *driver, CUdeviceptr ptr)
{
    struct zone_block *block = NULL;
    enum zone_query_place place = zone_query_find(driver, ptr, &block);
    return place == ZONE_QUERY_LIVE && block->segment ? block : NULL;
}

/* Stream-ordered memory has no such handle. */
static bool sharing_is_in_stream(const struct zone_driver *driver, CUdeviceptr ptr)
{
    struct zone_block *block = NULL;
    return zone_query_find(driver, ptr, &block) == ZONE_QUERY_LIVE && block->in_stream;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuIpcGetMemHandle)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (sharing_is_in_stream(driver, dptr) || !sharing_taint(driver, dptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct zone_block *cut = handle ? sharing_cut(driver, dptr) : NULL;
    return cut ? zone_ipc_get(driver, handle, cut)
               : ZONE_REAL(driver, cuIpcGetMemHandle)(handle, dptr);
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                            CUmemRangeHandleType type, unsigned long long flags)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuMemGetHandleForAddressRange)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    struct zone_block *cut = sharing_cut(driver, dptr);
    if (cut && size > cut->req_bytes - (dptr - cut->addr)) {
        return CUDA_ERROR_INVALID_VALUE; /* others' bytes */
    }
    return sharing_taint(driver, dptr)
               ? ZONE_REAL(driver, cuMemGetHandleForAddressRange)(handle, dptr, size, type, flags)
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                    CUdeviceptr ptr)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuPointerSetAttribute)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!sharing_taint(driver, ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = ZONE_REAL(driver, cuPointerSetAttribute)(value, attribute, ptr);
    struct zone_block *cut = rc == CUDA_SUCCESS ? sharing_cut(driver, ptr) : NULL;
    if (cut && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        int set;
        memcpy(&set, value, sizeof(set));
        cut->sync_memops = set != 0;
    }
    return rc;
}
