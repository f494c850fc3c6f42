/* SPDX-License-Identifier: Apache-2.0
 *
 * The last memory that a stream can have: blocks of other sizes of its own, and what another stream
 * freed, for which it waits on the device. See stream.h. Natively the driver does this with the
 * default pool when it has no memory left, if the pool's attribute allows internal dependencies.
 */
#include "stream.h"

#include "stream_mark.h"

/* The smallest block of at least so many bytes in a list, whose free a mark covers if it must. */
struct borrow {
    const struct zone_stream *asking;
    size_t bytes; /* wanted at least */
    struct zone_stream *from;
    size_t found; /* its class; 0: none */
};

static bool borrow_may(const struct zone_stream *asking, const struct zone_stream *from,
                       const struct zone_block *block)
{
    return block && (from == asking || block->stamp <= from->newest ||
                     block->stamp <= zone_stream_ready(from));
}

static void borrow_visit(struct zone_stream *stream, void *arg)
{
    struct borrow *borrow = arg;
    zone_lock(&stream->lock);
    for (size_t i = 0; i <= zone_stream_table(stream)->mask && stream->blocks > 0; i++) {
        const struct zone_stream_class *slot = &zone_stream_table(stream)->slots[i];
        size_t bytes = zone_stream_slot_bytes(slot);
        bool better = bytes >= borrow->bytes && (borrow->found == 0 || bytes < borrow->found);
        if (better && borrow_may(borrow->asking, stream, slot->head)) {
            borrow->from = stream;
            borrow->found = bytes;
        }
    }
    zone_unlock(&stream->lock);
}

/* The asking stream waits on the device for the mark behind the block's free, unless that is done.
 */
static int borrow_wait(struct zone_stream *asking, void *handle, struct zone_stream *from,
                       uint64_t stamp)
{
    struct zone_pool *pool = asking->pool;
    zone_lock(&from->lock);
    unsigned index = zone_stream_covering(from, stamp);
    if (from == asking || stamp <= zone_stream_ready(from) || index == from->tail) {
        bool good = from == asking || stamp <= zone_stream_ready(from);
        zone_unlock(&from->lock);
        return good ? ZONE_GPU_OK : ZONE_GPU_NOT_READY;
    }
    struct zone_stream_mark *mark = zone_stream_mark_at(from, index);
    mark->users++;
    zone_unlock(&from->lock);
    int rc = pool->process->gpu->stream_wait(asking->ctx, handle, mark->event);
    zone_lock(&from->lock);
    mark->users--;
    zone_stream_settle(from, 0);
    zone_unlock(&from->lock);
    zone_count_add(&pool->streams.waits, rc == ZONE_GPU_OK);
    return rc;
}

static struct zone_block *borrow_take(const struct borrow *borrow)
{
    zone_lock(&borrow->from->lock);
    struct zone_stream_class *slot = zone_stream_class(borrow->from, borrow->found);
    bool may = borrow_may(borrow->asking, borrow->from, slot->head);
    struct zone_block *block = may ? zone_stream_pop(borrow->from, slot) : NULL;
    zone_unlock(&borrow->from->lock);
    return block;
}

static void borrow_put_back(struct zone_stream *from, struct zone_block *block)
{
    zone_lock(&from->lock);
    struct zone_stream_class *slot = zone_stream_class(from, block->bytes);
    block->next = slot->head;
    slot->tail = slot->head ? slot->tail : block;
    slot->head = block;
    from->blocks++;
    zone_unlock(&from->lock);
}

bool zone_stream_borrow(struct zone_stream *stream, void *handle, size_t bytes, size_t req_bytes,
                        zone_addr_t *ret_addr)
{
    struct zone_pool *pool = stream->pool;
    struct borrow borrow = {.asking = stream, .bytes = bytes};
    borrow_visit(stream, &borrow);
    if (borrow.found == 0 &&
        (!pool->process->may_depend || pool->process->may_depend(pool->device))) {
        zone_streams_each(pool, borrow_visit, &borrow);
    }
    struct zone_block *block = borrow.found > 0 ? borrow_take(&borrow) : NULL;
    if (!block) {
        return false;
    }
    int rc = borrow_wait(stream, handle, borrow.from, block->stamp);
    if (rc == ZONE_GPU_OK && pool->fill.on) {
        rc = zone_stream_fill(stream, handle, block);
    }
    if (rc != ZONE_GPU_OK) {
        zone_pool_note(pool, rc);
        borrow_put_back(borrow.from, block);
        return false;
    }
    struct zone_bin *bin = zone_bins_find(&pool->bins, block->bytes);
    if (bin) {
        zone_bin_hit(bin, req_bytes);
    }
    *ret_addr = block->addr;
    zone_stream_hand_out(pool, block, req_bytes);
    return true;
}
