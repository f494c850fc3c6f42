/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays. They take chunks of the device; their bytes, which only copies
 * reach, lie in host memory, row by row.
 */
#include "sim.h"

#include <stdlib.h>

struct sim_array {
    struct sim_ctx *ctx;
    size_t chunks;
    bool mipmapped;
    unsigned char *bytes; /* NULL for a mipmapped one */
    size_t pitch, rows, layers;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
};

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    size_t one = 1;
    switch ((int)descriptor->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        one = 2;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        one = 4;
        break;
    default:
        break;
    }
    return one * descriptor->NumChannels;
}

static CUresult array_new(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, bool mipmapped, void **ret)
{
    struct sim_ctx *ctx;
    if (!ret || !descriptor || descriptor->Width == 0 || descriptor->NumChannels == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_capture_check_unsafe();
    rc = rc == CUDA_SUCCESS ? sim_gate(ctx) : rc;
    size_t height = descriptor->Height ? descriptor->Height : 1;
    size_t depth = descriptor->Depth ? descriptor->Depth : 1;
    size_t bytes = descriptor->Width * height * depth * element_bytes(descriptor);
    size_t chunks = (bytes + SIM_CHUNK - 1) / SIM_CHUNK;
    if (rc == CUDA_SUCCESS && !sim_chunks_take(ctx->device, chunks)) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc == CUDA_SUCCESS) {
        struct sim_array *array = sim_calloc(1, sizeof *array);
        array->ctx = ctx->owner;
        array->chunks = chunks;
        array->mipmapped = mipmapped;
        array->descriptor = *descriptor;
        array->pitch = descriptor->Width * element_bytes(descriptor);
        array->rows = height;
        array->layers = depth;
        array->bytes = mipmapped ? NULL : sim_calloc(height * depth, array->pitch);
        sim_handle_add(array, SIM_ARRAY, ctx->owner);
        *ret = array;
    }
    sim_unlock();
    return rc;
}

void sim_array_free(struct sim_array *array)
{
    sim_handle_drop(array);
    sim_chunks_give(array->ctx->device, array->chunks);
    free(array->bytes);
    free(array);
}

unsigned char *sim_array_bytes(CUarray handle, size_t *ret_pitch, size_t *ret_rows,
                               size_t *ret_layers)
{
    const struct sim_array *array = (const struct sim_array *)handle;
    if (!sim_handle_is(array, SIM_ARRAY) || !array->bytes) {
        return NULL;
    }
    *ret_pitch = array->pitch;
    *ret_rows = array->rows;
    *ret_layers = array->layers;
    return array->bytes;
}

static CUresult destroy(void *handle, bool mipmapped)
{
    sim_lock();
    struct sim_array *array = handle;
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_is(array, SIM_ARRAY) && array->mipmapped == mipmapped) {
        rc = sim_capture_check_unsafe();
        rc = rc == CUDA_SUCCESS ? sim_gate(array->ctx) : rc;
        if (rc == CUDA_SUCCESS && sim_handle_is(array, SIM_ARRAY)) {
            sim_handle_drop(array); /* a second destroy does not find it while this one waits */
            sim_ctx_drain(array->ctx);
            sim_array_free(array);
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    return array_new(pAllocateArray, false, (void **)pHandle);
}

CUresult sim_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    if (!pAllocateArray) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = pAllocateArray->Width,
        .Height = pAllocateArray->Height,
        .Format = pAllocateArray->Format,
        .NumChannels = pAllocateArray->NumChannels,
    };
    return array_new(&descriptor, false, (void **)pHandle);
}

CUresult sim_cuArrayDestroy(CUarray hArray)
{
    return destroy(hArray, false);
}

CUresult sim_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                    const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                    unsigned int numMipmapLevels)
{
    return numMipmapLevels > 0 ? array_new(pMipmappedArrayDesc, true, (void **)pHandle)
                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    return destroy(hMipmappedArray, true);
}

CUresult sim_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    sim_lock();
    bool known = pArrayDescriptor && sim_handle_is(hArray, SIM_ARRAY);
    if (known) {
        *pArrayDescriptor = ((struct sim_array *)hArray)->descriptor;
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
