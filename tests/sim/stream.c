/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams as the program sees them, and sim_submit(), the one way by which work enters a queue or
 * a capture. queue.c orders and runs it.
 */
#include "sim.h"

#include <stdlib.h>

static unsigned long long last_stream_id;
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

struct sim_stream *sim_stream_new(struct sim_ctx *ctx, struct sim_ctx *green, unsigned flags)
{
    struct sim_stream *stream = sim_calloc(1, sizeof *stream);
    stream->ctx = ctx;
    stream->green = green;
    stream->flags = flags;
    stream->id = ++last_stream_id;
    pthread_cond_init(&stream->wake, NULL);
    stream->next = ctx->streams;
    if (ctx->streams) {
        ctx->streams->prev = stream;
    }
    ctx->streams = stream;
    return stream;
}

/* A thread's per-thread streams finish what they have and go with it. */
static void thread_gone(void *self)
{
    sim_lock();
    for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        struct sim_stream *next;
        for (struct sim_stream *stream = ctx->streams; stream; stream = next) {
            next = stream->next;
            if (stream->thread == self && !stream->destroyed) {
                stream->thread = NULL;
                sim_stream_retire(stream);
            }
        }
    }
    sim_unlock();
}

static void make_key(void)
{
    pthread_key_create(&thread_key, thread_gone);
}

static struct sim_stream *per_thread_stream(struct sim_ctx *ctx)
{
    for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
        if (stream->thread == &sim_self && !stream->destroyed) {
            return stream;
        }
    }
    pthread_once(&thread_once, make_key);
    pthread_setspecific(thread_key, &sim_self);
    struct sim_stream *stream = sim_stream_new(ctx, NULL, CU_STREAM_DEFAULT);
    stream->thread = &sim_self;
    return stream;
}

CUresult sim_stream_find(CUstream handle, struct sim_ctx *ctx, struct sim_stream **ret_stream)
{
    if (handle == CU_STREAM_PER_THREAD || (!handle && sim_self.per_thread)) {
        *ret_stream = per_thread_stream(ctx->owner);
        return CUDA_SUCCESS;
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        *ret_stream = ctx->owner->legacy;
        return CUDA_SUCCESS;
    }
    if (!sim_handle_is(handle, SIM_STREAM)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_stream = (struct sim_stream *)handle;
    return (*ret_stream)->ctx->sticky;
}

/* Finds stream and context of a call; on success the lock is held. */
static CUresult begin(CUstream handle, struct sim_stream **ret_stream)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_stream_find(handle, ctx, ret_stream);
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
    }
    return rc;
}

/* The gate may let other threads run, so the stream is looked up again behind it. */
static CUresult submit(CUstream handle, struct sim_work *work, struct sim_op **ret_op)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    CUresult rc = sim_current(&ctx);
    rc = rc == CUDA_SUCCESS ? sim_stream_find(handle, ctx, &stream) : rc;
    if (rc == CUDA_SUCCESS && stream->capture) {
        return sim_capture_add(stream, work);
    }
    rc = rc == CUDA_SUCCESS ? sim_capture_check_legacy(stream) : rc;
    rc = rc == CUDA_SUCCESS ? sim_gate(stream->ctx) : rc;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(handle, ctx, &stream) : rc;
    if (rc != CUDA_SUCCESS) {
        sim_work_unref(work);
        return rc;
    }
    struct sim_op *op = sim_op_new(work);
    sim_stream_queue(stream, op);
    if (ret_op) {
        *ret_op = op;
    } else {
        sim_op_unref(op);
    }
    return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream handle, struct sim_work *work, struct sim_op **ret_op)
{
    if (ret_op) {
        *ret_op = NULL;
    }
    return submit(handle, work, ret_op);
}

static CUresult create(CUstream *phStream, unsigned flags, int priority)
{
    struct sim_ctx *ctx;
    if (!phStream || flags > CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_ctx *green = ctx->owner == ctx ? NULL : ctx;
    struct sim_stream *stream = sim_stream_new(ctx->owner, green, flags);
    stream->priority = priority;
    sim_handle_add(stream, SIM_STREAM, ctx);
    *phStream = (CUstream)stream;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return create(phStream, Flags, 0);
}

CUresult sim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    return create(phStream, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
}

CUresult sim_cuStreamDestroy_v2(CUstream hStream)
{
    sim_lock();
    if (!sim_handle_is(hStream, SIM_STREAM)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct sim_stream *stream = (struct sim_stream *)hStream;
    sim_handle_drop(stream);
    sim_stream_retire(stream);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamDestroy(CUstream hStream)
{
    return sim_cuStreamDestroy_v2(hStream);
}

/* For calls that look at a stream's progress: a capture does not allow them. */
static CUresult begin_progress(CUstream handle, struct sim_stream **ret_stream)
{
    CUresult rc = begin(handle, ret_stream);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if ((*ret_stream)->capture) {
        sim_capture_invalidate((*ret_stream)->capture);
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else {
        rc = sim_capture_check_legacy(*ret_stream);
        rc = rc == CUDA_SUCCESS ? sim_capture_check_unsafe() : rc;
    }
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
    }
    return rc;
}

/* The legacy stream's own idleness includes the streams it orders itself with. */
static struct sim_op *stream_join(struct sim_stream *stream)
{
    struct sim_op *join = sim_op_new(NULL);
    sim_op_depend(join, stream->last);
    if (stream->legacy) {
        for (struct sim_stream *other = stream->ctx->streams; other; other = other->next) {
            if (!(other->flags & CU_STREAM_NON_BLOCKING)) {
                sim_op_depend(join, other->last);
            }
        }
    }
    sim_op_start(join);
    return join;
}

CUresult sim_cuStreamQuery(CUstream hStream)
{
    struct sim_stream *stream;
    CUresult rc = begin_progress(hStream, &stream);
    if (rc == CUDA_SUCCESS) {
        struct sim_op *join = stream_join(stream);
        rc = join->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        sim_op_unref(join);
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamSynchronize(CUstream hStream)
{
    struct sim_stream *stream;
    CUresult rc = begin_progress(hStream, &stream);
    if (rc == CUDA_SUCCESS) {
        struct sim_ctx *ctx = stream->ctx;
        struct sim_op *join = stream_join(stream);
        sim_op_wait(join);
        sim_op_unref(join);
        rc = ctx->sticky;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct sim_stream *stream;
    CUresult rc = flags ? begin(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *flags = stream->flags;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct sim_stream *stream;
    CUresult rc = priority ? begin(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *priority = stream->priority;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct sim_stream *stream;
    CUresult rc = streamId ? begin(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *streamId = stream->id;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct sim_stream *stream;
    CUresult rc = device ? begin(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *device = stream->ctx->device->ordinal;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct sim_stream *stream;
    CUresult rc = pctx ? begin(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS) {
        *pctx = (CUcontext)(stream->green ? stream->green : stream->ctx);
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct sim_stream *stream;
    struct sim_event *event = (struct sim_event *)hEvent;
    CUresult rc =
        Flags > CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : begin(hStream, &stream);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(event, SIM_EVENT)) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (stream->capture || event->capture) {
        rc = sim_capture_wait(stream, event);
    } else {
        rc = sim_capture_check_legacy(stream);
        bool elsewhere = event->shared != NULL;
        if (rc == CUDA_SUCCESS && (elsewhere || (event->op && !event->op->done))) {
            struct sim_op *op = sim_op_new(elsewhere ? sim_shared_work(event->shared) : NULL);
            sim_op_depend(op, event->op);
            sim_stream_queue(stream, op);
            sim_op_unref(op);
        }
    }
    sim_unlock();
    return rc;
}
