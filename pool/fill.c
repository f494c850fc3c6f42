/* SPDX-License-Identifier: Apache-2.0
 *
 * See fill.h. Memsets run in their stream's order, so a batch is complete when the event behind it
 * is.
 */
#include "pool.h"

#include <string.h>

enum { NAP_NS = 20000, FINISH_NS = 100000000 };

void zone_fill_init(struct zone_fill *fill, const struct zone_options *options)
{
    memset(fill, 0, sizeof(*fill));
    fill->on = options->zero_fill || options->junk_fill;
    /* Memory of the driver's own pool comes as it was left. */
    fill->fresh =
        fill->on && (!options->zero_fill || options->backend == ZONE_BACKEND_CUDA_MALLOC_ASYNC);
    fill->with = options->zero_fill ? 0 : ZONE_FILL_JUNK;
}

void zone_fill_push(struct zone_pool *pool, struct zone_block *block)
{
    struct zone_fill *fill = &pool->fill;
    block->next = NULL;
    zone_lock(&fill->lock);
    if (fill->tail) {
        fill->tail->next = block;
    } else {
        fill->head = block;
    }
    fill->tail = block;
    zone_unlock(&fill->lock);
}

/* A list goes back to the front, where it came from. */
static void fill_unshift(struct zone_fill *fill, struct zone_block *list)
{
    if (!list) {
        return;
    }
    struct zone_block *last = list;
    while (last->next) {
        last = last->next;
    }
    zone_lock(&fill->lock);
    last->next = fill->head;
    fill->head = list;
    if (!fill->tail) {
        fill->tail = last;
    }
    zone_unlock(&fill->lock);
}

/* Takes all ready blocks out. *ret_stamp is that of the first one left, 0 if none is. */
static struct zone_block *fill_take_ready(struct zone_fill *fill, uint64_t ready,
                                          uint64_t *ret_stamp)
{
    struct zone_block *last = NULL;
    zone_lock(&fill->lock);
    struct zone_block *list = fill->head;
    struct zone_block *rest = list;
    while (rest && rest->stamp <= ready) {
        last = rest;
        rest = rest->next;
    }
    if (last) {
        last->next = NULL;
        fill->head = rest;
        fill->tail = rest ? fill->tail : NULL;
    }
    *ret_stamp = rest ? rest->stamp : 0;
    zone_unlock(&fill->lock);
    return last ? list : NULL;
}

struct zone_block *zone_fill_take_whole(struct zone_pool *pool)
{
    struct zone_fill *fill = &pool->fill;
    uint64_t ready = zone_fence_ready(&pool->fence);
    struct zone_block *before = NULL;
    zone_lock(&fill->lock);
    struct zone_block *block = fill->head;
    while (block && block->stamp <= ready && block->segment) {
        before = block;
        block = block->next;
    }
    if (block && block->stamp > ready) {
        block = NULL;
    }
    if (block) {
        if (before) {
            before->next = block->next;
        } else {
            fill->head = block->next;
        }
        fill->tail = fill->tail == block ? before : fill->tail;
    }
    zone_unlock(&fill->lock);
    return block;
}

static void fill_deliver(struct zone_pool *pool, struct zone_block *block)
{
    while (block) {
        struct zone_block *next = block->next;
        zone_bin_push(zone_bins_find(&pool->bins, block->bytes), block);
        block = next;
    }
}

/* Batches whose fills are complete. */
static void fill_collect(struct zone_pool *pool)
{
    struct zone_fill *fill = &pool->fill;
    while (atomic_load(&fill->count) > 0) {
        struct zone_fill_batch *batch = &fill->batches[fill->first % ZONE_FILL_BATCHES];
        int rc = pool->process->gpu->fill_done(batch->event);
        if (rc != ZONE_GPU_OK) {
            zone_pool_note(pool, rc);
            return;
        }
        fill_deliver(pool, batch->blocks);
        batch->blocks = NULL;
        fill->first++;
        atomic_fetch_sub(&fill->count, 1);
    }
}

/* The context must stay while it is called about: zone_registry_hide waits for us, or we see that
 * it was first. */
static bool fill_enter(struct zone_pool *pool)
{
    if (atomic_exchange(&pool->fill.busy, true)) {
        return false;
    }
    atomic_fetch_add(&pool->giving, 1);
    if (__atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST)) {
        return true;
    }
    atomic_fetch_sub(&pool->giving, 1);
    atomic_store(&pool->fill.busy, false);
    return false;
}

static void fill_leave(struct zone_pool *pool)
{
    atomic_fetch_sub(&pool->giving, 1);
    atomic_store(&pool->fill.busy, false);
}

static int fill_open(struct zone_pool *pool)
{
    struct zone_fill *fill = &pool->fill;
    return fill->stream ? ZONE_GPU_OK : pool->process->gpu->fill_open(pool->ctx, &fill->stream);
}

void zone_fill_begin(struct zone_pool *pool)
{
    if (pool->fill.on && fill_enter(pool)) {
        zone_pool_note(pool, fill_open(pool));
        fill_leave(pool);
    }
}

static int fill_one(struct zone_pool *pool, zone_addr_t addr, size_t bytes)
{
    struct zone_fill *fill = &pool->fill;
    const struct zone_gpu *gpu = pool->process->gpu;
    int rc = fill_open(pool);
    if (rc == ZONE_GPU_OK) {
        rc = gpu->fill(pool->ctx, fill->stream, addr, bytes, fill->with);
    }
    if (rc == ZONE_GPU_OK) {
        zone_count_add(&fill->fills, 1);
        zone_count_add(&fill->bytes, bytes);
    }
    return rc;
}

/* Starts the fills of a list; what cannot be started goes back. Returns the driver's code. */
static int fill_batch(struct zone_pool *pool, struct zone_block *list)
{
    struct zone_fill *fill = &pool->fill;
    unsigned count = atomic_load(&fill->count);
    struct zone_fill_batch *batch = &fill->batches[(fill->first + count) % ZONE_FILL_BATCHES];
    struct zone_block *done = NULL;
    struct zone_block **end = &done;
    int rc = ZONE_GPU_OK;
    while (list && rc == ZONE_GPU_OK) {
        struct zone_block *block = list;
        /* Not FREED: the driver has given its memory to somebody else, see zone_ptrmap_set. */
        if (atomic_load_explicit(&block->state, memory_order_relaxed) == ZONE_BLOCK_FREED) {
            rc = fill_one(pool, block->addr, block->bytes);
            if (rc != ZONE_GPU_OK) {
                break;
            }
            *end = block;
            end = &block->next;
        }
        list = block->next;
    }
    *end = NULL;
    fill_unshift(fill, list);
    if (!done) {
        return rc;
    }
    int marked = pool->process->gpu->fill_mark(pool->ctx, fill->stream, &batch->event);
    if (marked != ZONE_GPU_OK) {
        fill_unshift(fill, done); /* nobody could say when they are filled: once more */
        return marked;
    }
    batch->blocks = done;
    atomic_fetch_add(&fill->count, 1);
    return rc;
}

static bool fill_start(struct zone_pool *pool)
{
    struct zone_fill *fill = &pool->fill;
    uint64_t stamp;
    int rc = ZONE_GPU_OK;
    if (atomic_load(&fill->count) == ZONE_FILL_BATCHES) {
        return true;
    }
    struct zone_block *list = fill_take_ready(fill, zone_fence_ready(&pool->fence), &stamp);
    if (!list && stamp > 0 && zone_fence_ask(&pool->fence, pool->process->gpu, stamp, &rc)) {
        list = fill_take_ready(fill, zone_fence_ready(&pool->fence), &stamp);
    }
    if (list) {
        rc = fill_batch(pool, list);
    }
    zone_pool_note(pool, rc);
    return rc == ZONE_GPU_OK;
}

bool zone_fill_advance(struct zone_pool *pool)
{
    bool started = true;
    if (pool->fill.on && fill_enter(pool)) {
        fill_collect(pool);
        started = fill_start(pool);
        fill_leave(pool);
    }
    return started;
}

bool zone_fill_is_idle(struct zone_pool *pool)
{
    struct zone_fill *fill = &pool->fill;
    zone_lock(&fill->lock);
    bool waiting = fill->head && fill->head->stamp <= zone_fence_ready(&pool->fence);
    zone_unlock(&fill->lock);
    return !waiting && atomic_load(&fill->count) == 0;
}

void zone_fill_finish(struct zone_pool *pool)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    uint64_t deadline = 0;
    while (zone_fill_advance(pool) && !zone_fill_is_idle(pool) &&
           !atomic_load_explicit(&pool->fault, memory_order_relaxed)) {
        uint64_t now = gpu->now_ns();
        deadline = deadline > 0 ? deadline : now + FINISH_NS;
        if (now >= deadline) {
            break;
        }
        gpu->sleep_ns(NAP_NS);
    }
}

/* Fills and waits; the stream is the caller's. */
static int fill_and_wait(struct zone_pool *pool, zone_addr_t addr, size_t bytes)
{
    struct zone_fill *fill = &pool->fill;
    const struct zone_gpu *gpu = pool->process->gpu;
    int rc = fill_open(pool);
    if (rc == ZONE_GPU_OK && !fill->fresh_event) {
        /* Made before the fill: from there on there must be a way to know its end. */
        rc = gpu->fill_mark(pool->ctx, fill->stream, &fill->fresh_event);
    }
    if (rc == ZONE_GPU_OK) {
        rc = fill_one(pool, addr, bytes);
    }
    if (rc != ZONE_GPU_OK) {
        return rc;
    }
    while ((rc = gpu->fill_mark(pool->ctx, fill->stream, &fill->fresh_event)) != ZONE_GPU_OK &&
           !zone_gpu_is_fault(rc)) {
        gpu->sleep_ns(NAP_NS);
    }
    while (!zone_gpu_is_fault(rc) && (rc = gpu->fill_done(fill->fresh_event)) != ZONE_GPU_OK) {
        gpu->sleep_ns(NAP_NS);
    }
    return rc;
}

void zone_fill_fresh(struct zone_pool *pool, zone_addr_t addr, size_t bytes)
{
    if (!pool->fill.fresh) {
        return;
    }
    while (!fill_enter(pool)) {
        if (!__atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST)) {
            return;
        }
        pool->process->gpu->sleep_ns(NAP_NS);
    }
    zone_pool_note(pool, fill_and_wait(pool, addr, bytes));
    fill_leave(pool);
}
