/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls on a context as a whole: what it is, its settings, waiting for it, its events, peers.
 */
#include "sim.h"

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    if (!flags || !active) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    if (device) {
        *flags = device->primary_flags;
        *active = device->primary && device->primary->alive;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    if (device) {
        device->primary_flags = flags;
        if (device->primary) {
            device->primary->flags = flags;
        }
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return sim_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult sim_cuCtxGetDevice(CUdevice *device)
{
    struct sim_ctx *ctx;
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = sim_current(&ctx);
    if (rc != CUDA_ERROR_INVALID_CONTEXT && rc != CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        *device = ctx->device->ordinal;
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

/* The given context, or the current one for NULL; the lock is held on success. */
static CUresult begin_with(CUcontext handle, struct sim_ctx **ret_ctx)
{
    if (!handle) {
        return sim_begin(ret_ctx);
    }
    sim_lock();
    *ret_ctx = sim_ctx_live(handle);
    if (!*ret_ctx) {
        sim_unlock();
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    struct sim_ctx *ctx;
    CUresult rc = device ? begin_with(handle, &ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *device = ctx->device->ordinal;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxGetId(CUcontext handle, unsigned long long *ctxId)
{
    struct sim_ctx *ctx;
    CUresult rc = ctxId ? begin_with(handle, &ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *ctxId = ctx->id;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    struct sim_ctx *ctx;
    CUresult rc = version ? begin_with(handle, &ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *version = ctx->version;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxGetFlags(unsigned int *flags)
{
    struct sim_ctx *ctx;
    CUresult rc = flags ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *flags = ctx->flags;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxSetFlags(unsigned int flags)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        ctx->flags = flags;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct sim_ctx *ctx;
    if (!pvalue || limit >= CU_LIMIT_MAX) {
        return pvalue ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        *pvalue = ctx->limits[limit];
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct sim_ctx *ctx;
    if (limit >= CU_LIMIT_MAX) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        ctx->limits[limit] = value;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    sim_unlock();
    if (leastPriority) {
        *leastPriority = 0;
    }
    if (greatestPriority) {
        *greatestPriority = -5;
    }
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext handle)
{
    struct sim_ctx *ctx;
    CUresult rc = begin_with(handle, &ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_capture_check_ctx(ctx);
    if (rc == CUDA_SUCCESS) {
        sim_ctx_drain(ctx);
        rc = ctx->owner->sticky;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxSynchronize(void)
{
    return synchronize(NULL);
}

CUresult sim_cuCtxSynchronize_v2(CUcontext ctx)
{
    return synchronize(ctx);
}

static CUresult record(struct sim_ctx *ctx, CUevent handle)
{
    struct sim_event *event = (struct sim_event *)handle;
    if (!ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!sim_handle_is(event, SIM_EVENT) || event->ctx != ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult rc = sim_capture_check_ctx(ctx);
    if (rc == CUDA_SUCCESS) {
        rc = sim_gate(ctx);
    }
    if (rc == CUDA_SUCCESS && !sim_handle_is(event, SIM_EVENT)) {
        rc = CUDA_ERROR_INVALID_HANDLE; /* destroyed while this thread was held up */
    }
    if (rc == CUDA_SUCCESS) {
        sim_event_uncapture(event);
        sim_op_unref(event->op);
        event->op = sim_ctx_join(ctx);
        if (event->shared) {
            sim_shared_record(event->shared, event->op);
        }
    }
    return rc;
}

CUresult sim_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    sim_lock();
    CUresult rc = record(sim_ctx_live(hCtx), hEvent);
    sim_unlock();
    return rc;
}

static CUresult wait_event(struct sim_ctx *ctx, CUevent handle)
{
    struct sim_event *event = (struct sim_event *)handle;
    if (!ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!sim_handle_is(event, SIM_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult rc = sim_capture_check_ctx(ctx);
    if (rc == CUDA_SUCCESS && sim_capture_event_busy(event) != CUDA_SUCCESS) {
        sim_capture_invalidate(event->capture);
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (rc == CUDA_SUCCESS && event->op && !event->op->done) {
        size_t room = ctx->barrier_count;
        ctx->barriers =
            sim_grow(ctx->barriers, &room, ctx->barrier_count + 1, sizeof(struct sim_op *));
        ctx->barriers[ctx->barrier_count++] = event->op;
        sim_op_ref(event->op);
    }
    return rc;
}

CUresult sim_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    sim_lock();
    CUresult rc = wait_event(sim_ctx_live(hCtx), hEvent);
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct sim_ctx *ctx;
    CUresult rc = Flags == 0 ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_ctx *peer = sim_ctx_live(peerContext);
    if (!peer || peer->device == ctx->device) {
        rc = peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT;
    } else if (ctx->peers & (1u << peer->device->ordinal)) {
        rc = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    } else {
        ctx->peers |= 1u << peer->device->ordinal;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_ctx *peer = sim_ctx_live(peerContext);
    if (!peer) {
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!(ctx->peers & (1u << peer->device->ordinal))) {
        rc = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    } else {
        ctx->peers &= ~((uint64_t)1 << peer->device->ordinal);
    }
    sim_unlock();
    return rc;
}
