/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: primary ones, created ones, the stack of each thread, faults. A context structure is
 * never freed, only used again for a later context with another id, as handles recur on a driver.
 */
#include "sim.h"
#include "zsim.h"

#include <string.h>

static struct sim_ctx *contexts;
static unsigned long long last_id;

struct sim_ctx *sim_ctx_first(void)
{
    return contexts;
}

static const size_t default_limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = (size_t)1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = (size_t)8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

static void ctx_start(struct sim_ctx *ctx, unsigned flags)
{
    ctx->id = ++last_id;
    ctx->flags = flags;
    ctx->alive = true;
    ctx->sticky = CUDA_SUCCESS;
    ctx->peers = 0;
    memcpy(ctx->limits, default_limits, sizeof ctx->limits);
    if (ctx->owner == ctx) {
        ctx->legacy = sim_stream_new(ctx, NULL, 0);
        ctx->legacy->legacy = true;
    }
}

static struct sim_ctx *ctx_structure(struct sim_device *device)
{
    struct sim_ctx *ctx = contexts;
    while (ctx && (ctx->alive || ctx->primary || ctx->frees_waiting > 0)) {
        ctx = ctx->next;
    }
    if (!ctx) {
        ctx = sim_calloc(1, sizeof *ctx);
        ctx->next = contexts;
        contexts = ctx;
    }
    ctx->device = device;
    ctx->version = 13000;
    return ctx;
}

struct sim_ctx *sim_ctx_new(struct sim_device *device, unsigned flags)
{
    struct sim_ctx *ctx = ctx_structure(device);
    ctx->owner = ctx;
    ctx_start(ctx, flags);
    return ctx;
}

struct sim_ctx *sim_ctx_new_green(struct sim_ctx *primary)
{
    struct sim_ctx *ctx = ctx_structure(primary->device);
    ctx->owner = primary;
    ctx_start(ctx, primary->flags);
    return ctx;
}

static void free_handle(void *handle, enum sim_kind kind)
{
    switch (kind) {
    case SIM_STREAM:
        sim_handle_drop(handle);
        sim_stream_retire(handle);
        break;
    case SIM_EVENT:
        sim_event_free(handle);
        break;
    case SIM_MODULE:
        sim_module_free(handle);
        break;
    case SIM_ARRAY:
        sim_array_free(handle);
        break;
    case SIM_NONE:
    case SIM_FUNCTION:
    case SIM_GRAPH:
    case SIM_NODE:
    case SIM_EXEC:
    case SIM_POOL:
    case SIM_GREEN:
    case SIM_PHYSICAL:
    case SIM_LIBRARY:
    case SIM_KERNEL:
    case SIM_EXTERNAL:
        sim_handle_drop(handle);
        break;
    }
}

void sim_ctx_teardown(struct sim_ctx *ctx)
{
    sim_ctx_drain(ctx);
    ctx->alive = false;
    enum sim_kind kind;
    void *handle;
    while ((handle = sim_handle_of_ctx(ctx, &kind))) {
        free_handle(handle, kind);
    }
    if (ctx->owner == ctx) {
        sim_block_release_ctx(ctx);
        /* What is left are the legacy and the per-thread streams. */
        struct sim_stream *next;
        for (struct sim_stream *stream = ctx->streams; stream; stream = next) {
            next = stream->next;
            if (!stream->destroyed) {
                sim_stream_retire(stream);
            }
        }
        ctx->legacy = NULL;
    }
    sim_progress();
}

void sim_ctx_fault(struct sim_ctx *ctx, CUresult code)
{
    if (ctx->owner->sticky == CUDA_SUCCESS) {
        ctx->owner->sticky = code;
    }
    sim_progress();
}

struct sim_ctx *sim_ctx_live(CUcontext handle)
{
    for (struct sim_ctx *ctx = contexts; ctx; ctx = ctx->next) {
        if ((CUcontext)ctx == handle && ctx->alive) {
            return ctx;
        }
    }
    return NULL;
}

CUresult sim_current(struct sim_ctx **ret_ctx)
{
    if (sim_self.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct sim_ctx *ctx = sim_self.stack[sim_self.depth - 1].ctx;
    unsigned long long id = sim_self.stack[sim_self.depth - 1].id;
    if (!ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!ctx->alive || (!ctx->primary && ctx->id != id)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *ret_ctx = ctx;
    return ctx->owner->sticky;
}

CUresult sim_begin(struct sim_ctx **ret_ctx)
{
    sim_lock();
    CUresult rc = sim_current(ret_ctx);
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
    }
    return rc;
}

CUresult sim_gate(struct sim_ctx *ctx)
{
    struct sim_ctx *owner = ctx->owner;
    unsigned long long id = owner->id;
    while (owner->frees_waiting > 0 && owner->id == id) {
        sim_wait_progress();
    }
    return owner->alive && owner->id == id ? owner->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

unsigned zsim_frees_waiting(void)
{
    unsigned count = 0;
    sim_lock();
    for (struct sim_ctx *ctx = contexts; ctx; ctx = ctx->next) {
        count += ctx->frees_waiting;
    }
    sim_unlock();
    return count;
}

static CUresult push(struct sim_ctx *ctx)
{
    if (sim_self.depth == sizeof sim_self.stack / sizeof sim_self.stack[0]) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    sim_self.stack[sim_self.depth].ctx = ctx;
    sim_self.stack[sim_self.depth].id = ctx ? ctx->id : 0;
    sim_self.depth++;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *pctx, unsigned flags, CUdevice ordinal)
{
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(ordinal);
    CUresult rc = CUDA_ERROR_INVALID_DEVICE;
    if (device) {
        struct sim_ctx *ctx = sim_ctx_new(device, flags);
        rc = push(ctx);
        *pctx = (CUcontext)ctx;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return create(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                            unsigned int flags, CUdevice dev)
{
    (void)paramsArray;
    return numParams == 0 ? create(pctx, flags, dev) : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult sim_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                            CUdevice dev)
{
    (void)ctxCreateParams;
    return create(pctx, flags, dev);
}

static CUresult destroy(CUcontext handle)
{
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_live(handle);
    if (!ctx || ctx->primary || ctx->owner != ctx) {
        sim_unlock();
        return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_self.depth > 0 && sim_self.stack[sim_self.depth - 1].ctx == ctx) {
        sim_self.depth--;
    }
    sim_ctx_teardown(ctx);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxDestroy(CUcontext ctx)
{
    return destroy(ctx);
}

CUresult sim_cuCtxDestroy_v2(CUcontext ctx)
{
    return destroy(ctx);
}

CUresult sim_cuCtxDetach(CUcontext ctx)
{
    return destroy(ctx);
}

CUresult sim_cuCtxPushCurrent_v2(CUcontext handle)
{
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_live(handle);
    CUresult rc = ctx ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    if (sim_self.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    sim_self.depth--;
    if (pctx) {
        *pctx = (CUcontext)sim_self.stack[sim_self.depth].ctx;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCurrent(CUcontext handle)
{
    sim_lock();
    struct sim_ctx *ctx = handle ? sim_ctx_live(handle) : NULL;
    CUresult rc = CUDA_SUCCESS;
    if (handle && !ctx) {
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        sim_self.depth -= sim_self.depth > 0;
        rc = ctx ? push(ctx) : CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuCtxGetCurrent(CUcontext *pctx)
{
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = sim_self.depth > 0 ? (CUcontext)sim_self.stack[sim_self.depth - 1].ctx : NULL;
    return CUDA_SUCCESS;
}

static void revive(struct sim_device *device)
{
    if (!device->primary) {
        device->primary = sim_ctx_new(device, device->primary_flags);
        device->primary->primary = true;
    } else if (!device->primary->alive) {
        ctx_start(device->primary, device->primary_flags);
    }
}

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    if (device) {
        revive(device);
        device->primary_refs++;
        *pctx = (CUcontext)device->primary;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult end_primary(CUdevice dev, bool all)
{
    sim_lock();
    struct sim_device *device = sim_device_at(dev);
    CUresult rc = CUDA_SUCCESS;
    if (!device) {
        rc = CUDA_ERROR_INVALID_DEVICE;
    } else if (!all && device->primary_refs == 0) {
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        device->primary_refs = all ? 0 : device->primary_refs - 1;
        if (device->primary_refs == 0 && device->primary && device->primary->alive) {
            sim_ctx_teardown(device->primary);
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return end_primary(dev, false);
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return end_primary(dev, false);
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice dev)
{
    return end_primary(dev, true);
}

CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return end_primary(dev, true);
}
