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
static uint32_t block_serial;

struct zone_block *zone_block_new(void)
{
    pthread_mutex_lock(&block_lock);
    struct zone_block *block = block_spare;
    if (block) {
        block_spare = block->next;
        block->next = NULL;
    }
    pthread_mutex_unlock(&block_lock);
    if (!block) {
        block = zone_meta_alloc(sizeof(*block));
        if (block) {
            pthread_mutex_lock(&block_lock);
            block->serial = ++block_serial;
            pthread_mutex_unlock(&block_lock);
        }
    }
    return block;
}

void zone_block_delete(struct zone_block *block)
{
    /* uses survives, so that the next allocation in this record gets a new buffer id. */
    atomic_store_explicit(&block->state, ZONE_BLOCK_GONE, memory_order_relaxed);
    atomic_store_explicit(&block->tainted, 0, memory_order_relaxed);
    atomic_store_explicit(&block->kind, ZONE_BLOCK_DEVICE, memory_order_relaxed);
    block->segment = NULL;
    block->sync_memops = false;
    pthread_mutex_lock(&block_lock);
    block->next = block_spare;
    block_spare = block;
    pthread_mutex_unlock(&block_lock);
}
