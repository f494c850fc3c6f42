/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver puts small allocations into chunks itself, and its handle says which part of a chunk
 * is meant: bytes 16 to 23 hold the size asked for, 24 to 27 the chunk's size in 4 KiB, 28 to 31
 * the offset in the chunk (read off an H200's driver 580; facts: the handle carries size and
 * offset). So a block in a segment is named by the segment's handle with its own size and offset,
 * and every process can open it. That this driver writes its handles so is checked first, with two
 * small allocations of its own; an unknown layout gives an error, never another block's bytes.
 */
#include "ipc.h"

#include "arena.h"
#include "zone_gpu_driver.h"

#include <stdatomic.h>
#include <string.h>

enum { SIZE_AT = 16, CHUNK_AT = 24, OFFSET_AT = 28, CHUNK_BITS = 21, PAGE_BITS = 12 };

enum layout { LAYOUT_UNTRIED, LAYOUT_KNOWN, LAYOUT_UNKNOWN };

static _Atomic int ipc_layout;

struct part {
    uint64_t bytes;
    uint32_t pages; /* of the chunk */
    uint32_t offset;
};

static struct part ipc_read(const CUipcMemHandle *handle)
{
    struct part part;
    memcpy(&part.bytes, handle->reserved + SIZE_AT, sizeof(part.bytes));
    memcpy(&part.pages, handle->reserved + CHUNK_AT, sizeof(part.pages));
    memcpy(&part.offset, handle->reserved + OFFSET_AT, sizeof(part.offset));
    return part;
}

/* The part that the handle of an allocation of its own names. UNTRIED: the driver refused. */
static enum layout ipc_probe(CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr, struct part *ret)
{
    CUipcMemHandle handle;
    if (zone_gpu_shared_probe(ctx, bytes, ret_ptr, &handle) != CUDA_SUCCESS) {
        return LAYOUT_UNTRIED;
    }
    *ret = ipc_read(&handle);
    return ret->bytes == bytes && ret->pages == 1U << (CHUNK_BITS - PAGE_BITS) ? LAYOUT_KNOWN
                                                                               : LAYOUT_UNKNOWN;
}

/* Two allocations of one chunk must differ in their handles by what they differ in. They are not
 * freed: a free would wait for running work, which asking for a handle does not. */
static enum layout ipc_try(CUcontext ctx)
{
    enum { FIRST = 1000, SECOND = 3000, TRIES = 4 };
    const CUdeviceptr inside = ((CUdeviceptr)1 << CHUNK_BITS) - 1;
    CUdeviceptr before = 0;
    struct part first;
    enum layout layout = ipc_probe(ctx, FIRST, &before, &first);
    /* The first may have filled its chunk up. */
    for (unsigned i = 0; layout == LAYOUT_KNOWN && i < TRIES; i++) {
        CUdeviceptr ptr = 0;
        struct part part;
        layout = ipc_probe(ctx, SECOND, &ptr, &part);
        if (layout == LAYOUT_KNOWN && ptr >> CHUNK_BITS == before >> CHUNK_BITS) {
            bool right = first.offset == (before & inside) && part.offset == (ptr & inside);
            return right ? LAYOUT_KNOWN : LAYOUT_UNKNOWN;
        }
        before = ptr;
        first = part;
    }
    return layout == LAYOUT_KNOWN ? LAYOUT_UNKNOWN : layout;
}

CUresult zone_ipc_get(const struct zone_driver *driver, CUipcMemHandle *handle,
                      const struct zone_block *block)
{
    const struct zone_segment *segment = block->segment;
    CUipcMemHandle whole;
    CUresult rc = ZONE_REAL(driver, cuIpcGetMemHandle)(&whole, segment->first->addr);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct part part = ipc_read(&whole);
    uint64_t offset = block->addr - segment->first->addr;
    if (part.bytes != segment->bytes || part.pages != segment->bytes >> PAGE_BITS ||
        part.offset != 0 || offset > UINT32_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (atomic_load(&ipc_layout) == LAYOUT_UNTRIED) {
        atomic_store(&ipc_layout, ipc_try(block->pool->ctx));
    }
    if (atomic_load(&ipc_layout) != LAYOUT_KNOWN) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    part.bytes = block->req_bytes;
    part.offset = (uint32_t)offset;
    memcpy(whole.reserved + SIZE_AT, &part.bytes, sizeof(part.bytes));
    memcpy(whole.reserved + OFFSET_AT, &part.offset, sizeof(part.offset));
    *handle = whole;
    return CUDA_SUCCESS;
}
