/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs. Branches run beside each other: each further branch gets a stream of its own
 * for the launch. A graph launched into a capture becomes one node that runs them in turn.
 */
#include "graph.h"

#include <stdlib.h>

#define MAX_LANES 16

struct step {
    struct sim_work *work;
    size_t *deps; /* earlier steps */
    size_t dep_count;
    unsigned lane;
};

struct sim_exec {
    int refs;
    struct sim_device *device; /* of the chunk that it takes */
    struct step *steps;
    size_t count;
    unsigned lanes;
    unsigned long long flags;
    struct sim_op *last; /* a graph does not run beside itself */
};

void sim_exec_unref(struct sim_exec *exec)
{
    if (--exec->refs > 0) {
        return;
    }
    for (size_t i = 0; i < exec->count; i++) {
        sim_work_unref(exec->steps[i].work);
        free(exec->steps[i].deps);
    }
    sim_chunks_give(exec->device, 1);
    sim_op_unref(exec->last);
    free(exec->steps);
    free(exec);
}

static bool ready(const struct sim_node *node)
{
    for (size_t i = 0; i < node->dep_count; i++) {
        if (node->deps[i]->order == 0) {
            return false;
        }
    }
    return node->order == 0;
}

/* A branch goes on behind its first dependency if nobody else has; else it begins a new lane. */
static unsigned lane_for(struct sim_exec *exec, const struct step *step, size_t *tails)
{
    for (size_t i = 0; i < step->dep_count; i++) {
        unsigned lane = exec->steps[step->deps[i]].lane;
        if (tails[lane] == step->deps[i]) {
            return lane;
        }
    }
    if (exec->lanes < MAX_LANES) {
        return exec->lanes++;
    }
    return 0;
}

static void add_step(struct sim_exec *exec, struct sim_node *node, size_t *tails)
{
    size_t at = exec->count++;
    struct step *step = &exec->steps[at];
    node->work->refs++;
    step->work = node->work;
    step->deps = sim_calloc(node->dep_count + 1, sizeof *step->deps);
    for (size_t i = 0; i < node->dep_count; i++) {
        step->deps[step->dep_count++] = node->deps[i]->order - 1;
    }
    step->lane = lane_for(exec, step, tails);
    tails[step->lane] = at;
    node->order = at + 1;
}

/* Puts the nodes into an order that obeys their dependencies; false if there is none. */
static bool sort_steps(struct sim_exec *exec, struct sim_graph *graph)
{
    size_t tails[MAX_LANES] = {0};
    bool progress = true;
    for (struct sim_node *node = graph->first; node; node = node->next) {
        node->order = 0;
    }
    while (progress && exec->count < graph->count) {
        progress = false;
        for (struct sim_node *node = graph->first; node; node = node->next) {
            if (ready(node)) {
                add_step(exec, node, tails);
                progress = true;
            }
        }
    }
    return exec->count == graph->count;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle, unsigned long long flags)
{
    struct sim_ctx *ctx;
    CUresult rc = ret_exec ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_graph *graph = (struct sim_graph *)handle;
    if (!sim_handle_is(graph, SIM_GRAPH)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (!sim_chunks_take(ctx->device, 1)) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        struct sim_exec *exec = sim_calloc(1, sizeof *exec);
        exec->refs = 1;
        exec->device = ctx->device;
        exec->flags = flags;
        exec->steps = sim_calloc(graph->count + 1, sizeof *exec->steps);
        if (sort_steps(exec, graph)) {
            sim_handle_add(exec, SIM_EXEC, NULL);
            *ret_exec = (CUgraphExec)exec;
        } else {
            sim_exec_unref(exec);
            rc = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                         unsigned long long flags)
{
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult sim_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                char *logBuffer, size_t bufferSize)
{
    (void)phErrorNode;
    (void)logBuffer;
    (void)bufferSize;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                   CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    return sim_cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (!instantiateParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out =
        rc == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return rc;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    sim_lock();
    bool known = sim_handle_is(hGraphExec, SIM_EXEC) && flags;
    if (known) {
        *flags = ((struct sim_exec *)hGraphExec)->flags;
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    sim_lock();
    bool known = sim_handle_is(hGraphExec, SIM_EXEC);
    if (known) {
        sim_handle_drop(hGraphExec);
        sim_exec_unref((struct sim_exec *)hGraphExec);
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As a node of another graph. */
static CUresult run_in_turn(const struct sim_work *work, struct sim_ctx *ctx)
{
    const struct sim_exec *exec = work->u.graph.exec;
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < exec->count; i++) {
        rc = exec->steps[i].work->run(exec->steps[i].work, ctx);
    }
    return rc;
}

/* At the end of a launch; until then this work holds the graph and so its memory. */
static CUresult run_nothing(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)work;
    (void)ctx;
    return CUDA_SUCCESS;
}

static struct sim_work *exec_work(struct sim_exec *exec,
                                  CUresult (*run)(const struct sim_work *, struct sim_ctx *))
{
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_GRAPH, run);
    work->u.graph.exec = exec;
    exec->refs++;
    return work;
}

static void queue_steps(struct sim_exec *exec, struct sim_stream *stream)
{
    struct sim_stream *lanes[MAX_LANES] = {stream};
    struct sim_op **ops = sim_calloc(exec->count + 1, sizeof(struct sim_op *));
    struct sim_op *begin = sim_op_new(NULL);
    struct sim_op *end = sim_op_new(exec_work(exec, run_nothing));
    sim_op_depend(begin, exec->last);
    sim_stream_queue(stream, begin);
    for (unsigned lane = 1; lane < exec->lanes; lane++) {
        lanes[lane] = sim_stream_new(stream->ctx, stream->green, CU_STREAM_NON_BLOCKING);
    }
    for (size_t i = 0; i < exec->count; i++) {
        const struct step *step = &exec->steps[i];
        step->work->refs++;
        ops[i] = sim_op_new(step->work);
        sim_op_depend(ops[i], begin);
        for (size_t d = 0; d < step->dep_count; d++) {
            sim_op_depend(ops[i], ops[step->deps[d]]);
        }
        sim_op_depend(end, ops[i]);
        sim_stream_queue(lanes[step->lane], ops[i]);
    }
    sim_stream_queue(stream, end);
    for (unsigned lane = 1; lane < exec->lanes; lane++) {
        sim_stream_retire(lanes[lane]);
    }
    for (size_t i = 0; i < exec->count; i++) {
        sim_op_unref(ops[i]);
    }
    free(ops);
    sim_op_unref(begin);
    sim_op_unref(exec->last);
    exec->last = end;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    struct sim_exec *exec = (struct sim_exec *)handle;
    CUresult rc = sim_handle_is(exec, SIM_EXEC) ? sim_current(&ctx) : CUDA_ERROR_INVALID_VALUE;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(stream_handle, ctx, &stream) : rc;
    if (rc == CUDA_SUCCESS && stream->capture) {
        return sim_capture_add(stream, exec_work(exec, run_in_turn));
    }
    rc = rc == CUDA_SUCCESS ? sim_capture_check_legacy(stream) : rc;
    rc = rc == CUDA_SUCCESS ? sim_gate(stream->ctx) : rc;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(stream_handle, ctx, &stream) : rc;
    if (rc == CUDA_SUCCESS && !sim_handle_is(exec, SIM_EXEC)) {
        rc = CUDA_ERROR_INVALID_VALUE; /* destroyed while this thread was held up */
    }
    if (rc == CUDA_SUCCESS) {
        queue_steps(exec, stream);
    }
    return rc;
}

CUresult sim_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    sim_lock();
    CUresult rc = launch(hGraph, hStream);
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        rc = sim_handle_is(hGraph, SIM_EXEC) ? sim_stream_find(hStream, ctx, &stream)
                                             : CUDA_ERROR_INVALID_VALUE;
        sim_unlock();
    }
    return rc;
}
