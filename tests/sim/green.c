/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: a share of a device's multiprocessors. Their memory and streams belong to the
 * primary context; only their events and waits are narrower.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_green {
    struct sim_ctx *ctx;
};

CUresult sim_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                    CUdevResourceType type)
{
    if (!resource || type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    bool known = sim_device_at(device) != NULL;
    sim_unlock();
    if (!known) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = 132;
    return CUDA_SUCCESS;
}

CUresult sim_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
                                         const CUdevResource *input, CUdevResource *remaining,
                                         unsigned int useFlags, unsigned int minCount)
{
    (void)useFlags;
    if (!nbGroups || !input || minCount == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned each = (minCount + 7) & ~7u;
    unsigned most = input->sm.smCount / each;
    unsigned groups = result && *nbGroups < most ? *nbGroups : most;
    for (unsigned i = 0; result && i < groups; i++) {
        result[i] = *input;
        result[i].sm.smCount = each;
    }
    if (remaining) {
        *remaining = *input;
        remaining->sm.smCount = input->sm.smCount - groups * each;
    }
    *nbGroups = groups;
    return CUDA_SUCCESS;
}

/* A description is only handed on, so any constant serves as one. */
CUresult sim_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                       unsigned int nbResources)
{
    static char descriptor;
    if (!phDesc || !resources || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phDesc = (CUdevResourceDesc)(void *)&descriptor;
    return CUDA_SUCCESS;
}

/* The primary context is initialised if it is not, and kept for the green context's life. */
CUresult sim_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                              unsigned int flags)
{
    CUcontext primary;
    if (!phCtx || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_cuDevicePrimaryCtxRetain(&primary, dev);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    struct sim_green *green = sim_calloc(1, sizeof *green);
    green->ctx = sim_ctx_new_green(device->primary);
    sim_handle_add(green, SIM_GREEN, device->primary);
    *phCtx = (CUgreenCtx)green;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    sim_lock();
    if (!sim_handle_is(hCtx, SIM_GREEN)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct sim_green *green = (struct sim_green *)hCtx;
    CUdevice ordinal = green->ctx->device->ordinal;
    sim_handle_drop(green);
    sim_ctx_teardown(green->ctx);
    free(green);
    sim_unlock();
    return sim_cuDevicePrimaryCtxRelease_v2(ordinal);
}

static CUresult ctx_of(CUgreenCtx handle, struct sim_ctx **ret_ctx)
{
    sim_lock();
    if (!sim_handle_is(handle, SIM_GREEN)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_ctx = ((struct sim_green *)handle)->ctx;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct sim_ctx *ctx;
    CUresult rc = pContext ? ctx_of(hCtx, &ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *pContext = (CUcontext)ctx;
    }
    return rc;
}

CUresult sim_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                    int priority)
{
    struct sim_ctx *ctx;
    if (!phStream || flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = ctx_of(greenCtx, &ctx);
    if (rc == CUDA_SUCCESS) {
        sim_lock();
        struct sim_stream *stream = sim_stream_new(ctx->owner, ctx, flags);
        stream->priority = priority;
        sim_handle_add(stream, SIM_STREAM, ctx);
        *phStream = (CUstream)stream;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct sim_ctx *ctx;
    CUresult rc = ctx_of(hCtx, &ctx);
    return rc == CUDA_SUCCESS ? sim_cuCtxRecordEvent((CUcontext)ctx, hEvent) : rc;
}

CUresult sim_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct sim_ctx *ctx;
    CUresult rc = ctx_of(hCtx, &ctx);
    return rc == CUDA_SUCCESS ? sim_cuCtxWaitEvent((CUcontext)ctx, hEvent) : rc;
}
