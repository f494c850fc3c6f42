/* SPDX-License-Identifier: Apache-2.0
 *
 * What a pointer is: cuPointerGetAttribute and relatives.
 */
#include "vmm.h"

#include <string.h>

/* The block that a program may be told about: not freed, and within the size it asked for. */
const struct sim_block *sim_block_visible(uintptr_t address)
{
    const struct sim_block *block = sim_block_at(address);
    bool gone = block && block->leaving && block->memory == SIM_ASYNC;
    return block && !gone && address - block->address < block->size ? block : NULL;
}

static CUmemorytype type_of(const struct sim_block *block)
{
    return block->memory == SIM_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static unsigned long long handle_types(const struct sim_block *block)
{
    const struct sim_physical *physical = block->memory == SIM_RANGE ? block->owner : NULL;
    return physical ? (unsigned long long)physical->prop.requestedHandleTypes : 0;
}

#define PUT(type, value)                                                                           \
    do {                                                                                           \
        type put = (type)(value);                                                                  \
        memcpy(data, &put, sizeof put);                                                            \
    } while (0)

/* One attribute of a known block; CUDA_ERROR_INVALID_VALUE if it has none such. */
static CUresult attribute(void *data, CUpointer_attribute which, const struct sim_block *block,
                          uintptr_t at)
{
    bool host = block->memory == SIM_HOST;
    bool managed = block->memory == SIM_MANAGED;
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        PUT(CUcontext, block->memory == SIM_ASYNC ? NULL : block->ctx);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        PUT(unsigned, type_of(block));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        PUT(CUdeviceptr, at);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        PUT(void *, host || managed ? at : 0);
        return host || managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        PUT(int, block->sync_memops);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        PUT(unsigned long long, block->id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        PUT(int, managed);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        PUT(int, block->device ? block->device->ordinal : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(int, block->memory == SIM_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        PUT(CUdeviceptr, block->address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        PUT(size_t, block->size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        PUT(int, 1);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(unsigned long long, handle_types(block));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        PUT(int, block->memory == SIM_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        PUT(int, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        PUT(CUmemoryPool, block->memory == SIM_ASYNC ? block->owner : NULL);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        PUT(size_t, block->bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        PUT(CUdeviceptr, block->address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        PUT(unsigned long long, block->id);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What the calls for several attributes write for an unknown pointer; bytes of each value. */
static size_t width_of(CUpointer_attribute which)
{
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return sizeof(int);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    default:
        return sizeof(uint64_t);
    }
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;
    CUresult rc = data ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_visible(ptr);
    rc = block ? attribute(data, which, block, ptr) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return rc;
}

CUresult sim_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                    void **data, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;
    CUresult rc = attributes && data ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_visible(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        if (!block || attribute(data[i], attributes[i], block, ptr) != CUDA_SUCCESS) {
            memset(data[i], 0, width_of(attributes[i]));
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
                *(int *)data[i] = -2;
            }
        }
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;
    CUresult rc = value ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_block *block = sim_block_at(ptr);
    if (!sim_block_visible(ptr) || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (block->memory == SIM_RANGE) {
        rc = CUDA_ERROR_NOT_SUPPORTED;
    } else {
        block->sync_memops = *(const int *)value != 0;
    }
    sim_unlock();
    return rc;
}
