/* SPDX-License-Identifier: Apache-2.0
 *
 * One allocation vocabulary over the two APIs, so that the same source makes a runtime program
 * (static or shared cudart) and, with -DUSE_DRIVER_API, a driver program that links -lcuda.
 */
#pragma once

#ifdef USE_DRIVER_API
#include <cuda.h>
#else
#include <cuda_runtime_api.h>
#endif
#include "gpu.h"

#ifdef USE_DRIVER_API
typedef CUdeviceptr gpu_ptr;

static inline void gpu_start(void)
{
    CUdevice device;
    CUcontext context;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
}

/* The current context is a thread's own; the runtime does this by itself. */
static inline void gpu_enter_thread(void)
{
    gpu_start();
}

static inline gpu_ptr gpu_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    CU(cuMemAlloc(&block, bytes));
    return block;
}

static inline void gpu_free(gpu_ptr block)
{
    CU(cuMemFree(block));
}

static inline void gpu_fill(gpu_ptr block, int byte, size_t bytes)
{
    CU(cuMemsetD8(block, (unsigned char)byte, bytes));
}

static inline void gpu_sync(void)
{
    CU(cuCtxSynchronize());
}
#else
typedef void *gpu_ptr;

static inline void gpu_start(void)
{
    RT(cudaFree(NULL));
}

static inline void gpu_enter_thread(void)
{
    RT(cudaSetDevice(0));
}

static inline gpu_ptr gpu_alloc(size_t bytes)
{
    void *block = NULL;
    RT(cudaMalloc(&block, bytes));
    return block;
}

static inline void gpu_free(gpu_ptr block)
{
    RT(cudaFree(block));
}

static inline void gpu_fill(gpu_ptr block, int byte, size_t bytes)
{
    RT(cudaMemset(block, byte, bytes));
}

static inline void gpu_sync(void)
{
    RT(cudaDeviceSynchronize());
}
#endif
