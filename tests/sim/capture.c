/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: which streams record instead of run, which calls a capture prohibits and how it
 * is invalidated. An invalidated capture goes on prohibiting until it is ended.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture {
    int refs; /* the list and the events recorded in it */
    cuuint64_t id;
    CUstreamCaptureMode mode;
    const struct sim_thread *thread;
    struct sim_stream *origin;
    struct sim_graph *graph;
    bool own_graph, invalid, ended;
    struct sim_capture *next;
};

static struct sim_capture *captures;
static cuuint64_t last_id;

static void capture_unref(struct sim_capture *capture)
{
    if (capture && --capture->refs == 0) {
        free(capture);
    }
}

static void set_frontier(struct sim_stream *stream, struct sim_node *const *nodes, size_t count)
{
    struct sim_node **copy = sim_calloc(count + 1, sizeof(struct sim_node *));
    for (size_t i = 0; i < count; i++) {
        copy[i] = nodes[i];
    }
    free(stream->frontier);
    stream->frontier = copy;
    stream->frontier_count = count;
}

static void detach(struct sim_stream *stream)
{
    free(stream->frontier);
    stream->frontier = NULL;
    stream->frontier_count = 0;
    stream->capture = NULL;
}

bool sim_capture_active(const struct sim_capture *capture)
{
    return capture && !capture->ended;
}

void sim_capture_invalidate(struct sim_capture *capture)
{
    capture->invalid = true;
}

CUresult sim_capture_check_unsafe(void)
{
    CUresult rc = CUDA_SUCCESS;
    if (sim_self.mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return rc;
    }
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        bool own = capture->thread == &sim_self;
        bool prohibits = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   sim_self.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (prohibits) {
            sim_capture_invalidate(capture);
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

CUresult sim_capture_check_ctx(struct sim_ctx *ctx)
{
    CUresult rc = CUDA_SUCCESS;
    for (struct sim_stream *stream = ctx->owner->streams; stream; stream = stream->next) {
        if (stream->capture && (ctx == ctx->owner || stream->green == ctx)) {
            sim_capture_invalidate(stream->capture);
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

/* A capturing blocking stream that the legacy stream would have to order itself with. */
static struct sim_capture *implicit(const struct sim_stream *stream)
{
    for (struct sim_stream *other = stream->ctx->streams; stream->legacy && other;
         other = other->next) {
        if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
            return other->capture;
        }
    }
    return NULL;
}

CUresult sim_capture_check_legacy(struct sim_stream *stream)
{
    struct sim_capture *capture = implicit(stream);
    if (capture) {
        sim_capture_invalidate(capture);
    }
    return capture ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult sim_capture_add(struct sim_stream *stream, struct sim_work *work)
{
    if (stream->capture->invalid) {
        sim_work_unref(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct sim_node *node =
        sim_graph_add(stream->capture->graph, work, stream->frontier, stream->frontier_count);
    set_frontier(stream, &node, 1);
    return CUDA_SUCCESS;
}

void sim_event_uncapture(struct sim_event *event)
{
    free(event->nodes);
    event->nodes = NULL;
    event->node_count = 0;
    capture_unref(event->capture);
    event->capture = NULL;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
    if (stream->capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    sim_event_uncapture(event);
    sim_op_unref(event->op);
    event->op = NULL;
    event->capture = stream->capture;
    event->capture->refs++;
    event->node_count = stream->frontier_count;
    event->nodes = sim_calloc(event->node_count + 1, sizeof(struct sim_node *));
    for (size_t i = 0; i < event->node_count; i++) {
        event->nodes[i] = stream->frontier[i];
    }
    return CUDA_SUCCESS;
}

static void merge_frontier(struct sim_stream *stream, const struct sim_event *event)
{
    size_t total = stream->frontier_count + event->node_count;
    struct sim_node **nodes = sim_calloc(total + 1, sizeof(struct sim_node *));
    size_t count = 0;
    for (size_t i = 0; i < total; i++) {
        struct sim_node *node = i < stream->frontier_count
                                    ? stream->frontier[i]
                                    : event->nodes[i - stream->frontier_count];
        bool known = false;
        for (size_t j = 0; j < count; j++) {
            known = known || nodes[j] == node;
        }
        if (!known) {
            nodes[count++] = node;
        }
    }
    set_frontier(stream, nodes, count);
    free(nodes);
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event)
{
    struct sim_capture *capture = event->capture;
    if (stream->capture && stream->capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (!sim_capture_active(capture)) {
        if (!stream->capture || !event->op) {
            return CUDA_SUCCESS;
        }
        sim_capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->legacy) {
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!stream->capture) {
        stream->capture = capture;
        set_frontier(stream, event->nodes, event->node_count);
    } else if (stream->capture != capture) {
        sim_capture_invalidate(stream->capture);
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    } else {
        merge_frontier(stream, event);
    }
    return CUDA_SUCCESS;
}

CUresult sim_capture_event_busy(struct sim_event *event)
{
    if (!sim_capture_active(event->capture)) {
        return CUDA_SUCCESS;
    }
    sim_capture_invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static void each_stream(struct sim_capture *capture, void (*visit)(struct sim_stream *))
{
    for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (stream->capture == capture) {
                visit(stream);
            }
        }
    }
}

static void capture_end(struct sim_capture *capture)
{
    each_stream(capture, detach);
    struct sim_capture **link = &captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    capture->ended = true;
    capture_unref(capture);
}

void sim_capture_stream_gone(struct sim_stream *stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture) {
        return;
    }
    sim_capture_invalidate(capture);
    detach(stream);
    if (capture->origin == stream) {
        if (capture->own_graph) {
            sim_graph_free(capture->graph);
        }
        capture_end(capture);
    }
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, struct sim_graph *graph,
                      struct sim_node *const *deps, size_t count)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_stream_find(handle, ctx, &stream);
    if (rc == CUDA_SUCCESS && stream->legacy) {
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (rc == CUDA_SUCCESS && stream->capture) {
        rc = CUDA_ERROR_ILLEGAL_STATE;
    }
    if (rc == CUDA_SUCCESS) {
        struct sim_capture *capture = sim_calloc(1, sizeof *capture);
        capture->refs = 1;
        capture->id = ++last_id;
        capture->mode = mode;
        capture->thread = &sim_self;
        capture->origin = stream;
        capture->own_graph = !graph;
        capture->graph = graph ? graph : sim_graph_new();
        capture->next = captures;
        captures = capture;
        stream->capture = capture;
        set_frontier(stream, deps, count);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuStreamBeginCapture(CUstream hStream)
{
    return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

CUresult sim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, mode, NULL, NULL, 0);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                         const CUgraphNode *dependencies,
                                         const CUgraphEdgeData *dependencyData,
                                         size_t numDependencies, CUstreamCaptureMode mode)
{
    (void)dependencyData;
    sim_lock();
    bool known = sim_handle_is(hGraph, SIM_GRAPH);
    sim_unlock();
    return known ? begin(hStream, mode, (struct sim_graph *)hGraph,
                         (struct sim_node *const *)dependencies, numDependencies)
                 : CUDA_ERROR_INVALID_VALUE;
}

/* Every branch of a capture has to lead back to the stream it began on. */
static bool all_joined(const struct sim_capture *capture)
{
    for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
            for (size_t i = 0; stream->capture == capture && i < stream->frontier_count; i++) {
                if (!sim_node_reaches(capture->origin->frontier, capture->origin->frontier_count,
                                      stream->frontier[i])) {
                    return false;
                }
            }
        }
    }
    return true;
}

CUresult sim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    CUresult rc = phGraph ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_stream_find(hStream, ctx, &stream);
    struct sim_capture *capture = rc == CUDA_SUCCESS ? stream->capture : NULL;
    if (rc == CUDA_SUCCESS && !capture) {
        rc = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture && capture->origin != stream) {
        rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (capture && capture->thread != &sim_self &&
               capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        rc = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else if (capture) {
        rc = capture->invalid       ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : !all_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                    : CUDA_SUCCESS;
        *phGraph = rc == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
        if (rc != CUDA_SUCCESS && capture->own_graph) {
            sim_graph_free(capture->graph);
        }
        capture_end(capture);
    }
    sim_unlock();
    return rc;
}

/* The stream's capture, also of the legacy stream, which has none but may be in another's way. */
static CUresult look(CUstream handle, struct sim_stream **ret_stream)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_stream_find(handle, ctx, ret_stream);
    if (rc == CUDA_SUCCESS && implicit(*ret_stream)) {
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
    }
    return rc;
}

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
    return !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *status,
                                       cuuint64_t *id, CUgraph *graph,
                                       const CUgraphNode **dependencies, size_t *numDependencies)
{
    struct sim_stream *stream;
    CUresult rc = status ? look(hStream, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    *status = status_of(stream);
    if (stream->capture && id) {
        *id = stream->capture->id;
    }
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (graph) {
            *graph = (CUgraph)stream->capture->graph;
        }
        if (dependencies) {
            *dependencies = (const CUgraphNode *)stream->frontier;
        }
        if (numDependencies) {
            *numDependencies = stream->frontier_count;
        }
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *status,
                                       cuuint64_t *id, CUgraph *graph,
                                       const CUgraphNode **dependencies,
                                       const CUgraphEdgeData **edgeData, size_t *numDependencies)
{
    if (edgeData) {
        *edgeData = NULL;
    }
    return sim_cuStreamGetCaptureInfo_v2(hStream, status, id, graph, dependencies, numDependencies);
}

CUresult sim_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return sim_cuStreamGetCaptureInfo_v2(hStream, status, id, NULL, NULL, NULL);
}

CUresult sim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return sim_cuStreamGetCaptureInfo_v2(hStream, captureStatus, NULL, NULL, NULL, NULL);
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode old = sim_self.mode;
    sim_self.mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
