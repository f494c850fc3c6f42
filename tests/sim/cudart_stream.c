/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in runtime's copies, streams, events and graphs.
 */
#include "cudart.h"

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

RT_EXPORT cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                                     size_t count)
{
    (void)dstDevice;
    (void)srcDevice;
    return RT_CALL(cuMemcpyPeer_(address(dst), NULL, address(src), NULL, count));
}

RT_EXPORT cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                          size_t count, cudaStream_t stream)
{
    (void)dstDevice;
    (void)srcDevice;
    return RT_CALL(cuMemcpyPeerAsync_(address(dst), NULL, address(src), NULL, count, stream));
}

RT_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return RT_CALL(cuStreamCreate_(stream, CU_STREAM_DEFAULT));
}

RT_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return RT_CALL(cuStreamCreate_(stream, flags));
}

RT_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
                                                   int priority)
{
    return RT_CALL(cuStreamCreateWithPriority_(stream, flags, priority));
}

RT_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return RT_CALL(cuStreamDestroy_(stream));
}

RT_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return RT_CALL(cuEventCreate_(event, flags));
}

RT_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

RT_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return RT_CALL(cuEventDestroy_(event));
}

RT_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return RT_CALL(cuEventQuery_(event));
}

RT_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return RT_CALL(cuEventSynchronize_(event));
}

RT_EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return RT_CALL(cuEventElapsedTime_(ms, start, end));
}

RT_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return RT_CALL(cuThreadExchangeStreamCaptureMode_((CUstreamCaptureMode *)mode));
}

RT_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                           unsigned long long flags)
{
    return RT_CALL(cuGraphInstantiateWithFlags_(pGraphExec, graph, flags));
}

RT_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    return RT_CALL(cuGraphGetNodes_(graph, nodes, numNodes));
}

RT_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return RT_CALL(cuGraphDestroy_(graph));
}

RT_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    return RT_CALL(cuGraphExecDestroy_(graphExec));
}
