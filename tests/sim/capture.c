/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: which streams record instead of run, which calls a capture prohibits and how it
 * is invalidated. An invalidated capture goes on prohibiting until it is ended.
 */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

static struct sim_capture *captures;

static void capture_unref(struct sim_capture *capture)
{
    if (capture && --capture->refs == 0) {
        free(capture);
    }
}

void sim_stream_set_frontier(struct sim_stream *stream, struct sim_node *const *nodes, size_t count)
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
struct sim_capture *sim_capture_implicit(const struct sim_stream *stream)
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
    struct sim_capture *capture = sim_capture_implicit(stream);
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
    sim_stream_set_frontier(stream, &node, 1);
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
    sim_stream_set_frontier(stream, nodes, count);
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
        sim_stream_set_frontier(stream, event->nodes, event->node_count);
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

void sim_capture_end(struct sim_capture *capture)
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
        sim_capture_end(capture);
    }
}

void sim_capture_start(struct sim_stream *stream, CUstreamCaptureMode mode, struct sim_graph *graph,
                       struct sim_node *const *deps, size_t count)
{
    static cuuint64_t last_id;
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
    sim_stream_set_frontier(stream, deps, count);
}
