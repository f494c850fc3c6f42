/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the stand-in for libcudart.so.13: the driver functions it fetched, and the frame of
 * every call. It reaches the driver only as the real one does, by dlopen, one dlsym and
 * cuGetProcAddress, each name with the version of the interface it was built for.
 */
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <stdbool.h>

#define RT_EXPORT __attribute__((visibility("default")))

/* The runtime asks for the first form of this call; the headers name only the second. */
typedef PFN_cuDevicePrimaryCtxReset_v11000 PFN_cuDevicePrimaryCtxReset_v7000;

/* DRIVER(name, version, has a per-thread twin) */
#define DRIVER_FUNCTIONS                                                                           \
    DRIVER(cuInit, 2000, 0)                                                                        \
    DRIVER(cuDriverGetVersion, 2020, 0)                                                            \
    DRIVER(cuGetErrorName, 6000, 0)                                                                \
    DRIVER(cuGetErrorString, 6000, 0)                                                              \
    DRIVER(cuDeviceGetCount, 2000, 0)                                                              \
    DRIVER(cuDeviceGetName, 2000, 0)                                                               \
    DRIVER(cuDeviceTotalMem, 3020, 0)                                                              \
    DRIVER(cuDeviceGetAttribute, 2000, 0)                                                          \
    DRIVER(cuDeviceCanAccessPeer, 4000, 0)                                                         \
    DRIVER(cuDevicePrimaryCtxRetain, 7000, 0)                                                      \
    DRIVER(cuDevicePrimaryCtxReset, 7000, 0)                                                       \
    DRIVER(cuDevicePrimaryCtxGetState, 7000, 0)                                                    \
    DRIVER(cuCtxGetCurrent, 4000, 0)                                                               \
    DRIVER(cuCtxSetCurrent, 4000, 0)                                                               \
    DRIVER(cuCtxGetDevice, 2000, 0)                                                                \
    DRIVER(cuCtxSynchronize, 2000, 0)                                                              \
    DRIVER(cuCtxEnablePeerAccess, 4000, 0)                                                         \
    DRIVER(cuCtxDisablePeerAccess, 4000, 0)                                                        \
    DRIVER(cuMemAlloc, 3020, 0)                                                                    \
    DRIVER(cuMemFree, 3020, 0)                                                                     \
    DRIVER(cuMemAllocPitch, 3020, 0)                                                               \
    DRIVER(cuMemAllocManaged, 6000, 0)                                                             \
    DRIVER(cuMemHostAlloc, 2020, 0)                                                                \
    DRIVER(cuMemFreeHost, 2000, 0)                                                                 \
    DRIVER(cuMemHostRegister, 6050, 0)                                                             \
    DRIVER(cuMemHostUnregister, 4000, 0)                                                           \
    DRIVER(cuMemHostGetDevicePointer, 3020, 0)                                                     \
    DRIVER(cuMemHostGetFlags, 2030, 0)                                                             \
    DRIVER(cuMemGetInfo, 3020, 0)                                                                  \
    DRIVER(cuPointerGetAttributes, 7000, 0)                                                        \
    DRIVER(cuMemAllocAsync, 11020, 1)                                                              \
    DRIVER(cuMemAllocFromPoolAsync, 11020, 1)                                                      \
    DRIVER(cuMemFreeAsync, 11020, 1)                                                               \
    DRIVER(cuDeviceGetDefaultMemPool, 11020, 0)                                                    \
    DRIVER(cuDeviceGetMemPool, 11020, 0)                                                           \
    DRIVER(cuDeviceSetMemPool, 11020, 0)                                                           \
    DRIVER(cuMemPoolCreate, 11020, 0)                                                              \
    DRIVER(cuMemPoolDestroy, 11020, 0)                                                             \
    DRIVER(cuMemPoolTrimTo, 11020, 0)                                                              \
    DRIVER(cuMemPoolSetAttribute, 11020, 0)                                                        \
    DRIVER(cuMemPoolGetAttribute, 11020, 0)                                                        \
    DRIVER(cuMemcpy, 4000, 1)                                                                      \
    DRIVER(cuMemcpyHtoD, 3020, 1)                                                                  \
    DRIVER(cuMemcpyDtoH, 3020, 1)                                                                  \
    DRIVER(cuMemcpyDtoD, 3020, 1)                                                                  \
    DRIVER(cuMemcpyAsync, 4000, 1)                                                                 \
    DRIVER(cuMemcpyHtoDAsync, 3020, 1)                                                             \
    DRIVER(cuMemcpyDtoHAsync, 3020, 1)                                                             \
    DRIVER(cuMemcpyDtoDAsync, 3020, 1)                                                             \
    DRIVER(cuMemcpy2DUnaligned, 3020, 1)                                                           \
    DRIVER(cuMemcpy2DAsync, 3020, 1)                                                               \
    DRIVER(cuMemcpyPeer, 4000, 1)                                                                  \
    DRIVER(cuMemcpyPeerAsync, 4000, 1)                                                             \
    DRIVER(cuMemsetD8, 3020, 1)                                                                    \
    DRIVER(cuMemsetD8Async, 3020, 1)                                                               \
    DRIVER(cuMemsetD2D8, 3020, 1)                                                                  \
    DRIVER(cuStreamCreate, 2000, 0)                                                                \
    DRIVER(cuStreamCreateWithPriority, 5050, 0)                                                    \
    DRIVER(cuStreamDestroy, 4000, 0)                                                               \
    DRIVER(cuStreamQuery, 2000, 1)                                                                 \
    DRIVER(cuStreamSynchronize, 2000, 1)                                                           \
    DRIVER(cuStreamWaitEvent, 3020, 1)                                                             \
    DRIVER(cuStreamAddCallback, 5000, 1)                                                           \
    DRIVER(cuLaunchHostFunc, 10000, 1)                                                             \
    DRIVER(cuEventCreate, 2000, 0)                                                                 \
    DRIVER(cuEventDestroy, 4000, 0)                                                                \
    DRIVER(cuEventRecord, 2000, 1)                                                                 \
    DRIVER(cuEventQuery, 2000, 0)                                                                  \
    DRIVER(cuEventSynchronize, 2000, 0)                                                            \
    DRIVER(cuEventElapsedTime, 2000, 0)                                                            \
    DRIVER(cuIpcGetMemHandle, 4010, 0)                                                             \
    DRIVER(cuIpcOpenMemHandle, 11000, 0)                                                           \
    DRIVER(cuIpcCloseMemHandle, 4010, 0)                                                           \
    DRIVER(cuStreamBeginCapture, 10010, 1)                                                         \
    DRIVER(cuStreamEndCapture, 10000, 1)                                                           \
    DRIVER(cuStreamIsCapturing, 10000, 1)                                                          \
    DRIVER(cuThreadExchangeStreamCaptureMode, 10010, 0)                                            \
    DRIVER(cuGraphInstantiateWithFlags, 11040, 0)                                                  \
    DRIVER(cuGraphLaunch, 10000, 1)                                                                \
    DRIVER(cuGraphDestroy, 10000, 0)                                                               \
    DRIVER(cuGraphExecDestroy, 10000, 0)                                                           \
    DRIVER(cuGraphGetNodes, 10000, 0)

#define DRIVER(name, version, twin) PFN_##name##_v##version name##_;
struct rt_driver {
    PFN_cuGetProcAddress_v12000 resolve;
    DRIVER_FUNCTIONS
};
#undef DRIVER

extern struct rt_driver rt_driver;
/* The same with the driver's per-thread forms, where there are any. */
extern struct rt_driver rt_per_thread;

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define RT_DRIVER rt_per_thread
#else
#define RT_DRIVER rt_driver
#endif

/* Loads the driver; no context yet. */
cudaError_t rt_load(void);
/* Makes sure that this thread has a context, the primary one of its device if it has none. */
cudaError_t rt_ready(void);
/* Remembers an error for cudaGetLastError and passes it on. */
cudaError_t rt_done(cudaError_t error);
/* A driver call in the frame of every runtime call. */
#define RT_CALL(call)                                                                              \
    __extension__({                                                                                \
        cudaError_t rt_error = rt_ready();                                                         \
        if (rt_error == cudaSuccess) {                                                             \
            rt_error = (cudaError_t)RT_DRIVER.call;                                                \
        }                                                                                          \
        rt_done(rt_error);                                                                         \
    })
