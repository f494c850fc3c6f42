/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated devices and what they say about themselves. Made at first use, never freed.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEVICES 8

static struct sim_device *devices;
static int count;

static void make_devices(void)
{
    count = sim_device_count();
    count = count > MAX_DEVICES ? MAX_DEVICES : count;
    sim_neighbours_init();
    devices = sim_calloc((size_t)count, sizeof *devices);
    for (int i = 0; i < count; i++) {
        devices[i].ordinal = i;
        devices[i].chunks = sim_memory_mb() / 2;
        devices[i].used_chunks = i == 0 ? sim_neighbours_mb() / 2 : 0;
        sim_heap_init(&devices[i]);
    }
}

struct sim_device *sim_device_at(CUdevice ordinal)
{
    if (!devices) {
        make_devices();
    }
    return ordinal >= 0 && ordinal < count ? &devices[ordinal] : NULL;
}

static struct sim_device *lookup(CUdevice ordinal)
{
    sim_lock();
    struct sim_device *device = sim_device_at(ordinal);
    sim_unlock();
    return device;
}

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetCount(int *ret_count)
{
    if (!ret_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    lookup(0);
    *ret_count = count;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    if (!name || len < 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(name, (size_t)len, "Simulated GPU %d", dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    if (!uuid) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memset(uuid, 0x5a, sizeof *uuid);
    uuid->bytes[15] = (char)dev;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return sim_cuDeviceGetUuid_v2(uuid, dev);
}

CUresult sim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    const struct sim_device *device = lookup(dev);
    if (!bytes || !device) {
        return bytes ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = device->chunks * SIM_CHUNK;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    if (!lookup(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    if (!lookup(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", dev + 1);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    if (!canAccessPeer) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(dev) || !lookup(peerDev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                     CUdevice dstDevice)
{
    if (!value || srcDevice == dstDevice) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(srcDevice) || !lookup(dstDevice)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}

struct attribute {
    CUdevice_attribute which;
    int value;
};

/* The ones that programs and libzone ask for, as an H200 answers; every other one reads 0. */
static const struct attribute attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 9},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
};

CUresult sim_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    if (!pi || (int)attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!lookup(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? dev + 1 : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].which == attrib) {
            *pi = attributes[i].value;
        }
    }
    return CUDA_SUCCESS;
}
