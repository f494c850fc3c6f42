/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in runtime's memory calls.
 */
#include "cudart.h"

#include <string.h>

static CUdeviceptr address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* The runtime allows zero bytes where the driver does not, and clears the pointer on failure. */
RT_EXPORT cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    CUdeviceptr memory = 0;
    cudaError_t error = devPtr ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess && size > 0) {
        error = (cudaError_t)rt_driver.cuMemAlloc_(&memory, size);
    }
    if (devPtr) {
        *devPtr = (void *)(uintptr_t)memory;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaFree(void *devPtr)
{
    return RT_CALL(cuMemFree_(address(devPtr)));
}

RT_EXPORT cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr memory = 0;
    cudaError_t error = devPtr && pitch ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess && width > 0 && height > 0) {
        error = (cudaError_t)rt_driver.cuMemAllocPitch_(&memory, pitch, width, height, 4);
    }
    if (devPtr) {
        *devPtr = (void *)(uintptr_t)memory;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    cudaError_t error = cudaErrorInvalidValue;
    if (pitched) {
        pitched->xsize = extent.width;
        pitched->ysize = extent.height;
        error = cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width,
                                extent.height * extent.depth);
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    CUdeviceptr memory = 0;
    cudaError_t error = devPtr && size > 0 ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = (cudaError_t)rt_driver.cuMemAllocManaged_(&memory, size, flags);
    }
    if (error == cudaSuccess) {
        *devPtr = (void *)(uintptr_t)memory;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    cudaError_t error = pHost ? rt_ready() : cudaErrorInvalidValue;
    if (error == cudaSuccess && size == 0) {
        *pHost = NULL;
    } else if (error == cudaSuccess) {
        error = (cudaError_t)rt_driver.cuMemHostAlloc_(pHost, size, flags);
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

RT_EXPORT cudaError_t cudaFreeHost(void *ptr)
{
    cudaError_t error = rt_ready();
    if (error == cudaSuccess && ptr) {
        error = (cudaError_t)rt_driver.cuMemFreeHost_(ptr);
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    return RT_CALL(cuMemHostRegister_(ptr, size, flags));
}

RT_EXPORT cudaError_t cudaHostUnregister(void *ptr)
{
    return RT_CALL(cuMemHostUnregister_(ptr));
}

RT_EXPORT cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    CUdeviceptr memory = 0;
    cudaError_t error = RT_CALL(cuMemHostGetDevicePointer_(&memory, pHost, flags));
    if (error == cudaSuccess) {
        *pDevice = (void *)(uintptr_t)memory;
    }
    return error;
}

RT_EXPORT cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
    return RT_CALL(cuMemHostGetFlags_(pFlags, pHost));
}

RT_EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    return RT_CALL(cuMemGetInfo_(free, total));
}

RT_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal)
{
    return RT_CALL(cuDeviceGetDefaultMemPool_(pool, ordinal));
}

RT_EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal)
{
    return RT_CALL(cuDeviceGetMemPool_(pool, ordinal));
}

RT_EXPORT cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool)
{
    return RT_CALL(cuDeviceSetMemPool_(ordinal, pool));
}

RT_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    CUmemPoolProps driver_props = {0};
    if (!props) {
        return rt_done(cudaErrorInvalidValue);
    }
    driver_props.allocType = (CUmemAllocationType)props->allocType;
    driver_props.location.type = (CUmemLocationType)props->location.type;
    driver_props.location.id = props->location.id;
    return RT_CALL(cuMemPoolCreate_(pool, &driver_props));
}

RT_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    return RT_CALL(cuMemPoolDestroy_(pool));
}

RT_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    return RT_CALL(cuMemPoolTrimTo_(pool, bytes));
}

RT_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    return RT_CALL(cuMemPoolSetAttribute_(pool, (CUmemPool_attribute)attr, value));
}

RT_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    return RT_CALL(cuMemPoolGetAttribute_(pool, (CUmemPool_attribute)attr, value));
}

RT_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                               const void *ptr)
{
    int type = 0;
    int managed = 0;
    int ordinal = 0;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &managed, &ordinal, &device_pointer, &host_pointer};
    if (!attributes) {
        return rt_done(cudaErrorInvalidValue);
    }
    cudaError_t error = RT_CALL(cuPointerGetAttributes_(5, which, data, address(ptr)));
    if (error == cudaSuccess) {
        memset(attributes, 0, sizeof *attributes);
        attributes->type = managed                        ? cudaMemoryTypeManaged
                           : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                           : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                          : cudaMemoryTypeUnregistered;
        attributes->device = ordinal;
        attributes->devicePointer = (void *)(uintptr_t)device_pointer;
        attributes->hostPointer = type == 0 ? (void *)(uintptr_t)ptr : host_pointer;
    }
    return error;
}

RT_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    CUipcMemHandle wire;
    cudaError_t error = RT_CALL(cuIpcGetMemHandle_(&wire, address(devPtr)));
    if (error == cudaSuccess) {
        memcpy(handle, &wire, sizeof *handle);
    }
    return error;
}

RT_EXPORT cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle,
                                           unsigned int flags)
{
    CUipcMemHandle wire;
    CUdeviceptr memory = 0;
    memcpy(&wire, &handle, sizeof wire);
    cudaError_t error = RT_CALL(cuIpcOpenMemHandle_(&memory, wire, flags));
    if (error == cudaSuccess) {
        *devPtr = (void *)(uintptr_t)memory;
    }
    return error;
}

RT_EXPORT cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    return RT_CALL(cuIpcCloseMemHandle_(address(devPtr)));
}
