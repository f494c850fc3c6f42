/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that begin, end and look at captures.
 */
#include "capture.h"

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
        sim_capture_start(stream, mode, graph, deps, count);
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
    } else if (capture) {
        bool wrong =
            capture->thread != &sim_self && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        rc = wrong                  ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
             : capture->invalid     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : !all_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                    : CUDA_SUCCESS;
        *phGraph = rc == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
        if (rc != CUDA_SUCCESS && capture->own_graph) {
            sim_graph_free(capture->graph);
        }
        sim_capture_end(capture);
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
    if (rc == CUDA_SUCCESS && sim_capture_implicit(*ret_stream)) {
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
