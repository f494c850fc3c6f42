/* SPDX-License-Identifier: Apache-2.0
 *
 * What streams do for each other: marks, and what leaves a list because of them. See stream.h.
 */
#include "stream.h"

#include "stream_mark.h"

/* Asks about the oldest mark that is not known to be complete. True if it is; the lock is released
 * meanwhile. */
static bool stream_ask_locked(struct zone_stream *stream)
{
    unsigned index = zone_stream_covering(stream, stream->ready + 1);
    if (index == stream->tail) {
        return false;
    }
    struct zone_stream_mark *mark = zone_stream_mark_at(stream, index);
    uint64_t epoch = mark->epoch;
    mark->users++;
    zone_unlock(&stream->lock);
    int rc = stream->pool->process->gpu->query(mark->event);
    if (!stream->foreign) {
        zone_pool_note(stream->pool, rc); /* the other context's fault is not the pool's */
    }
    zone_lock(&stream->lock);
    mark->users--;
    if (rc == ZONE_GPU_OK) {
        zone_stream_settle(stream, epoch);
    }
    return rc == ZONE_GPU_OK;
}

int zone_stream_mark(struct zone_stream *stream, void *handle)
{
    struct zone_pool *pool = stream->pool;
    const struct zone_gpu *gpu = pool->process->gpu;
    zone_lock(&stream->lock);
    if (stream->tail - stream->head >= ZONE_STREAM_MARKS) {
        stream_ask_locked(stream);
    }
    if (stream->tail - stream->head >= ZONE_STREAM_MARKS || stream->recording) {
        zone_unlock(&stream->lock);
        return ZONE_GPU_REFUSED;
    }
    struct zone_stream_mark *mark = zone_stream_mark_at(stream, stream->tail);
    void *event = mark->event;
    size_t bytes = stream->unmarked;
    uint64_t before = stream->numbered;
    stream->recording = true;
    stream->unmarked = 0;
    /* Number first: what is freed from here on carries a later one. */
    uint64_t epoch = atomic_fetch_add(&pool->fence.open, 1);
    stream->numbered = epoch;
    zone_unlock(&stream->lock);

    int rc = event ? ZONE_GPU_OK : gpu->event_create(stream->ctx, &event);
    if (rc == ZONE_GPU_OK) {
        rc = gpu->stream_record(stream->ctx, handle, event);
    }

    zone_lock(&stream->lock);
    stream->recording = false;
    mark->event = event;
    if (rc == ZONE_GPU_OK) {
        mark->epoch = epoch;
        stream->newest = epoch;
        stream->tail++;
        zone_count_add(&pool->streams.marks, 1);
    } else {
        stream->numbered = before;
        stream->unmarked += bytes; /* at least what is there of them yet */
    }
    zone_unlock(&stream->lock);
    return rc;
}

bool zone_stream_is_idle(struct zone_stream *stream, void *handle)
{
    if (zone_stream_mark(stream, handle) != ZONE_GPU_OK) {
        return false;
    }
    zone_lock(&stream->lock);
    while (stream_ask_locked(stream)) {
    }
    bool idle = stream->ready >= stream->newest;
    zone_unlock(&stream->lock);
    return idle;
}

/* Takes the blocks of a slot that are good for everybody out, in front of the list, at most
 * *bytes, from which theirs are subtracted. */
static void stream_pick_locked(struct zone_stream *stream, struct zone_stream_class *slot,
                               size_t *bytes, struct zone_block **list)
{
    uint64_t ready = zone_stream_ready(stream);
    struct zone_block *block;
    while (slot->head && slot->head->bytes <= *bytes && slot->head->stamp <= ready &&
           (block = zone_stream_pop(stream, slot)) != NULL) {
        block->next = *list;
        *list = block;
        *bytes -= block->bytes;
    }
}

/* It is in no list any more. Everybody else compares with the context's epochs. */
static void stream_release(struct zone_pool *pool, struct zone_block *block)
{
    uint64_t ready = zone_fence_ready(&pool->fence);
    zone_level_sub(&pool->streams.reserved, block->bytes);
    block->stamp = block->stamp < ready ? block->stamp : ready;
}

static void stream_deliver(struct zone_pool *pool, struct zone_block *list)
{
    while (list) {
        struct zone_block *block = list;
        list = block->next;
        stream_release(pool, block);
        if (pool->fill.on) {
            zone_fill_push(pool, block);
        } else {
            zone_bin_push_ready(zone_bins_find(&pool->bins, block->bytes), block);
        }
    }
}

/* A stream that is gone leaves its place once nothing of it is left. */
static void stream_retire_locked(struct zone_stream *stream)
{
    if (stream->gone && stream->blocks == 0 && !stream->recording && stream->head == stream->tail) {
        atomic_store_explicit(&stream->id, 0, memory_order_release);
    }
}

void zone_stream_gone(struct zone_stream *stream)
{
    zone_lock(&stream->lock);
    stream->gone = true;
    stream_retire_locked(stream);
    zone_unlock(&stream->lock);
}

static struct zone_block *stream_harvest_class(struct zone_stream *stream, size_t bytes,
                                               uint64_t *ret_stamp)
{
    struct zone_block *list = NULL;
    size_t all = SIZE_MAX;
    zone_lock(&stream->lock);
    struct zone_stream_class *slot = zone_stream_class(stream, bytes);
    stream_pick_locked(stream, slot, &all, &list);
    while (!list && slot->head && stream_ask_locked(stream)) {
        slot = zone_stream_class(stream, bytes); /* the table may have grown meanwhile */
        stream_pick_locked(stream, slot, &all, &list);
    }
    uint64_t stamp = !list && slot->head && !stream->foreign ? slot->head->stamp : 0;
    zone_unlock(&stream->lock);
    *ret_stamp = stamp;
    return list;
}

static struct zone_block *stream_harvest_all(struct zone_stream *stream, size_t *bytes)
{
    struct zone_block *list = NULL;
    zone_lock(&stream->lock);
    while ((stream->blocks > 0 || stream->gone) && stream_ask_locked(stream)) {
    }
    struct zone_stream_table *table = zone_stream_table(stream);
    for (size_t i = 0; i <= table->mask && stream->blocks > 0; i++) {
        stream_pick_locked(stream, &table->slots[i], bytes, &list);
    }
    zone_stream_settle(stream, 0);
    stream_retire_locked(stream);
    zone_unlock(&stream->lock);
    return list;
}

static bool stream_ask_context(struct zone_pool *pool, uint64_t stamp)
{
    int fault = ZONE_GPU_OK;
    bool ready = zone_fence_ask(&pool->fence, pool->process->gpu, stamp, &fault);
    zone_pool_note(pool, fault);
    return ready;
}

static void class_visit(struct zone_stream *stream, void *arg)
{
    size_t bytes = *(const size_t *)arg;
    uint64_t stamp;
    struct zone_block *list = stream_harvest_class(stream, bytes, &stamp);
    if (stamp > 0 && stream_ask_context(stream->pool, stamp)) {
        list = stream_harvest_class(stream, bytes, &stamp);
    }
    stream_deliver(stream->pool, list);
}

static void all_visit(struct zone_stream *stream, void *arg)
{
    (void)arg;
    size_t all = SIZE_MAX;
    stream_deliver(stream->pool, stream_harvest_all(stream, &all));
}

void zone_stream_harvest(struct zone_pool *pool)
{
    zone_streams_each(pool, all_visit, NULL);
}

bool zone_stream_help(struct zone_pool *pool, size_t bytes, size_t req_bytes, zone_addr_t *ret_addr)
{
    uint64_t stamp;
    if (ZONE_LIKELY(!atomic_load_explicit(&pool->streams.any, memory_order_relaxed))) {
        return false;
    }
    zone_streams_each(pool, class_visit, &bytes);
    struct zone_bin *bin = zone_bins_find(&pool->bins, bytes);
    if (bin && zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp)) {
        return true;
    }
    if (bytes < ZONE_BIN_LARGE ? pool->cuts_small : pool->cuts_large) {
        /* Blocks of other classes may merge, for this request and for the next one. */
        atomic_store_explicit(&pool->streams.wanted, zone_fence_stamp(&pool->fence),
                              memory_order_relaxed);
        stream_ask_context(pool, zone_fence_ready(&pool->fence) + 1);
        zone_stream_harvest(pool);
    }
    return false;
}

struct trim {
    size_t excess; /* bytes that the lists should hold less */
    size_t given;
    int rc;
};

static void trim_visit(struct zone_stream *stream, void *arg)
{
    struct trim *trim = arg;
    struct zone_pool *pool = stream->pool;
    struct zone_block *list = stream_harvest_all(stream, &trim->excess);
    while (list) {
        struct zone_block *block = list;
        struct zone_bin *bin = zone_bins_find(&pool->bins, block->bytes);
        list = block->next;
        stream_release(pool, block);
        if (trim->rc == ZONE_GPU_OK) {
            trim->rc = zone_pool_trim_block(pool, bin, block, &trim->given);
        } else {
            zone_pool_put(pool, bin, block);
        }
    }
}

/* A context event tells whether the context is at rest; then giving back does not wait. It stays
 * meanwhile, as in zone_pool_give_back. */
void zone_stream_trim(struct zone_pool *pool, size_t keep)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    struct zone_ticket ticket;
    size_t held = zone_level_now(&pool->streams.reserved);
    int fault = ZONE_GPU_OK;
    if (held <= keep || !gpu->record) {
        return;
    }
    if (pool->fill.on) {
        zone_fill_finish(pool); /* fills are libzone's own work, and short */
    }
    struct trim trim = {.excess = held - keep};
    atomic_fetch_add(&pool->giving, 1);
    void *ctx = __atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST);
    if (ctx && zone_fence_close(&pool->fence, gpu, ctx, 0, false, &ticket) == ZONE_GPU_OK &&
        zone_fence_ask(&pool->fence, gpu, ticket.epoch, &fault)) {
        zone_streams_each(pool, trim_visit, &trim);
        if (trim.rc == ZONE_GPU_OK) {
            /* Segments whose last block that was. */
            trim.rc = zone_pool_release(pool, held - keep, UINT64_MAX, &trim.given);
        }
        zone_count_add(&pool->counts.trims, trim.given > 0);
        fault = trim.rc;
    }
    atomic_fetch_sub(&pool->giving, 1);
    zone_pool_note(pool, fault);
}
