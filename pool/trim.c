/* SPDX-License-Identifier: Apache-2.0
 *
 * What gives memory back to the driver, and what decides that it must be. cuMemFree waits for all
 * work of the context and blocks other threads' launches (facts.md), so blocks are given back only
 * inside the program's own free, or when an allocation or another call would otherwise fail.
 */
#include "pool.h"

#include "initial.h"
#include "ptrmap.h"
#include "stream.h"

/* Driver memory is looked at again after this long, or when a quarter of what seemed free may be
 * gone. */
enum { LOOK_NS = 100000000 };

void zone_pool_look(struct zone_pool *pool, size_t bytes)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    if (zone_limit_used(pool->device) > pool->collect_above) {
        atomic_store(&pool->collect_before, zone_fence_stamp(&pool->fence));
    }
    size_t guess = atomic_load_explicit(&pool->free_guess, memory_order_relaxed);
    guess = guess > bytes ? guess - bytes : 0;
    atomic_store_explicit(&pool->free_guess, guess, memory_order_relaxed);
    uint64_t now = gpu->now_ns();
    uint64_t looked = atomic_load_explicit(&pool->looked_ns, memory_order_relaxed);
    if (guess / 4 > zone_pool_min_free(pool) && now - looked < LOOK_NS) {
        return;
    }
    size_t free_bytes, total;
    if (gpu->mem_info(pool->ctx, &free_bytes, &total) == ZONE_GPU_OK) {
        atomic_store_explicit(&pool->free_guess, free_bytes, memory_order_relaxed);
        atomic_store_explicit(&pool->looked_ns, now, memory_order_relaxed);
        atomic_store_explicit(&pool->tight, free_bytes < zone_pool_min_free(pool),
                              memory_order_relaxed);
    }
}

int zone_pool_driver_free(struct zone_pool *pool, zone_addr_t addr)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    uint64_t start = gpu->now_ns();
    int rc = gpu->give ? gpu->give(addr) : gpu->free(addr); /* it is ready */
    zone_count_add(&pool->counts.driver_frees, 1);
    zone_count_add(&pool->counts.driver_free_ns, gpu->now_ns() - start);
    return rc;
}

int zone_pool_trim_block(struct zone_pool *pool, struct zone_bin *bin, struct zone_block *block,
                         size_t *given)
{
    uint8_t freed = ZONE_BLOCK_FREED;
    if (block->segment) {
        /* Its segment goes back once nothing else is in it. */
        if (atomic_load_explicit(&block->state, memory_order_relaxed) == freed) {
            zone_pool_absorb(pool, block);
        }
        return ZONE_GPU_OK;
    }
    if (!atomic_compare_exchange_strong_explicit(&block->state, &freed, ZONE_BLOCK_LEAVING,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return ZONE_GPU_OK; /* its memory is somebody else's by now, see zone_ptrmap_set */
    }
    int rc = zone_pool_driver_free(pool, block->addr);
    if (rc != ZONE_GPU_OK) {
        atomic_store_explicit(&block->state, ZONE_BLOCK_FREED, memory_order_relaxed);
        if (bin) {
            zone_bin_push(bin, block);
        } else {
            zone_fill_push(pool, block);
        }
        return rc;
    }
    *given += block->bytes;
    zone_pool_gave_back(pool, block->bytes);
    zone_count_add(&pool->counts.trimmed_bytes, block->bytes);
    zone_ptrmap_remove(block);
    zone_block_delete(block);
    return ZONE_GPU_OK;
}

/* The stamp of the block that was freed longest ago and is ready; UINT64_MAX if there is none. */
static uint64_t trim_oldest(struct zone_pool *pool, uint64_t ready)
{
    uint64_t oldest = UINT64_MAX;
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        zone_lock(&bin->lock);
        if (bin->head && bin->head->stamp <= ready && bin->head->stamp < oldest) {
            oldest = bin->head->stamp;
        }
        zone_unlock(&bin->lock);
    }
    return oldest;
}

static size_t trim_give_back(struct zone_pool *pool, size_t bytes)
{
    uint64_t ready = zone_fence_ready(&pool->fence);
    size_t given = 0;
    int rc = ZONE_GPU_OK;
    while (given < bytes && rc == ZONE_GPU_OK) {
        /* By age, an eighth of the epochs at a time: a pass over the bins costs as much as a few
         * blocks. */
        uint64_t oldest = bytes == SIZE_MAX ? ready : trim_oldest(pool, ready);
        if (oldest == UINT64_MAX) {
            rc = zone_pool_release(pool, bytes, UINT64_MAX, &given);
            break;
        }
        uint64_t until = oldest + (ready - oldest) / 8;
        struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
        for (; bin; bin = bin->older) {
            struct zone_block *block = NULL;
            uint64_t stamp;
            while (given < bytes && rc == ZONE_GPU_OK &&
                   (block = zone_bin_take(bin, until, &stamp)) != NULL) {
                rc = zone_pool_trim_block(pool, bin, block, &given);
            }
        }
        if (rc == ZONE_GPU_OK) {
            rc = zone_pool_release(pool, bytes, UINT64_MAX, &given);
        }
        if (bytes == SIZE_MAX) {
            break;
        }
    }
    zone_pool_note(pool, rc);
    return given;
}

/* What waits for its fill: whole blocks go back without, parts of segments must be free runs first.
 */
static size_t trim_unfilled(struct zone_pool *pool, size_t bytes)
{
    struct zone_block *block = NULL;
    size_t given = 0;
    int rc = ZONE_GPU_OK;
    while (given < bytes && rc == ZONE_GPU_OK && (block = zone_fill_take_whole(pool)) != NULL) {
        rc = zone_pool_trim_block(pool, NULL, block, &given);
    }
    zone_pool_note(pool, rc);
    if (given < bytes && rc == ZONE_GPU_OK) {
        zone_fill_finish(pool);
        given += trim_give_back(pool, bytes == SIZE_MAX ? bytes : bytes - given);
    }
    return given;
}

/* The context must not be destroyed between a block's leaving and the driver's free of it: the
 * address may be somebody else's by then. zone_registry_hide waits for us, or we see that it was
 * first. */
static size_t give_back(struct zone_pool *pool, size_t bytes, bool trim)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    size_t given = 0;
    atomic_fetch_add(&pool->giving, 1);
    if (__atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST)) {
        zone_stream_harvest(pool);
        given = trim_give_back(pool, bytes);
        if (pool->fill.on && given < bytes) {
            given += trim_unfilled(pool, bytes == SIZE_MAX ? bytes : bytes - given);
        }
        if (trim && given > 0) {
            zone_count_add(&pool->counts.trims, 1);
        }
        if (trim && gpu->trim) {
            /* What was given back was the driver's to keep until now. */
            given = gpu->trim(pool->device);
        }
    }
    atomic_fetch_sub(&pool->giving, 1);
    return given;
}

size_t zone_pool_give_back(struct zone_pool *pool, size_t bytes)
{
    return give_back(pool, bytes, true);
}

/* Where giving back does not wait, all that is ready goes, and nothing is waited for. A question
 * may settle the oldest mark only, so several are asked: a backlog gets shorter with every free. */
static int shrink_to_pending(struct zone_pool *pool)
{
    enum { QUESTIONS = 4 };
    int fault = ZONE_GPU_OK;
    for (unsigned i = 0; i < QUESTIONS; i++) {
        uint64_t next = zone_fence_ready(&pool->fence) + 1;
        if (!zone_fence_ask(&pool->fence, pool->process->gpu, next, &fault)) {
            break;
        }
    }
    if (fault == ZONE_GPU_OK) {
        give_back(pool, SIZE_MAX, false);
    }
    return fault;
}

int zone_pool_wait_own(struct zone_pool *pool, const struct zone_ticket *ticket)
{
    uint64_t waited = 0;
    int rc = zone_fence_wait_own(&pool->fence, pool->process->gpu, ticket, &waited);
    if (waited > 0) {
        zone_count_add(&pool->counts.throttle_waits, 1);
        zone_count_add(&pool->counts.throttle_wait_ns, waited);
    }
    return rc;
}

int zone_pool_free_tight(struct zone_pool *pool, const struct zone_ticket *ticket)
{
    size_t free_bytes, total;
    int rc = zone_pool_wait_own(pool, ticket);
    if (rc != ZONE_GPU_OK) {
        return rc;
    }
    rc = pool->process->gpu->mem_info(pool->ctx, &free_bytes, &total);
    if (rc != ZONE_GPU_OK) {
        return rc;
    }
    if (free_bytes < zone_pool_min_free(pool)) {
        free_bytes += zone_pool_give_back(pool, zone_pool_min_free(pool) - free_bytes);
    }
    atomic_store_explicit(&pool->free_guess, free_bytes, memory_order_relaxed);
    /* A quarter more than the limit, so that the next allocation does not bring it back. */
    atomic_store_explicit(&pool->tight, free_bytes < zone_pool_min_free(pool) / 4 * 5,
                          memory_order_relaxed);
    return ZONE_GPU_OK;
}

int zone_pool_shrink(struct zone_pool *pool, const struct zone_ticket *ticket)
{
    enum { SEGMENTS_A_FREE = 64 };
    if (pool->process->gpu->give) {
        return shrink_to_pending(pool);
    }
    unsigned rest = atomic_load_explicit(&pool->shrink_rest, memory_order_relaxed);
    if (rest > 0) {
        atomic_store_explicit(&pool->shrink_rest, rest - 1, memory_order_relaxed);
        return ZONE_GPU_OK;
    }
    /* Holes in segments cannot be given back: to wait for them would be in vain, and every time. To
     * tell them from what can takes a look at each segment, so many segments a free. */
    if (zone_pool_available(pool) <= zone_pool_max_cached(pool)) {
        size_t segments = atomic_load_explicit(&pool->small.count, memory_order_relaxed) +
                          atomic_load_explicit(&pool->large.count, memory_order_relaxed);
        atomic_store_explicit(&pool->shrink_rest, (unsigned)(segments / SEGMENTS_A_FREE),
                              memory_order_relaxed);
        return ZONE_GPU_OK;
    }
    int rc = zone_pool_wait_own(pool, ticket);
    size_t cached = zone_pool_available(pool);
    if (rc == ZONE_GPU_OK && cached > zone_pool_max_cached(pool)) {
        zone_pool_give_back(pool, cached - zone_pool_max_cached(pool));
    }
    return rc;
}

bool zone_pool_settle(struct zone_pool *pool)
{
    uint64_t epoch = zone_fence_newest_wait(&pool->fence);
    if (epoch == 0 || atomic_load_explicit(&pool->fault, memory_order_relaxed)) {
        return false;
    }
    zone_pool_note(pool, zone_fence_wait_epoch(&pool->fence, pool->process->gpu, epoch));
    return true;
}

/* The context stays while this waits for its work, as in zone_pool_give_back. */
int zone_pool_drain(struct zone_pool *pool)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    int rc = ZONE_GPU_OK;
    atomic_fetch_add(&pool->giving, 1);
    void *ctx = __atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST);
    if (ctx && zone_ledger_cached(&pool->ledger) > 0 &&
        !atomic_load_explicit(&pool->fault, memory_order_relaxed)) {
        struct zone_ticket ticket;
        uint64_t waited;
        rc = zone_fence_close(&pool->fence, gpu, ctx, 0, false, &ticket);
        if (rc == ZONE_GPU_REFUSED && zone_pool_settle(pool)) {
            /* There were too many marks for another one. */
            rc = zone_fence_close(&pool->fence, gpu, ctx, 0, false, &ticket);
        }
        if (rc == ZONE_GPU_OK) {
            rc = zone_fence_wait_own(&pool->fence, gpu, &ticket, &waited);
        }
        zone_pool_note(pool, rc);
    }
    atomic_fetch_sub(&pool->giving, 1);
    return rc;
}

void zone_pool_forget(struct zone_pool *pool)
{
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        zone_lock(&bin->lock);
        __atomic_store_n(&bin->head, NULL, __ATOMIC_RELAXED);
        bin->tail = NULL;
        zone_unlock(&bin->lock);
    }
    zone_streams_forget(pool);
    zone_arena_forget(&pool->small);
    zone_arena_forget(&pool->large);
    zone_initial_forget(pool);
    atomic_store(&pool->whole_live, 0);
    zone_limit_return(pool->device, zone_ledger_clear(&pool->ledger));
}
