/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of two and three dimensions, and those to and from arrays.
 */
#include "copy.h"

/* One end of a copy: where its bytes begin, their pitch and the rows of a layer. */
struct end {
    unsigned char *at;
    size_t pitch, rows;
    bool array, device;
};

struct place {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch, rows, x, y, z;
};

/* INVALID_VALUE for what lies outside of an array, or a pitch that is too small. */
static CUresult end_of(const struct place *place, size_t width, size_t height, size_t depth,
                       struct end *ret)
{
    size_t layers = SIZE_MAX;
    *ret = (struct end){.pitch = place->pitch ? place->pitch : width,
                        .rows = place->rows ? place->rows : height};
    switch (place->type) {
    case CU_MEMORYTYPE_HOST:
        ret->at = (unsigned char *)(uintptr_t)place->host;
        break;
    case CU_MEMORYTYPE_ARRAY:
        sim_lock();
        ret->at = sim_array_bytes(place->array, &ret->pitch, &ret->rows, &layers);
        sim_unlock();
        ret->array = true;
        if (!ret->at || place->y + height > ret->rows || place->z + depth > layers) {
            return ret->at ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
        }
        break;
    case CU_MEMORYTYPE_DEVICE:
        ret->device = true;
        ret->at = (unsigned char *)(uintptr_t)place->device;
        break;
    case CU_MEMORYTYPE_UNIFIED:
    default:
        ret->at = (unsigned char *)(uintptr_t)place->device;
        break;
    }
    if (place->x + width > ret->pitch) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ret->at += (place->z * ret->rows + place->y) * ret->pitch + place->x;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const struct place *to, const struct place *from, size_t width,
                         size_t height, size_t depth, bool async, CUstream stream)
{
    struct end dst = {0};
    struct end src = {0};
    CUresult rc = end_of(to, width, height, depth, &dst);
    rc = rc == CUDA_SUCCESS ? end_of(from, width, height, depth, &src) : rc;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_copy copy = {.dst = dst.at,
                            .src = src.at,
                            .width = width,
                            .height = height,
                            .depth = depth,
                            .dst_pitch = dst.pitch,
                            .src_pitch = src.pitch,
                            .dst_slice = dst.pitch * dst.rows,
                            .src_slice = src.pitch * src.rows,
                            .dst_device = dst.device,
                            .src_device = src.device,
                            .dst_array = dst.array,
                            .src_array = src.array,
                            .async = async};
    return sim_copy_submit(&copy, stream);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *request, bool async, CUstream stream)
{
    if (!request) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct place to = {request->dstMemoryType, request->dstHost,  request->dstDevice,
                       request->dstArray,      request->dstPitch, 0,
                       request->dstXInBytes,   request->dstY,     0};
    struct place from = {request->srcMemoryType, request->srcHost,  request->srcDevice,
                         request->srcArray,      request->srcPitch, 0,
                         request->srcXInBytes,   request->srcY,     0};
    return copy_box(&to, &from, request->WidthInBytes, request->Height, 1, async, stream);
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, false, NULL);
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, false, NULL);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, true, hStream);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *request, bool async, CUstream stream)
{
    if (!request) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct place to = {request->dstMemoryType, request->dstHost,  request->dstDevice,
                       request->dstArray,      request->dstPitch, request->dstHeight,
                       request->dstXInBytes,   request->dstY,     request->dstZ};
    struct place from = {request->srcMemoryType, request->srcHost,  request->srcDevice,
                         request->srcArray,      request->srcPitch, request->srcHeight,
                         request->srcXInBytes,   request->srcY,     request->srcZ};
    return copy_box(&to, &from, request->WidthInBytes, request->Height, request->Depth, async,
                    stream);
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, false, NULL);
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, true, hStream);
}

/* Bytes of an array's first row, and of something flat. */
static struct place array_at(CUarray array, size_t offset)
{
    return (struct place){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static struct place host_at(const void *host)
{
    return (struct place){.type = CU_MEMORYTYPE_HOST, .host = host};
}

static struct place device_at(CUdeviceptr device)
{
    return (struct place){.type = CU_MEMORYTYPE_DEVICE, .device = device};
}

static CUresult copy_row(struct place to, struct place from, size_t bytes, bool async,
                         CUstream stream)
{
    return copy_box(&to, &from, bytes, 1, 1, async, stream);
}

CUresult sim_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                             size_t ByteCount)
{
    return copy_row(array_at(dstArray, dstOffset), host_at(srcHost), ByteCount, false, NULL);
}

CUresult sim_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(host_at(dstHost), array_at(srcArray, srcOffset), ByteCount, false, NULL);
}

CUresult sim_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                  size_t ByteCount, CUstream hStream)
{
    return copy_row(array_at(dstArray, dstOffset), host_at(srcHost), ByteCount, true, hStream);
}

CUresult sim_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                  size_t ByteCount, CUstream hStream)
{
    return copy_row(host_at(dstHost), array_at(srcArray, srcOffset), ByteCount, true, hStream);
}

CUresult sim_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                             size_t ByteCount)
{
    return copy_row(array_at(dstArray, dstOffset), device_at(srcDevice), ByteCount, false, NULL);
}

CUresult sim_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                             size_t ByteCount)
{
    return copy_row(device_at(dstDevice), array_at(srcArray, srcOffset), ByteCount, false, NULL);
}

CUresult sim_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                             size_t ByteCount)
{
    return copy_row(array_at(dstArray, dstOffset), array_at(srcArray, srcOffset), ByteCount, false,
                    NULL);
}
