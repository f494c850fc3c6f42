/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of blocks: taken from zone_meta_alloc, recycled through one spare list under one
 * lock. Only the slow paths (a new driver allocation, one given back) come here. Never calls the
 * driver.
 */
#include "block.h"

#include "meta.h"

#include <pthread.h>

static pthread_mutex_t block_lock = PTHREAD_MUTEX_INITIALIZER;
static struct zone_block *block_spare;
static struct zone_block *block_slab; /* records never used */
static unsigned block_left;           /* how many */

/* Records are cut from slabs without gaps: there may be millions. */
enum { SLAB_BYTES = 1 << 12 };

static struct zone_block *block_new_locked(void)
{
    if (block_left == 0) {
        block_slab = zone_meta_alloc(SLAB_BYTES);
        block_left = block_slab ? SLAB_BYTES / sizeof(*block_slab) : 0;
    }
    if (block_left == 0) {
        return NULL;
    }
    block_left--;
    return block_slab++;
}

struct zone_block *zone_block_new(void)
{
    pthread_mutex_lock(&block_lock);
    struct zone_block *block = block_spare;
    if (block) {
        block_spare = block->next;
        block->next = NULL;
    } else {
        block = block_new_locked();
    }
    pthread_mutex_unlock(&block_lock);
    return block;
}

void zone_block_delete(struct zone_block *block)
{
    atomic_store_explicit(&block->state, ZONE_BLOCK_GONE, memory_order_relaxed);
    atomic_store_explicit(&block->tainted, 0, memory_order_relaxed);
    atomic_store_explicit(&block->kind, ZONE_BLOCK_DEVICE, memory_order_relaxed);
    block->segment = NULL;
    block->sync_memops = false;
    block->in_stream = false;
    pthread_mutex_lock(&block_lock);
    block->next = block_spare;
    block_spare = block;
    pthread_mutex_unlock(&block_lock);
}

uint64_t zone_block_buffer_id(struct zone_block *block)
{
    static _Atomic uint64_t newest = (uint64_t)1 << 63;
    uint64_t id = atomic_load_explicit(&block->buffer_id, memory_order_relaxed);
    if (id == 0) {
        uint64_t made = atomic_fetch_add_explicit(&newest, 1, memory_order_relaxed) + 1;
        /* Another thread may have asked, too; then its answer holds. */
        if (atomic_compare_exchange_strong(&block->buffer_id, &id, made)) {
            id = made;
        }
    }
    return id;
}
