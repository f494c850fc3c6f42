/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in runtime's calls that have a form for per-thread default streams: copies, fills, what
 * is put into streams. Compiled twice: with CUDA_API_PER_THREAD_DEFAULT_STREAM the headers rename
 * these functions to …_ptds and …_ptsz, and they call the driver's functions of that kind.
 */
#include "cudart.h"

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

RT_EXPORT cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_CALL(cuMemcpyHtoD_(address(dst), src, count));
    case cudaMemcpyDeviceToHost:
        return RT_CALL(cuMemcpyDtoH_(dst, address(src), count));
    case cudaMemcpyDeviceToDevice:
        return RT_CALL(cuMemcpyDtoD_(address(dst), address(src), count));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return RT_CALL(cuMemcpy_(address(dst), address(src), count));
    }
    return rt_done(cudaErrorInvalidMemcpyDirection);
}

RT_EXPORT cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_CALL(cuMemcpyHtoDAsync_(address(dst), src, count, stream));
    case cudaMemcpyDeviceToHost:
        return RT_CALL(cuMemcpyDtoHAsync_(dst, address(src), count, stream));
    case cudaMemcpyDeviceToDevice:
        return RT_CALL(cuMemcpyDtoDAsync_(address(dst), address(src), count, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return RT_CALL(cuMemcpyAsync_(address(dst), address(src), count, stream));
    }
    return rt_done(cudaErrorInvalidMemcpyDirection);
}

static CUDA_MEMCPY2D request_2d(void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D request = {0};
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    CUmemorytype device = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
    request.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : device;
    request.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : device;
    request.dstHost = dst;
    request.srcHost = src;
    request.dstDevice = address(dst);
    request.srcDevice = address(src);
    request.dstPitch = dpitch;
    request.srcPitch = spitch;
    request.WidthInBytes = width;
    request.Height = height;
    return request;
}

RT_EXPORT cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
                                   size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D request = request_2d(dst, dpitch, src, spitch, width, height, kind);
    return RT_CALL(cuMemcpy2DUnaligned_(&request));
}

RT_EXPORT cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                        size_t width, size_t height, enum cudaMemcpyKind kind,
                                        cudaStream_t stream)
{
    CUDA_MEMCPY2D request = request_2d(dst, dpitch, src, spitch, width, height, kind);
    return RT_CALL(cuMemcpy2DAsync_(&request, stream));
}

RT_EXPORT cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    return RT_CALL(cuMemsetD8_(address(devPtr), (unsigned char)value, count));
}

RT_EXPORT cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    return RT_CALL(cuMemsetD8Async_(address(devPtr), (unsigned char)value, count, stream));
}

RT_EXPORT cudaError_t cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width,
                                   size_t height)
{
    return RT_CALL(cuMemsetD2D8_(address(devPtr), pitch, (unsigned char)value, width, height));
}

RT_EXPORT cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t stream)
{
    CUdeviceptr memory = 0;
    cudaError_t error = devPtr ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = (cudaError_t)RT_DRIVER.cuMemAllocAsync_(&memory, size, stream);
    }
    if (error == cudaSuccess) {
        *devPtr = (void *)(uintptr_t)memory;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool,
                                              cudaStream_t stream)
{
    CUdeviceptr memory = 0;
    cudaError_t error = ptr ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = (cudaError_t)RT_DRIVER.cuMemAllocFromPoolAsync_(&memory, size, pool, stream);
    }
    if (error == cudaSuccess) {
        *ptr = (void *)(uintptr_t)memory;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t stream)
{
    return RT_CALL(cuMemFreeAsync_(address(devPtr), stream));
}

RT_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return RT_CALL(cuStreamQuery_(stream));
}

RT_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return RT_CALL(cuStreamSynchronize_(stream));
}

RT_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                          unsigned int flags)
{
    return RT_CALL(cuStreamWaitEvent_(stream, event, flags));
}

RT_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                            void *userData, unsigned int flags)
{
    return RT_CALL(cuStreamAddCallback_(stream, (CUstreamCallback)callback, userData, flags));
}

RT_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    return RT_CALL(cuLaunchHostFunc_(stream, fn, userData));
}

RT_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return RT_CALL(cuEventRecord_(event, stream));
}

RT_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return RT_CALL(cuStreamBeginCapture_(stream, (CUstreamCaptureMode)mode));
}

RT_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    return RT_CALL(cuStreamEndCapture_(stream, pGraph));
}

RT_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                            enum cudaStreamCaptureStatus *pCaptureStatus)
{
    return RT_CALL(cuStreamIsCapturing_(stream, (CUstreamCaptureStatus *)pCaptureStatus));
}

RT_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return RT_CALL(cuGraphLaunch_(graphExec, stream));
}
