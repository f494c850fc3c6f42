/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and their nodes; graph_launch.c makes them executable. Memory of alloc nodes lives as long
 * as a graph or an executable graph holds them.
 */
#include "graph.h"

#include <stdlib.h>

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = sim_calloc(1, sizeof *graph);
    sim_handle_add(graph, SIM_GRAPH, NULL);
    return graph;
}

static void node_depend(struct sim_node *node, struct sim_node *on)
{
    node->deps = sim_grow(node->deps, &node->dep_room, node->dep_count + 1, sizeof *node->deps);
    node->deps[node->dep_count++] = on;
}

struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_work *work,
                               struct sim_node *const *deps, size_t count)
{
    struct sim_node *node = sim_calloc(1, sizeof *node);
    node->graph = graph;
    node->work = work;
    for (size_t i = 0; i < count; i++) {
        node_depend(node, deps[i]);
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

static bool all_nodes_of(struct sim_graph *graph, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!sim_handle_is(nodes[i], SIM_NODE) || ((struct sim_node *)nodes[i])->graph != graph) {
            return false;
        }
    }
    return true;
}

/* Takes over the work, which may be NULL if making it failed with code. */
static CUresult add(CUgraphNode *ret_node, CUgraph handle, const CUgraphNode *deps, size_t count,
                    struct sim_work *work, CUresult code)
{
    struct sim_graph *graph = (struct sim_graph *)handle;
    bool sound = ret_node && sim_handle_is(graph, SIM_GRAPH) && all_nodes_of(graph, deps, count);
    if (code == CUDA_SUCCESS && !sound) {
        code = CUDA_ERROR_INVALID_VALUE;
    }
    if (code == CUDA_SUCCESS) {
        *ret_node = (CUgraphNode)sim_graph_add(graph, work, (struct sim_node *const *)deps, count);
    } else {
        sim_work_unref(work);
    }
    return code;
}

static CUresult run_nothing(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)work;
    (void)ctx;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies)
{
    sim_lock();
    CUresult rc = add(phGraphNode, hGraph, dependencies, numDependencies,
                      sim_work_new(CU_GRAPH_NODE_TYPE_EMPTY, run_nothing), CUDA_SUCCESS);
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                const CUDA_HOST_NODE_PARAMS_v1 *nodeParams)
{
    if (!nodeParams || !nodeParams->fn) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = add(phGraphNode, hGraph, dependencies, numDependencies,
                      sim_host_work(nodeParams->fn, nodeParams->userData), CUDA_SUCCESS);
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_MEMSET_NODE_PARAMS_v1 *memsetParams, CUcontext ctx)
{
    (void)ctx;
    if (!memsetParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    size_t row = memsetParams->width * memsetParams->elementSize;
    size_t pitch = memsetParams->height > 1 ? memsetParams->pitch : row;
    CUresult rc =
        add(phGraphNode, hGraph, dependencies, numDependencies,
            sim_fill_work(memsetParams->dst, pitch, memsetParams->value, memsetParams->elementSize,
                          memsetParams->width, memsetParams->height),
            CUDA_SUCCESS);
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                    const CUgraphNode *dependencies, size_t numDependencies,
                                    CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    if (!nodeParams) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    struct sim_work *work = NULL;
    struct sim_device *device = sim_device_at(nodeParams->poolProps.location.id);
    CUresult rc =
        device ? sim_graph_memory(device, nodeParams->bytesize, &work) : CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = work ? work->u.memory.address : 0;
    rc = add(phGraphNode, hGraph, dependencies, numDependencies, work, rc);
    if (rc == CUDA_SUCCESS) {
        nodeParams->dptr = address;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUdeviceptr dptr)
{
    sim_lock();
    const struct sim_block *block = sim_block_from(dptr);
    bool known = block && block->graph;
    struct sim_work *work =
        known ? sim_memory_work(CU_GRAPH_NODE_TYPE_MEM_FREE, dptr, block->bytes) : NULL;
    CUresult rc = add(phGraphNode, hGraph, dependencies, numDependencies, work,
                      known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    sim_unlock();
    return rc;
}

CUresult sim_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    sim_lock();
    const struct sim_node *node = (const struct sim_node *)hNode;
    bool known = dptr_out && sim_handle_is(node, SIM_NODE) &&
                 node->work->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (known) {
        *dptr_out = node->work->u.memory.address;
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t numDependencies)
{
    struct sim_graph *graph = (struct sim_graph *)hGraph;
    sim_lock();
    bool known = sim_handle_is(graph, SIM_GRAPH) && all_nodes_of(graph, from, numDependencies) &&
                 all_nodes_of(graph, to, numDependencies);
    for (size_t i = 0; known && i < numDependencies; i++) {
        node_depend((struct sim_node *)to[i], (struct sim_node *)from[i]);
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                       const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                       size_t numDependencies)
{
    (void)edgeData;
    return sim_cuGraphAddDependencies(hGraph, from, to, numDependencies);
}

/* Nothing is kept for graphs beyond their own life. */
CUresult sim_cuDeviceGraphMemTrim(CUdevice device)
{
    sim_lock();
    bool known = sim_device_at(device) != NULL;
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
