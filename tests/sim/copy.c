/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. What the host waits for follows CUDA: copies to and from pageable memory and
 * the synchronous forms; copies within the device and fills return at once.
 */
#include "copy.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_BYTES ((size_t)64 << 10) /* pageable sources up to here are taken at the call */

static CUresult run_rows(const struct sim_work *work, size_t layer)
{
    const unsigned char *staged = work->u.copy.staged;
    size_t width = work->u.copy.width;
    const unsigned char *src = work->u.copy.src + layer * work->u.copy.src_slice;
    if (staged) {
        src = staged + layer * width * work->u.copy.height;
    }
    size_t src_pitch = staged ? width : work->u.copy.src_pitch;
    for (size_t row = 0; row < work->u.copy.height; row++) {
        unsigned char *dst =
            work->u.copy.dst + layer * work->u.copy.dst_slice + row * work->u.copy.dst_pitch;
        const unsigned char *from = src + row * src_pitch;
        if (!sim_copyable(dst, width) || !sim_copyable(from, width)) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        memmove(dst, from, width);
    }
    return CUDA_SUCCESS;
}

static CUresult run_copy(const struct sim_work *work, struct sim_ctx *ctx)
{
    CUresult rc = CUDA_SUCCESS;
    (void)ctx;
    for (size_t layer = 0; rc == CUDA_SUCCESS && layer < work->u.copy.depth; layer++) {
        rc = run_rows(work, layer);
    }
    return rc;
}

static CUresult run_set(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)ctx;
    size_t width = work->u.set.width;
    unsigned element = work->u.set.element;
    for (size_t row = 0; row < work->u.set.height; row++) {
        unsigned char *dst = work->u.set.dst + row * work->u.set.pitch;
        if (!sim_copyable(dst, width * element)) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        if (element == 1) {
            memset(dst, (int)work->u.set.value, width);
            continue;
        }
        for (size_t i = 0; i < width; i++) {
            memcpy(dst + i * element, &work->u.set.value, element);
        }
    }
    return CUDA_SUCCESS;
}

static size_t extent(size_t width, size_t height, size_t pitch)
{
    return height == 0 ? 0 : (height - 1) * pitch + width;
}

static size_t box_extent(const struct sim_copy *copy, size_t pitch, size_t slice)
{
    return (copy->depth - 1) * slice + extent(copy->width, copy->height, pitch);
}

static void stage(struct sim_work *work, const struct sim_copy *copy)
{
    unsigned char *to = sim_calloc(copy->height * copy->depth, copy->width);
    work->u.copy.staged = to;
    for (size_t layer = 0; layer < copy->depth; layer++) {
        for (size_t row = 0; row < copy->height; row++, to += copy->width) {
            memcpy(to,
                   (const unsigned char *)copy->src + layer * copy->src_slice +
                       row * copy->src_pitch,
                   copy->width);
        }
    }
}

static CUresult check(const struct sim_copy *copy, const struct sim_ctx *ctx)
{
    size_t dst_extent = box_extent(copy, copy->dst_pitch, copy->dst_slice);
    size_t src_extent = box_extent(copy, copy->src_pitch, copy->src_slice);
    CUresult rc = copy->async ? CUDA_SUCCESS : sim_capture_check_unsafe();
    if (rc == CUDA_SUCCESS &&
        ((copy->dst_device && !sim_copy_allowed(ctx, copy->dst, dst_extent)) ||
         (copy->src_device && !sim_copy_allowed(ctx, copy->src, src_extent)))) {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    return rc;
}

/* Whether the host waits for the copy; a small pageable source is taken now instead. */
static bool waits(const struct sim_copy *copy, struct sim_work *work)
{
    if (!copy->async) {
        bool dst_device = copy->dst_array || sim_on_device(copy->dst);
        bool src_device = copy->src_array || sim_on_device(copy->src);
        return !dst_device || !src_device;
    }
    if (!copy->src_array && sim_is_pageable(copy->src)) {
        if (copy->width * copy->height * copy->depth > STAGED_BYTES) {
            return true;
        }
        stage(work, copy);
    }
    return !copy->dst_array && sim_is_pageable(copy->dst);
}

CUresult sim_copy_submit(const struct sim_copy *copy, CUstream stream)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (copy->width == 0 || copy->height == 0 || copy->depth == 0) {
        sim_unlock();
        return CUDA_SUCCESS;
    }
    rc = check(copy, ctx);
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
        return rc;
    }
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_MEMCPY, run_copy);
    work->u.copy.dst = copy->dst;
    work->u.copy.src = copy->src;
    work->u.copy.width = copy->width;
    work->u.copy.height = copy->height;
    work->u.copy.depth = copy->depth;
    work->u.copy.dst_pitch = copy->dst_pitch;
    work->u.copy.src_pitch = copy->src_pitch;
    work->u.copy.dst_slice = copy->dst_slice;
    work->u.copy.src_slice = copy->src_slice;
    bool wait = waits(copy, work);
    struct sim_op *op = NULL;
    rc = sim_submit(stream, work, &op);
    if (op) {
        if (wait) {
            sim_op_wait(op);
            rc = ctx->owner->sticky;
        }
        sim_op_unref(op);
    }
    sim_unlock();
    return rc;
}

static CUresult copy_flat(void *dst, bool dst_device, const void *src, bool src_device,
                          size_t bytes, bool async, CUstream stream)
{
    struct sim_copy copy = {.dst = dst,
                            .src = src,
                            .width = bytes,
                            .height = 1,
                            .depth = 1,
                            .dst_pitch = bytes,
                            .src_pitch = bytes,
                            .dst_device = dst_device,
                            .src_device = src_device,
                            .async = async};
    return sim_copy_submit(&copy, stream);
}

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_flat(pointer(dstDevice), true, srcHost, false, ByteCount, false, NULL);
}

CUresult sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat(dstHost, false, pointer(srcDevice), true, ByteCount, false, NULL);
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat(pointer(dstDevice), true, pointer(srcDevice), true, ByteCount, false, NULL);
}

CUresult sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_flat(pointer(dst), false, pointer(src), false, ByteCount, false, NULL);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat(pointer(dstDevice), true, srcHost, false, ByteCount, true, hStream);
}

CUresult sim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat(dstHost, false, pointer(srcDevice), true, ByteCount, true, hStream);
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat(pointer(dstDevice), true, pointer(srcDevice), true, ByteCount, true, hStream);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_flat(pointer(dst), false, pointer(src), false, ByteCount, true, hStream);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                          CUcontext srcContext, size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    return copy_flat(pointer(dstDevice), false, pointer(srcDevice), false, ByteCount, false, NULL);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                               CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    (void)dstContext;
    (void)srcContext;
    return copy_flat(pointer(dstDevice), false, pointer(srcDevice), false, ByteCount, true,
                     hStream);
}

struct sim_work *sim_fill_work(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned element,
                               size_t width, size_t height)
{
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_MEMSET, run_set);
    work->u.set.dst = pointer(dst);
    work->u.set.value = value;
    work->u.set.element = element;
    work->u.set.width = width;
    work->u.set.height = height;
    work->u.set.pitch = pitch;
    return work;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned element, size_t width,
                     size_t height, CUstream stream)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (width > 0 && height > 0) {
        bool allowed = dst % element == 0 &&
                       sim_copy_allowed(ctx, pointer(dst), extent(width * element, height, pitch));
        rc = allowed ? sim_submit(stream, sim_fill_work(dst, pitch, value, element, width, height),
                                  NULL)
                     : CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return rc;
}

#define FILLS(bits, type)                                                                          \
    CUresult sim_cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t N)                       \
    {                                                                                              \
        return fill(dst, N * sizeof value, value, sizeof value, N, 1, NULL);                       \
    }                                                                                              \
    CUresult sim_cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t N, CUstream stream)    \
    {                                                                                              \
        return fill(dst, N * sizeof value, value, sizeof value, N, 1, stream);                     \
    }                                                                                              \
    CUresult sim_cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width,   \
                                        size_t height)                                             \
    {                                                                                              \
        return fill(dst, pitch, value, sizeof value, width, height, NULL);                         \
    }                                                                                              \
    CUresult sim_cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, \
                                          size_t height, CUstream stream)                          \
    {                                                                                              \
        return fill(dst, pitch, value, sizeof value, width, height, stream);                       \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
