/* SPDX-License-Identifier: Apache-2.0
 *
 * The two fast paths. An allocation that finds a ready block of its class calls no driver function
 * and takes one bin's lock for a few instructions; so does the free of a small block, fifteen times
 * of sixteen. Slow exits: zone_pool_alloc_slow (ladder.c) and pool_free_recording below.
 */
#include "pool.h"

#include "ptrmap.h"

/* Frees below 1 MiB share records: one for so many frees or bytes of a thread, as the record costs
 * more than the rest of the free (facts.md: 0.3 µs). */
enum { FREES_A_RECORD = 16 };
#define BYTES_A_RECORD (8 * ZONE_MIB)

/* What a thread has freed since its last record. */
struct thread_frees {
    const struct zone_pool *pool;
    unsigned frees;
    size_t bytes;
};

static _Thread_local struct thread_frees thread_open;

bool zone_pool_thread_has_open_frees(void)
{
    return thread_open.frees > 0;
}

bool zone_pool_reuse(struct zone_pool *pool, struct zone_bin *bin, size_t req_bytes,
                     zone_addr_t *ret_addr, uint64_t *ret_stamp)
{
    struct zone_block *block;
    do {
        block = zone_bin_serve(bin, zone_fence_ready(&pool->fence), req_bytes, ret_stamp);
        if (!block) {
            return false;
        }
        /* Not FREED: the driver has given its memory to somebody else, see zone_ptrmap_set. */
    } while (ZONE_UNLIKELY(atomic_load_explicit(&block->state, memory_order_relaxed) !=
                           ZONE_BLOCK_FREED));
    *ret_addr = block->addr;
    zone_pool_hand_out(pool, block, req_bytes);
    return true;
}

int zone_pool_alloc(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr)
{
    uint64_t stamp = 0;
    size_t bytes = zone_pool_class(pool, req_bytes);
    bool lost = atomic_load_explicit(&pool->fault, memory_order_relaxed) != 0;
    struct zone_bin *bin = bytes > 0 && !lost ? zone_bins_find(&pool->bins, bytes) : NULL;
    if (ZONE_LIKELY(bin && zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp))) {
        return ZONE_GPU_OK;
    }
    return zone_pool_alloc_slow(pool, bytes, req_bytes, stamp, ret_addr);
}

/* Must a free by cuMemFree wait for its own mark, as natively? */
static bool pool_waits(const struct zone_pool *pool)
{
    return pool->order == ZONE_FREE_ORDER_SYNC ||
           (pool->order == ZONE_FREE_ORDER_AUTO &&
            atomic_load_explicit(&pool->process->host_watched, memory_order_relaxed) > 0);
}

/* Counts a small free of this thread; true when it is time to record. */
static bool pool_record_due(const struct zone_pool *pool, size_t bytes)
{
    struct thread_frees *open = &thread_open;
    /* A thread that frees in two contexts in turn would never have counted enough for either. */
    bool changed = open->pool && open->pool != pool;
    if (open->pool != pool) {
        *open = (struct thread_frees){.pool = pool};
    }
    open->frees++;
    open->bytes += bytes;
    return changed || open->frees >= FREES_A_RECORD || open->bytes >= BYTES_A_RECORD;
}

int zone_pool_note(struct zone_pool *pool, int rc)
{
    if (!zone_gpu_is_fault(rc)) {
        return ZONE_GPU_OK;
    }
    atomic_store_explicit(&pool->fault, rc, memory_order_relaxed);
    return rc;
}

/* How many bytes may be pending before a free waits. Running ahead of the GPU is paid for with
 * memory, so by default a program may pay as much as it has ever held itself, within bounds. */
static size_t pool_budget(const struct zone_pool *pool)
{
    size_t given = atomic_load_explicit(&pool->budget, memory_order_relaxed);
    size_t own = zone_ledger_allocated_ever(&pool->ledger);
    if (given != ZONE_POOL_BUDGET_AUTO) {
        return given;
    }
    if (own >= pool->budget_cap) {
        return pool->budget_cap;
    }
    return own > ZONE_POOL_BUDGET_MIN ? own : ZONE_POOL_BUDGET_MIN;
}

/* The throttle: the free waits where the native one would, for less, and rarely. */
static int pool_throttle(struct zone_pool *pool, const struct zone_ticket *ticket, size_t target)
{
    uint64_t waited = 0;
    int rc = zone_fence_settle_to(&pool->fence, pool->process->gpu, ticket, target, &waited);
    if (waited > 0) {
        zone_count_add(&pool->counts.throttle_waits, 1);
        zone_count_add(&pool->counts.throttle_wait_ns, waited);
    }
    return rc;
}

/* free_order sync, and auto while the host watches memory: waits for all that the native free waits
 * for. record_rc is what the free's record returned. */
static int pool_wait_as_native(struct zone_pool *pool, const struct zone_ticket *ticket,
                               int record_rc)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    uint64_t waited = 0;
    if (record_rc != ZONE_GPU_OK) {
        /* No event to wait for; during a capture neither this is possible. */
        return record_rc == ZONE_GPU_REFUSED ? ZONE_GPU_OK : gpu->synchronize(pool->ctx);
    }
    int rc = zone_fence_wait_own(&pool->fence, gpu, ticket, &waited);
    if (waited > 0) {
        zone_count_add(&pool->counts.sync_waits, 1);
        zone_count_add(&pool->counts.sync_wait_ns, waited);
    }
    return rc;
}

static ZONE_COLD int pool_free_recording(struct zone_pool *pool, struct zone_bin *bin,
                                         struct zone_block *block, enum zone_free_by by)
{
    struct zone_ticket ticket;
    struct thread_frees *open = &thread_open;
    if (by == ZONE_FREE_BY_STREAM && !pool->process->gpu->record) {
        /* Without an event it could only wait, which natively it does not. */
        block->stamp = zone_fence_stamp(&pool->fence);
        zone_pool_put(pool, bin, block);
        return ZONE_GPU_OK;
    }
    /* A small block's bytes are among the thread's already. */
    size_t bytes = open->pool == pool ? open->bytes : 0;
    if (block->bytes >= ZONE_BIN_LARGE) {
        bytes += block->bytes;
    }
    /* Before the record: a free beside it then counts as open, though the record may cover it. */
    atomic_store_explicit(&pool->open_frees, false, memory_order_relaxed);
    int rc = zone_fence_close(&pool->fence, pool->process->gpu, pool->ctx, bytes,
                              by == ZONE_FREE_BY_FREE, &ticket);
    if (rc != ZONE_GPU_OK) {
        atomic_store_explicit(&pool->open_frees, true, memory_order_relaxed);
    }
    /* A record that failed is made up for by the thread's next free. */
    *open = (struct thread_frees){.pool = pool, .frees = rc == ZONE_GPU_OK ? 0 : FREES_A_RECORD};
    if (rc == ZONE_GPU_REFUSED && by == ZONE_FREE_BY_FREE && pool_waits(pool)) {
        /* A capture has begun beside this free: the driver's own is the only one that can wait. */
        zone_pool_count_out(pool, block);
        return zone_pool_free_for_real(block);
    }
    block->stamp = ticket.epoch;
    zone_pool_put(pool, bin, block);
    if (zone_gpu_is_fault(rc)) {
        return zone_pool_note(pool, rc);
    }
    if (by == ZONE_FREE_BY_STREAM) {
        zone_fill_advance(pool);
        return ZONE_GPU_OK;
    }
    size_t pending = zone_fence_pending(&pool->fence);
    bool tight = atomic_load_explicit(&pool->tight, memory_order_relaxed);
    if (pool_waits(pool)) {
        rc = pool_wait_as_native(pool, &ticket, rc);
        if (rc == ZONE_GPU_OK && tight) {
            rc = zone_pool_free_tight(pool, &ticket);
        }
    } else if (tight) {
        rc = zone_pool_free_tight(pool, &ticket);
    } else if (pending > pool_budget(pool)) {
        /* One wait that settles many frees: each wait costs, not only the bytes (facts.md). */
        rc = pool_throttle(pool, &ticket, pool_budget(pool) / 4 * 3);
    } else if (rc == ZONE_GPU_REFUSED && pending > 0) {
        rc = pool_throttle(pool, &ticket, pending / 4 * 3);
    }
    if (!zone_gpu_is_fault(rc) && zone_ledger_cached(&pool->ledger) > zone_pool_max_cached(pool)) {
        rc = zone_pool_shrink(pool, &ticket);
    }
    if (ZONE_UNLIKELY(atomic_load_explicit(&pool->collect_before, memory_order_relaxed) > 0) &&
        rc == ZONE_GPU_OK) {
        rc = zone_pool_collect(pool, &ticket);
    }
    if (!zone_gpu_is_fault(rc)) {
        zone_fill_advance(pool); /* behind the free's own record, which is not about it */
    }
    return zone_pool_note(pool, rc);
}

/* Records nothing: a small block, not yet due, with nothing to wait for. */
static inline bool pool_free_is_light(struct zone_pool *pool, const struct zone_block *block)
{
    return block->bytes < ZONE_BIN_LARGE && !pool_record_due(pool, block->bytes) &&
           !pool_waits(pool) && !atomic_load_explicit(&pool->tight, memory_order_relaxed);
}

static inline void pool_free_light(struct zone_pool *pool, struct zone_block *block)
{
    if (ZONE_UNLIKELY(!atomic_load_explicit(&pool->open_frees, memory_order_relaxed))) {
        atomic_store_explicit(&pool->open_frees, true, memory_order_relaxed);
    }
    block->stamp = zone_fence_stamp(&pool->fence);
}

/* The free of a pool that is not fenced, or whose freed blocks are filled: then it is fenced, as a
 * fill is work on another stream than the program's. */
static ZONE_COLD int pool_free_odd(struct zone_pool *pool, struct zone_bin *bin,
                                   struct zone_block *block, enum zone_free_by by)
{
    if (!pool->fill.on) {
        block->stamp = 0;
        zone_bin_push(bin, block);
        return ZONE_GPU_OK;
    }
    if (!pool_free_is_light(pool, block)) {
        return pool_free_recording(pool, bin, block, by);
    }
    pool_free_light(pool, block);
    zone_fill_push(pool, block);
    return ZONE_GPU_OK;
}

int zone_pool_free(struct zone_block *block, enum zone_free_by by)
{
    struct zone_pool *pool = block->pool;
    if (ZONE_UNLIKELY(atomic_load_explicit(&block->tainted, memory_order_relaxed) ||
                      atomic_load_explicit(&pool->fault, memory_order_relaxed))) {
        return zone_pool_free_for_real(block);
    }
    struct zone_bin *bin = zone_bins_find(&pool->bins, block->bytes);
    zone_pool_count_back(pool, block);
    if (ZONE_UNLIKELY(block->in_stream)) {
        by = ZONE_FREE_BY_STREAM; /* natively it is freed without a wait by either call */
        zone_pool_out_of_stream(pool, block);
    }
    if (ZONE_UNLIKELY(pool->odd_frees)) {
        return pool_free_odd(pool, bin, block, by);
    }
    if (ZONE_LIKELY(pool_free_is_light(pool, block))) {
        pool_free_light(pool, block);
        zone_bin_push(bin, block);
        return ZONE_GPU_OK;
    }
    return pool_free_recording(pool, bin, block, by);
}

uint64_t zone_pool_leave(struct zone_block *block)
{
    atomic_store_explicit(&block->state, ZONE_BLOCK_LEAVING, memory_order_relaxed);
    return block->pool->process->gpu->now_ns();
}

int zone_pool_left(struct zone_block *block, int rc, uint64_t start_ns)
{
    struct zone_pool *pool = block->pool;
    if (rc != ZONE_GPU_OK) {
        zone_block_unclaim(block);
        zone_pool_note(pool, rc);
        return rc;
    }
    zone_pool_count_back(pool, block);
    zone_pool_out_of_stream(pool, block);
    zone_count_add(&pool->counts.driver_frees, 1);
    zone_count_add(&pool->counts.driver_free_ns, pool->process->gpu->now_ns() - start_ns);
    zone_pool_gave_back(pool, block->bytes);
    zone_ptrmap_remove(block);
    zone_block_delete(block);
    return ZONE_GPU_OK;
}

int zone_pool_free_for_real(struct zone_block *block)
{
    if (block->segment) {
        return zone_pool_free_cut(block, ZONE_FREE_BY_FREE);
    }
    uint64_t start = zone_pool_leave(block);
    return zone_pool_left(block, block->pool->process->gpu->free(block->addr), start);
}

void zone_pool_taint(struct zone_block *block)
{
    if (!atomic_exchange_explicit(&block->tainted, 1, memory_order_relaxed)) {
        zone_count_add(&block->pool->counts.tainted, 1);
    }
}
