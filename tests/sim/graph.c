/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs. A launch runs the nodes one after the other in the order they were added, which is a
 * right order but not a parallel one. Memory of alloc nodes lives as long as a graph or executable
 * graph holds them.
 */
#include "sim.h"

#include <stdlib.h>

struct sim_node {
    struct sim_graph *graph;
    struct sim_work *work;
    struct sim_node **deps;
    size_t dep_count;
    struct sim_node *next;
};

struct sim_graph {
    struct sim_node *first, *last;
    size_t count;
};

struct sim_exec {
    int refs;
    struct sim_device *device; /* of the chunk that it takes */
    struct sim_work **works;
    size_t count;
    unsigned long long flags;
};

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = sim_calloc(1, sizeof *graph);
    sim_handle_add(graph, SIM_GRAPH, NULL);
    return graph;
}

struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_work *work,
                               struct sim_node *const *deps, size_t count)
{
    struct sim_node *node = sim_calloc(1, sizeof *node);
    node->graph = graph;
    node->work = work;
    node->deps = sim_calloc(count + 1, sizeof(struct sim_node *));
    node->dep_count = count;
    for (size_t i = 0; i < count; i++) {
        node->deps[i] = deps[i];
    }
    if (graph->last) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    graph->count++;
    sim_handle_add(node, SIM_NODE, NULL);
    return node;
}

void sim_graph_free(struct sim_graph *graph)
{
    struct sim_node *next;
    for (struct sim_node *node = graph->first; node; node = next) {
        next = node->next;
        sim_handle_drop(node);
        sim_work_unref(node->work);
        free(node->deps);
        free(node);
    }
    sim_handle_drop(graph);
    free(graph);
}

bool sim_node_reaches(struct sim_node *const *from, size_t count, const struct sim_node *target)
{
    for (size_t i = 0; i < count; i++) {
        if (from[i] == target || sim_node_reaches(from[i]->deps, from[i]->dep_count, target)) {
            return true;
        }
    }
    return false;
}

void sim_exec_unref(struct sim_exec *exec)
{
    if (--exec->refs > 0) {
        return;
    }
    for (size_t i = 0; i < exec->count; i++) {
        sim_work_unref(exec->works[i]);
    }
    sim_chunks_give(exec->device, 1);
    free(exec->works);
    free(exec);
}

CUresult sim_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    if (!phGraph || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    *phGraph = (CUgraph)sim_graph_new();
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphDestroy(CUgraph hGraph)
{
    sim_lock();
    bool known = sim_handle_is(hGraph, SIM_GRAPH);
    if (known) {
        sim_graph_free((struct sim_graph *)hGraph);
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    sim_lock();
    bool known = sim_handle_is(hGraph, SIM_GRAPH) && numNodes;
    if (known) {
        const struct sim_graph *graph = (const struct sim_graph *)hGraph;
        size_t at = 0;
        for (struct sim_node *node = graph->first; node && nodes && at < *numNodes;
             node = node->next) {
            nodes[at++] = (CUgraphNode)node;
        }
        for (size_t i = at; nodes && i < *numNodes; i++) {
            nodes[i] = NULL;
        }
        *numNodes = nodes ? at : graph->count;
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    sim_lock();
    bool known = sim_handle_is(hNode, SIM_NODE) && type;
    if (known) {
        *type = ((struct sim_node *)hNode)->work->type;
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph handle, unsigned long long flags)
{
    struct sim_ctx *ctx;
    CUresult rc = ret_exec ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(handle, SIM_GRAPH)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (!sim_chunks_take(ctx->device, 1)) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        const struct sim_graph *graph = (const struct sim_graph *)handle;
        struct sim_exec *exec = sim_calloc(1, sizeof *exec);
        exec->refs = 1;
        exec->device = ctx->device;
        exec->flags = flags;
        exec->works = sim_calloc(graph->count + 1, sizeof(struct sim_work *));
        for (struct sim_node *node = graph->first; node; node = node->next) {
            node->work->refs++;
            exec->works[exec->count++] = node->work;
        }
        sim_handle_add(exec, SIM_EXEC, NULL);
        *ret_exec = (CUgraphExec)exec;
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

static CUresult run_exec(const struct sim_work *work, struct sim_ctx *ctx)
{
    const struct sim_exec *exec = work->u.graph.exec;
    CUresult rc = CUDA_SUCCESS;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < exec->count; i++) {
        rc = exec->works[i]->run(exec->works[i], ctx);
    }
    return rc;
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

CUresult sim_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    sim_lock();
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (sim_handle_is(hGraph, SIM_EXEC)) {
        struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_GRAPH, run_exec);
        work->u.graph.exec = (struct sim_exec *)hGraph;
        work->u.graph.exec->refs++;
        rc = sim_submit(hStream, work, NULL);
    }
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
