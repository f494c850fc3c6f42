/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory: pools, cuMemAllocAsync and cuMemFreeAsync. A freed range is at once good
 * for the stream that freed it and, if the pool reuses opportunistically, for all once the free has
 * run; with internal dependencies another stream gets it before and waits for the free. What a pool
 * may not keep goes back to the device when the free runs.
 */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

/* A range that was freed into its pool. */
struct spare {
    struct sim_pool *pool;
    uintptr_t address;
    size_t bytes;
    unsigned long long stream;
    struct sim_op *op; /* the free; NULL once it has run */
    struct spare *next;
};

struct sim_pool *sim_pool_new(struct sim_device *device)
{
    struct sim_pool *pool = sim_calloc(1, sizeof *pool);
    pool->device = device;
    for (int i = 0; i < 3; i++) {
        pool->reuse[i] = 1;
    }
    sim_handle_add(pool, SIM_POOL, NULL);
    return pool;
}

struct sim_pool *sim_default_pool(struct sim_device *device)
{
    if (!device->default_pool) {
        device->default_pool = sim_pool_new(device);
    }
    return device->default_pool;
}

struct sim_pool *sim_current_pool(struct sim_device *device)
{
    return device->pool ? device->pool : sim_default_pool(device);
}

void sim_pool_end(struct sim_pool *pool)
{
    if (pool->destroyed && pool->reserved == 0) {
        free(pool);
    }
}

static void give_back(struct sim_pool *pool, uintptr_t address, size_t bytes)
{
    sim_heap_free(pool->device, pool, address, bytes);
    pool->reserved -= bytes;
}

static void spare_remove(struct spare *spare)
{
    struct spare **link = &spare->pool->spares;
    while (*link != spare) {
        link = &(*link)->next;
    }
    *link = spare->next;
    if (spare->op) {
        spare->op->on_done = NULL;
        sim_op_unref(spare->op);
    }
    free(spare);
}

static void spare_release(struct spare *spare)
{
    give_back(spare->pool, spare->address, spare->bytes);
    spare_remove(spare);
}

static void free_ran(void *data)
{
    struct spare *spare = data;
    struct sim_pool *pool = spare->pool;
    sim_op_unref(spare->op);
    spare->op = NULL;
    if (pool->reserved > pool->threshold || pool->destroyed) {
        spare_release(spare);
        sim_pool_end(pool);
    }
}

/* Gives back ranges whose free has run, down to what the pool may keep. */
void sim_pool_trim(struct sim_pool *pool, uint64_t keep)
{
    struct spare *next;
    for (struct spare *spare = pool->spares; spare; spare = next) {
        next = spare->next;
        if (!spare->op && pool->reserved > keep) {
            spare_release(spare);
        }
    }
}

static bool pool_allows(const struct sim_pool *pool, CUmemPool_attribute reuse)
{
    return pool->reuse[reuse - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] != 0;
}

/* The best range of the size that the stream may have, NULL if there is none. */
static struct spare *pool_find(struct sim_pool *pool, size_t bytes, unsigned long long stream)
{
    struct spare *busy = NULL;
    for (struct spare *spare = pool->spares; spare; spare = spare->next) {
        if (spare->bytes != bytes) {
            continue;
        }
        if (spare->stream == stream ||
            (!spare->op && pool_allows(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC))) {
            return spare;
        }
        busy = spare;
    }
    return pool_allows(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) ? busy : NULL;
}

/* *ret_after, unless NULL: what the asking stream has to wait for, with a reference. */
static CUresult pool_take(struct sim_pool *pool, size_t size, unsigned long long stream,
                          uintptr_t *ret_address, size_t *ret_bytes, struct sim_op **ret_after)
{
    size_t wanted = (size + SIM_UNIT - 1) & ~(SIM_UNIT - 1);
    if (wanted >= SIM_LARGE) {
        wanted = (wanted + SIM_CHUNK - 1) & ~(SIM_CHUNK - 1);
    }
    struct spare *spare = pool_find(pool, wanted, stream);
    *ret_after = NULL;
    if (spare) {
        *ret_address = spare->address;
        *ret_bytes = spare->bytes;
        if (spare->op && spare->stream != stream) {
            *ret_after = spare->op;
            sim_op_ref(spare->op);
        }
        spare_remove(spare);
        return CUDA_SUCCESS;
    }
    CUresult rc = sim_heap_alloc(pool->device, pool, size, true, ret_address, ret_bytes);
    if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        sim_pool_trim(pool, 0);
        rc = sim_heap_alloc(pool->device, pool, size, true, ret_address, ret_bytes);
    }
    if (rc == CUDA_SUCCESS) {
        pool->reserved += *ret_bytes;
        if (pool->reserved > pool->reserved_high) {
            pool->reserved_high = pool->reserved;
        }
    }
    return rc;
}

static CUresult run_nothing(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)work;
    (void)ctx;
    return CUDA_SUCCESS;
}

struct sim_work *sim_memory_work(CUgraphNodeType type, uintptr_t address, size_t bytes)
{
    struct sim_work *work = sim_work_new(type, run_nothing);
    work->u.memory.address = address;
    work->u.memory.bytes = bytes;
    return work;
}

static struct sim_block *block_of(struct sim_pool *pool, uintptr_t address, size_t size,
                                  size_t bytes, struct sim_ctx *ctx)
{
    struct sim_block *block = sim_block_add(address, size, bytes, SIM_ASYNC, ctx);
    block->owner = pool;
    block->device = pool->device;
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    return block;
}

CUresult sim_graph_memory(struct sim_device *device, size_t size, struct sim_work **ret_work)
{
    uintptr_t address = 0;
    size_t bytes = 0;
    struct sim_op *after = NULL;
    struct sim_pool *pool = sim_default_pool(device);
    CUresult rc =
        size > 0 ? pool_take(pool, size, 0, &address, &bytes, &after) : CUDA_ERROR_INVALID_VALUE;
    if (after) {
        sim_op_wait(after);
        sim_op_unref(after);
    }
    if (rc == CUDA_SUCCESS) {
        block_of(pool, address, size, bytes, NULL)->graph = true;
        *ret_work = sim_memory_work(CU_GRAPH_NODE_TYPE_MEM_ALLOC, address, bytes);
        (*ret_work)->u.memory.graph = true;
    }
    return rc;
}

static CUresult alloc(CUdeviceptr *dptr, size_t size, struct sim_pool *pool, CUstream handle)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    if (!dptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (pool && (!sim_handle_is(pool, SIM_POOL) || pool->imported)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    pool = pool ? pool : sim_current_pool(ctx->device);
    rc = rc == CUDA_SUCCESS ? sim_gate(ctx) : rc;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(handle, ctx, &stream) : rc;
    if (rc == CUDA_SUCCESS && size == 0) {
        *dptr = 0;
        sim_unlock();
        return CUDA_SUCCESS;
    }
    uintptr_t address = 0;
    size_t bytes = 0;
    struct sim_op *after = NULL;
    rc = rc == CUDA_SUCCESS ? pool_take(pool, size, stream->id, &address, &bytes, &after) : rc;
    if (after) {
        struct sim_op *wait = sim_op_new(NULL);
        sim_op_depend(wait, after);
        sim_stream_queue(stream, wait);
        sim_op_unref(wait);
        sim_op_unref(after);
    }
    if (rc == CUDA_SUCCESS) {
        struct sim_block *block = block_of(pool, address, size, bytes, ctx);
        block->graph = stream->capture != NULL;
        struct sim_work *work = sim_memory_work(CU_GRAPH_NODE_TYPE_MEM_ALLOC, address, bytes);
        work->u.memory.graph = block->graph;
        rc = sim_submit(handle, work, NULL);
        if (rc != CUDA_SUCCESS && !block->graph) {
            sim_pool_release(block);
        } else if (rc == CUDA_SUCCESS) {
            *dptr = address;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return alloc(dptr, bytesize, NULL, hStream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                     CUstream hStream)
{
    return pool ? alloc(dptr, bytesize, (struct sim_pool *)pool, hStream)
                : CUDA_ERROR_INVALID_VALUE;
}

void sim_pool_release(struct sim_block *block)
{
    struct sim_pool *pool = block->owner;
    pool->used -= block->bytes;
    give_back(pool, block->address, block->bytes);
    sim_block_remove(block);
    sim_pool_end(pool);
}

static void release_later(void *data)
{
    sim_block_release(data);
}

/* The range leaves the table now and the pool's books follow when the free runs. */
static void to_spare(struct sim_block *block, struct sim_stream *stream, struct sim_op *op)
{
    struct sim_pool *pool = block->owner;
    struct spare *spare = sim_calloc(1, sizeof *spare);
    spare->pool = pool;
    spare->address = block->address;
    spare->bytes = block->bytes;
    spare->stream = stream->id;
    spare->op = op;
    spare->next = pool->spares;
    pool->spares = spare;
    pool->used -= block->bytes;
    sim_block_remove(block);
    op->on_done = free_ran;
    op->data = spare;
}

static CUresult free_async(CUdeviceptr dptr, CUstream handle)
{
    struct sim_ctx *ctx;
    struct sim_stream *stream;
    CUresult rc = sim_current(&ctx);
    rc = rc == CUDA_SUCCESS ? sim_stream_find(handle, ctx, &stream) : rc;
    if (rc != CUDA_SUCCESS || dptr == 0) {
        return rc;
    }
    struct sim_block *block = sim_block_from(dptr);
    bool known = block && (block->memory == SIM_ASYNC || block->memory == SIM_DEVICE ||
                           (block->memory == SIM_IMPORT && block->of_pool));
    if (!known || block->leaving) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture && !block->graph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_op *op;
    block->leaving = !block->graph;
    rc = sim_submit(
        handle, sim_memory_work(CU_GRAPH_NODE_TYPE_MEM_FREE, block->address, block->bytes), &op);
    if (rc != CUDA_SUCCESS) {
        block->leaving = false;
        return rc;
    }
    if (block->graph) {
        sim_op_unref(op); /* its memory belongs to the graph */
    } else if (block->memory == SIM_ASYNC) {
        to_spare(block, stream, op);
    } else {
        op->on_done = release_later;
        op->data = block;
        sim_op_unref(op);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    sim_lock();
    CUresult rc = free_async(dptr, hStream);
    sim_unlock();
    return rc;
}
