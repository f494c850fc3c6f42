/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: an event points at the operation of its newest record, so recording it again never
 * disturbs those who already wait for the older one.
 */
#include "sim.h"

#include <stdlib.h>

CUresult sim_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct sim_ctx *ctx;
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!phEvent || (Flags & ~known) ||
        ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        struct sim_event *event = sim_calloc(1, sizeof *event);
        event->ctx = ctx;
        event->flags = Flags;
        event->shared = Flags & CU_EVENT_INTERPROCESS ? sim_shared_new() : NULL;
        sim_handle_add(event, SIM_EVENT, ctx);
        *phEvent = (CUevent)event;
        sim_unlock();
    }
    return rc;
}

void sim_event_free(struct sim_event *event)
{
    sim_handle_drop(event);
    sim_event_uncapture(event);
    sim_op_unref(event->op);
    free(event);
}

CUresult sim_cuEventDestroy_v2(CUevent hEvent)
{
    sim_lock();
    bool known = sim_handle_is(hEvent, SIM_EVENT);
    if (known) {
        sim_event_free((struct sim_event *)hEvent);
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuEventDestroy(CUevent hEvent)
{
    return sim_cuEventDestroy_v2(hEvent);
}

static CUresult record(CUevent handle, CUstream stream_handle)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    struct sim_event *event = (struct sim_event *)handle;
    CUresult rc = sim_current(&ctx);
    rc = rc == CUDA_SUCCESS ? sim_stream_find(stream_handle, ctx, &stream) : rc;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(event, SIM_EVENT) || event->ctx->owner != stream->ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture) {
        return sim_capture_record(stream, event);
    }
    rc = sim_capture_check_legacy(stream);
    rc = rc == CUDA_SUCCESS ? sim_gate(stream->ctx) : rc;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(stream_handle, ctx, &stream) : rc;
    if (rc == CUDA_SUCCESS && !sim_handle_is(event, SIM_EVENT)) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    if (rc == CUDA_SUCCESS) {
        sim_event_uncapture(event);
        sim_op_unref(event->op);
        event->op = sim_op_new(NULL);
        sim_stream_queue(stream, event->op);
        if (event->shared) {
            sim_shared_record(event->shared, event->op);
        }
    }
    return rc;
}

CUresult sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    if (flags > CU_EVENT_RECORD_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = record(hEvent, hStream);
    sim_unlock();
    return rc;
}

CUresult sim_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return sim_cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

/* The event as an operand of a call that asks for its progress; the lock must be held. */
static CUresult check(struct sim_event *event)
{
    if (!sim_handle_is(event, SIM_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult rc = sim_capture_event_busy(event);
    rc = rc == CUDA_SUCCESS ? sim_capture_check_unsafe() : rc;
    return rc == CUDA_SUCCESS ? event->ctx->owner->sticky : rc;
}

CUresult sim_cuEventQuery(CUevent hEvent)
{
    struct sim_event *event = (struct sim_event *)hEvent;
    sim_lock();
    CUresult rc = check(event);
    if (rc == CUDA_SUCCESS && event->shared) {
        bool done = sim_shared_done(event->shared, sim_shared_ticket(event->shared));
        rc = done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    } else if (rc == CUDA_SUCCESS && event->op && !event->op->done) {
        rc = CUDA_ERROR_NOT_READY;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuEventSynchronize(CUevent hEvent)
{
    struct sim_event *event = (struct sim_event *)hEvent;
    sim_lock();
    CUresult rc = check(event);
    if (rc == CUDA_SUCCESS && event->shared) {
        struct sim_shared *shared = event->shared;
        sim_unlock();
        sim_shared_wait(shared, sim_shared_ticket(shared));
        return CUDA_SUCCESS;
    }
    if (rc == CUDA_SUCCESS && event->op) {
        struct sim_ctx *owner = event->ctx->owner;
        struct sim_op *op = event->op;
        sim_op_ref(op); /* another thread may record or destroy the event meanwhile */
        sim_op_wait(op);
        sim_op_unref(op);
        rc = owner->sticky;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    struct sim_event *start = (struct sim_event *)hStart;
    struct sim_event *end = (struct sim_event *)hEnd;
    if (!pMilliseconds) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = check(start);
    rc = rc == CUDA_SUCCESS ? check(end) : rc;
    if (rc == CUDA_SUCCESS) {
        if (!start->op || !end->op || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)) {
            rc = CUDA_ERROR_INVALID_HANDLE;
        } else if (!start->op->done || !end->op->done) {
            rc = CUDA_ERROR_NOT_READY;
        } else {
            int64_t ns = (int64_t)(end->op->finished_ns - start->op->finished_ns);
            *pMilliseconds = (float)ns / 1e6f;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return sim_cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
