/* SPDX-License-Identifier: Apache-2.0
 *
 * Device and managed memory: cuMemAlloc, its relatives and the free that waits. A free holds up
 * what other threads want of the same context (sim_gate), as the driver does.
 */
#include "sim.h"

#include <sys/mman.h>

/* Context, capture rules and gate of an allocation; the lock is held on success. */
static CUresult begin_alloc(struct sim_ctx **ret_ctx)
{
    CUresult rc = sim_begin(ret_ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_capture_check_unsafe();
    rc = rc == CUDA_SUCCESS ? sim_gate(*ret_ctx) : rc;
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
    }
    return rc;
}

static CUresult managed_alloc(struct sim_ctx *ctx, size_t size, CUdeviceptr *ret_address)
{
    size_t bytes = (size + 4095) & ~(size_t)4095;
    void *memory = bytes < size ? MAP_FAILED
                                : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_block_add((uintptr_t)memory, size, bytes, SIM_MANAGED, ctx);
    *ret_address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult device_alloc(struct sim_ctx *ctx, void *owner, size_t size,
                             CUdeviceptr *ret_address)
{
    uintptr_t address;
    size_t bytes;
    CUresult rc = sim_heap_alloc(ctx->device, owner, size, false, &address, &bytes);
    if (rc == CUDA_SUCCESS) {
        sim_block_add(address, size, bytes, SIM_DEVICE, ctx)->owner = owner;
        *ret_address = address;
    }
    return rc;
}

bool sim_variable_alloc(struct sim_ctx *ctx, void *module, size_t size, bool managed,
                        CUdeviceptr *ret_address)
{
    CUresult rc = managed ? managed_alloc(ctx, size, ret_address)
                          : device_alloc(ctx, module, size, ret_address);
    if (rc == CUDA_SUCCESS) {
        sim_block_from(*ret_address)->variable = true;
    }
    return rc == CUDA_SUCCESS;
}

CUresult sim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct sim_ctx *ctx;
    if (dptr && bytesize == 0) {
        *dptr = 0;
    }
    if (!dptr || bytesize == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = begin_alloc(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = device_alloc(ctx, ctx->owner, bytesize, dptr);
    sim_unlock();
    return rc;
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                size_t Height, unsigned int ElementSizeBytes)
{
    size_t bytes;
    if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pitch = (WidthInBytes + SIM_UNIT - 1) & ~(SIM_UNIT - 1);
    if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult rc = sim_cuMemAlloc_v2(dptr, bytes);
    if (rc == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return rc;
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct sim_ctx *ctx;
    if (!dptr || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = begin_alloc(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = managed_alloc(ctx, bytesize, dptr);
    sim_unlock();
    return rc;
}

/* Everything that runs in the context is waited for, whoever started it. */
static CUresult free_waiting(struct sim_block *block)
{
    struct sim_ctx *ctx = block->ctx;
    uintptr_t address = block->address;
    CUresult rc = sim_gate(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    /* Another thread may have freed it while this one was held up. */
    if (sim_block_from(address) != block || block->leaving) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    block->leaving = true;
    ctx->frees_waiting++;
    sim_ctx_drain(ctx);
    ctx->frees_waiting--;
    sim_progress();
    if (ctx->sticky != CUDA_SUCCESS) {
        block->leaving = false;
        return ctx->sticky;
    }
    sim_block_release(block);
    return CUDA_SUCCESS;
}

static void release_later(void *data)
{
    sim_block_release(data);
}

/* Stream-ordered memory goes without a wait: its release follows what is queued now. */
static CUresult free_stream_ordered(struct sim_block *block)
{
    struct sim_ctx *ctx = block->ctx;
    block->leaving = true;
    if (!ctx || !ctx->alive) {
        sim_block_release(block);
        return CUDA_SUCCESS;
    }
    struct sim_op *join = sim_ctx_join(ctx);
    if (join->done) {
        sim_block_release(block);
    } else {
        join->on_done = release_later;
        join->data = block;
    }
    sim_op_unref(join);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemFree_v2(CUdeviceptr dptr)
{
    if (dptr == 0) {
        return CUDA_SUCCESS;
    }
    sim_lock();
    struct sim_ctx *current;
    CUresult rc = sim_current(&current);
    if (rc == CUDA_ERROR_INVALID_CONTEXT || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        rc = CUDA_SUCCESS; /* a free needs no current context */
    }
    rc = rc == CUDA_SUCCESS ? sim_capture_check_unsafe() : rc;
    if (rc == CUDA_SUCCESS) {
        struct sim_block *block = sim_block_from(dptr);
        if (!block || block->leaving || block->variable || block->memory == SIM_HOST ||
            (block->memory == SIM_IMPORT && !block->of_pool) || block->memory == SIM_RANGE) {
            rc = CUDA_ERROR_INVALID_VALUE;
        } else if (block->memory == SIM_ASYNC || block->memory == SIM_IMPORT) {
            rc = free_stream_ordered(block);
        } else {
            rc = free_waiting(block);
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (free) {
        *free = (ctx->device->chunks - sim_neighbours_used(ctx->device)) * SIM_CHUNK;
    }
    if (total) {
        *total = ctx->device->chunks * SIM_CHUNK;
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_visible(dptr);
    if (!block) {
        rc = CUDA_ERROR_NOT_FOUND;
    } else {
        if (pbase) {
            *pbase = block->address;
        }
        if (psize) {
            *psize = block->size;
        }
    }
    sim_unlock();
    return rc;
}
