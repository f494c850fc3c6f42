/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of streams and the two fast paths: see stream.h. Both take one stream's lock for a few
 * instructions and call nothing of the device; slow exits are zone_stream_alloc and
 * stream_free_due.
 */
#include "stream.h"

#include "ptrmap.h"

/* So many allocations that found nothing, and the next free covers all streams at once: also those
 * on which nothing is freed any more, like that of a thread that has ended. */
enum { MISSES_A_COVER = 16 };

static void stream_count_hit(struct zone_stream_class *slot, size_t req_bytes)
{
    zone_tally_add(&slot->hits, 1);
    zone_tally_add(&slot->requested, req_bytes);
}

static inline struct zone_block *stream_take(struct zone_stream *stream, size_t bytes,
                                             size_t req_bytes)
{
    zone_lock(&stream->lock);
    struct zone_stream_class *slot = zone_stream_class(stream, bytes);
    struct zone_block *block = zone_stream_pop(stream, slot);
    if (ZONE_LIKELY(block != NULL)) {
        stream_count_hit(slot, req_bytes);
    }
    zone_unlock(&stream->lock);
    return block;
}

bool zone_stream_serve(struct zone_stream *stream, size_t req_bytes, zone_addr_t *ret_addr)
{
    struct zone_pool *pool = stream->pool;
    if (ZONE_UNLIKELY(pool->fill.on ||
                      atomic_load_explicit(&pool->fault, memory_order_relaxed) != 0)) {
        return false;
    }
    struct zone_block *block = stream_take(stream, zone_pool_class(pool, req_bytes), req_bytes);
    if (ZONE_UNLIKELY(!block)) {
        return false;
    }
    *ret_addr = block->addr;
    zone_stream_hand_out(pool, block, req_bytes);
    return true;
}

/* Under zero_fill and junk_fill what comes from a list has not been filled. A block that could not
 * be goes back. */
static int stream_serve_filled(struct zone_stream *stream, void *handle, size_t bytes,
                               size_t req_bytes, zone_addr_t *ret_addr)
{
    struct zone_pool *pool = stream->pool;
    struct zone_block *block = stream_take(stream, bytes, req_bytes);
    if (!block) {
        return ZONE_GPU_NOT_READY;
    }
    *ret_addr = block->addr;
    zone_stream_hand_out(pool, block, req_bytes);
    int rc = zone_stream_fill(stream, handle, block);
    if (rc != ZONE_GPU_OK) {
        atomic_store_explicit(&block->state, ZONE_BLOCK_FREED, memory_order_relaxed);
        zone_stream_free(stream, handle, block);
    }
    return rc == ZONE_GPU_REFUSED ? ZONE_GPU_NOT_READY : rc;
}

void zone_stream_adopt(struct zone_pool *pool, zone_addr_t addr)
{
    struct zone_block *block = zone_ptrmap_get(addr);
    if (block && block->pool == pool && !block->in_stream) {
        block->in_stream = true;
        zone_level_add(&pool->streams.used, block->req_bytes);
        zone_level_add(&pool->streams.reserved, block->bytes);
    }
}

static int stream_alloc(struct zone_stream *stream, void *handle, size_t bytes, size_t req_bytes,
                        zone_addr_t *ret_addr)
{
    struct zone_pool *pool = stream->pool;
    uint64_t stamp = 0;
    struct zone_bin *bin = zone_bins_find(&pool->bins, bytes);
    if (bin && zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp)) {
        zone_stream_adopt(pool, *ret_addr);
        return ZONE_GPU_OK;
    }
    int rc = zone_pool_alloc_early(pool, bytes, req_bytes, stamp, ret_addr);
    if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        if (zone_stream_borrow(stream, handle, bytes, req_bytes, ret_addr)) {
            return ZONE_GPU_OK;
        }
        rc = zone_pool_alloc_last(pool, bytes, req_bytes, ret_addr);
    }
    if (rc == ZONE_GPU_OK) {
        zone_stream_adopt(pool, *ret_addr);
    }
    return rc;
}

int zone_stream_alloc(struct zone_stream *stream, void *handle, size_t req_bytes,
                      zone_addr_t *ret_addr)
{
    int rc;
    struct zone_pool *pool = stream->pool;
    size_t bytes = zone_pool_class(pool, req_bytes);
    if (zone_pool_alloc_odd(pool, bytes, req_bytes, ret_addr, &rc)) {
        if (rc == ZONE_GPU_OK) {
            zone_stream_adopt(pool, *ret_addr);
        }
        return rc;
    }
    if (pool->fill.on) {
        rc = stream_serve_filled(stream, handle, bytes, req_bytes, ret_addr);
        if (rc != ZONE_GPU_NOT_READY) {
            return rc;
        }
    }
    return stream_alloc(stream, handle, bytes, req_bytes, ret_addr);
}

/* Twice the slots, so that classes find places fast. Lock held. */
static void stream_grow_locked(struct zone_stream *stream, struct zone_stream_table *table)
{
    const struct zone_stream_table *old = zone_stream_table(stream);
    for (size_t i = 0; i <= old->mask; i++) {
        const struct zone_stream_class *from = &old->slots[i];
        size_t bytes = zone_stream_slot_bytes(from);
        if (bytes != 0) {
            struct zone_stream_class *to = zone_stream_slot(table, bytes);
            atomic_store_explicit(&to->bytes, bytes, memory_order_relaxed);
            to->head = from->head;
            to->tail = from->tail;
            to->bin = from->bin;
            atomic_store_explicit(&to->hits, from->hits, memory_order_relaxed);
            atomic_store_explicit(&to->requested, from->requested, memory_order_relaxed);
        }
    }
    atomic_store_explicit(&stream->table, table, memory_order_release);
}

/* Makes the slot of a class; false when the host has no memory. */
static ZONE_COLD bool stream_make_class(struct zone_stream *stream, size_t bytes)
{
    struct zone_bin *bin = zone_bins_make(&stream->pool->bins, bytes);
    struct zone_stream_table *table = NULL;
    bool made = false;
    while (bin && !made) {
        zone_lock(&stream->lock);
        size_t slots = zone_stream_table(stream)->mask + 1;
        if (stream->classes >= slots / 2 && table && table->mask >= slots) {
            stream_grow_locked(stream, table);
            slots = table->mask + 1;
        }
        if (stream->classes < slots / 2) {
            struct zone_stream_class *slot = zone_stream_class(stream, bytes);
            if (zone_stream_slot_bytes(slot) == 0) {
                stream->classes++;
                slot->bin = bin;
                atomic_store_explicit(&slot->bytes, bytes, memory_order_release);
            }
            made = true;
        }
        zone_unlock(&stream->lock);
        if (!made) {
            table = zone_stream_table_new(2 * slots);
            bin = table ? bin : NULL;
        }
    }
    return made;
}

/* Puts the block into its list; false if that has no place for its class. *ret_due: a mark is. */
static inline bool stream_put(struct zone_stream *stream, struct zone_block *block, bool *ret_due)
{
    struct zone_pool *pool = stream->pool;
    zone_lock(&stream->lock);
    struct zone_stream_class *slot = zone_stream_class(stream, block->bytes);
    if (ZONE_UNLIKELY(zone_stream_slot_bytes(slot) == 0)) {
        zone_unlock(&stream->lock);
        return false;
    }
    /* With the lock held, so that a list is in the order of stamps. */
    block->stamp = ZONE_UNLIKELY(pool->odd_frees && !pool->fill.on)
                       ? 0 /* free_order:unsafe */
                       : zone_fence_stamp(&pool->fence);
    block->next = NULL;
    if (slot->head) {
        slot->tail->next = block;
    } else {
        slot->head = block;
    }
    slot->tail = block;
    stream->blocks++;
    stream->unmarked += block->stamp > stream->numbered ? block->bytes : 0;
    *ret_due =
        stream->numbered < atomic_load_explicit(&pool->streams.wanted, memory_order_relaxed) ||
        stream->unmarked > pool->streams.unmarked_max || stream->foreign;
    zone_unlock(&stream->lock);
    return true;
}

/* One context event for all streams, in a free, as a plain free records it. */
static int stream_cover(struct zone_pool *pool)
{
    uint64_t misses = atomic_load_explicit(&pool->streams.misses, memory_order_relaxed);
    uint64_t covered = atomic_load_explicit(&pool->streams.covered, memory_order_relaxed);
    struct zone_ticket ticket;
    if (misses - covered < MISSES_A_COVER || !pool->process->gpu->record ||
        !atomic_compare_exchange_strong(&pool->streams.covered, &covered, misses)) {
        return ZONE_GPU_OK;
    }
    return zone_fence_close(&pool->fence, pool->process->gpu, pool->ctx, 0, false, &ticket);
}

static ZONE_COLD int stream_free_due(struct zone_stream *stream, void *handle)
{
    struct zone_pool *pool = stream->pool;
    int rc = zone_stream_mark(stream, handle);
    if (!zone_gpu_is_fault(rc) || stream->foreign) {
        rc = stream_cover(pool); /* the other context's fault is not the pool's */
    }
    if (!zone_gpu_is_fault(rc) && pool->fill.on) {
        zone_fill_advance(pool);
    }
    return zone_pool_note(pool, rc);
}

/* Without a place in a list: good for everybody once a context event covers it. */
static ZONE_COLD int stream_free_past(struct zone_pool *pool, struct zone_block *block)
{
    zone_level_sub(&pool->streams.reserved, block->bytes);
    block->stamp = zone_fence_stamp(&pool->fence);
    zone_pool_put(pool, zone_bins_find(&pool->bins, block->bytes), block);
    return ZONE_GPU_OK;
}

/* The driver takes the block in the order of the stream. */
static ZONE_COLD int stream_give(struct zone_stream *stream, void *handle, struct zone_block *block)
{
    const struct zone_gpu *gpu = stream->pool->process->gpu;
    uint64_t start = zone_pool_leave(block);
    atomic_store_explicit(&stream->pool->streams.gave_ns, start, memory_order_relaxed);
    return zone_pool_left(block, gpu->stream_free(stream->ctx, handle, block->addr), start);
}

/* Not more than max_cached. On a device that is nearly full nothing either that the driver has back
 * at once; what it would have later is of more use in a list. */
static inline bool stream_keeps(struct zone_stream *stream, void *handle,
                                const struct zone_block *block)
{
    struct zone_pool *pool = stream->pool;
    return block->segment ||
           (zone_ledger_cached(&pool->ledger) + block->bytes <= zone_pool_max_cached(pool) &&
            (ZONE_LIKELY(!atomic_load_explicit(&pool->tight, memory_order_relaxed)) ||
             !zone_stream_is_idle(stream, handle)));
}

int zone_stream_free(struct zone_stream *stream, void *handle, struct zone_block *block)
{
    struct zone_pool *pool = stream->pool;
    bool due;
    if (ZONE_UNLIKELY(!stream_keeps(stream, handle, block))) {
        return stream_give(stream, handle, block);
    }
    zone_pool_count_back(pool, block);
    if (ZONE_LIKELY(block->in_stream)) {
        block->in_stream = false;
        zone_level_sub(&pool->streams.used, block->req_bytes);
    } else {
        zone_level_add(&pool->streams.reserved, block->bytes);
    }
    if (ZONE_UNLIKELY(!stream_put(stream, block, &due))) {
        if (!stream_make_class(stream, block->bytes) || !stream_put(stream, block, &due)) {
            return stream_free_past(pool, block);
        }
    }
    return ZONE_UNLIKELY(due || pool->fill.on) ? stream_free_due(stream, handle) : ZONE_GPU_OK;
}

void zone_stream_leave(struct zone_stream *stream, void *handle)
{
    zone_lock(&stream->lock);
    bool mark = stream->unmarked > 0 && stream->blocks > 0;
    zone_unlock(&stream->lock);
    if (mark) {
        zone_pool_note(stream->pool, zone_stream_mark(stream, handle));
    }
}

int zone_stream_fill(struct zone_stream *stream, void *handle, const struct zone_block *block)
{
    struct zone_pool *pool = stream->pool;
    int rc = pool->process->gpu->stream_fill(stream->ctx, handle, block->addr, block->bytes,
                                             pool->fill.with);
    if (rc == ZONE_GPU_OK) {
        zone_count_add(&pool->fill.fills, 1);
        zone_count_add(&pool->fill.bytes, block->bytes);
    }
    zone_pool_note(pool, rc);
    return rc;
}
