/* SPDX-License-Identifier: Apache-2.0
 *
 * Bins of freed blocks: see bins.h. The table of large classes is an open-addressed hash that is
 * only ever added to; a grown copy replaces it, so that readers need no lock.
 */
#include "bins.h"

#include "meta.h"

#include <string.h>

enum { BINS_LARGE_START = 256 };

void zone_bins_init(struct zone_bins *bins)
{
    memset(bins, 0, sizeof(*bins));
    pthread_mutex_init(&bins->lock, NULL);
    for (unsigned i = 0; i < ZONE_BIN_SMALL_COUNT; i++) {
        bins->small[i].bytes = i * ZONE_BIN_STEP;
    }
}

static size_t large_hash(size_t bytes)
{
    return (size_t)((uint64_t)(bytes / ZONE_BIN_STEP) * UINT64_C(0x9E3779B97F4A7C15) >> 20);
}

/* The slot of the class in the table: its bin's, or the empty one where it would go. */
static struct zone_bin *_Atomic *large_slot(struct zone_bin_table *table, size_t bytes)
{
    for (size_t i = large_hash(bytes);; i++) {
        struct zone_bin *_Atomic *slot = &table->slots[i & table->mask];
        struct zone_bin *bin = atomic_load_explicit(slot, memory_order_acquire);
        if (!bin || bin->bytes == bytes) {
            return slot;
        }
    }
}

struct zone_bin *zone_bins_find(struct zone_bins *bins, size_t bytes)
{
    if (ZONE_LIKELY(bytes < ZONE_BIN_LARGE)) {
        return &bins->small[bytes / ZONE_BIN_STEP];
    }
    struct zone_bin_table *table = atomic_load_explicit(&bins->large, memory_order_acquire);
    return table ? atomic_load_explicit(large_slot(table, bytes), memory_order_acquire) : NULL;
}

/* A table with room for one more class; NULL when there is no memory. Lock held. */
static struct zone_bin_table *large_room_locked(struct zone_bins *bins)
{
    struct zone_bin_table *old = atomic_load_explicit(&bins->large, memory_order_relaxed);
    if (old && bins->large_count < (old->mask + 1) / 2) {
        return old;
    }
    size_t slots = old ? 2 * (old->mask + 1) : BINS_LARGE_START;
    struct zone_bin_table *table =
        zone_meta_alloc(sizeof(*table) + slots * sizeof(table->slots[0]));
    if (!table) {
        return NULL;
    }
    table->mask = slots - 1;
    for (size_t i = 0; old && i <= old->mask; i++) {
        struct zone_bin *bin = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (bin) {
            atomic_store_explicit(large_slot(table, bin->bytes), bin, memory_order_relaxed);
        }
    }
    atomic_store_explicit(&bins->large, table, memory_order_release);
    return table;
}

static struct zone_bin *large_make_locked(struct zone_bins *bins, size_t bytes)
{
    struct zone_bin_table *table = large_room_locked(bins);
    if (!table) {
        return NULL;
    }
    struct zone_bin *_Atomic *slot = large_slot(table, bytes);
    struct zone_bin *bin = atomic_load_explicit(slot, memory_order_relaxed);
    if (!bin) {
        bin = zone_meta_alloc(sizeof(*bin));
        if (bin) {
            bin->bytes = bytes;
            bins->large_count++;
            atomic_store_explicit(slot, bin, memory_order_release);
        }
    }
    return bin;
}

struct zone_bin *zone_bins_make(struct zone_bins *bins, size_t bytes)
{
    struct zone_bin *bin = zone_bins_find(bins, bytes);
    if (bin && atomic_load_explicit(&bin->listed, memory_order_acquire)) {
        return bin;
    }
    pthread_mutex_lock(&bins->lock);
    bin = bytes < ZONE_BIN_LARGE ? &bins->small[bytes / ZONE_BIN_STEP]
                                 : large_make_locked(bins, bytes);
    if (bin && !atomic_load_explicit(&bin->listed, memory_order_relaxed)) {
        bin->older = atomic_load_explicit(&bins->newest, memory_order_relaxed);
        atomic_store_explicit(&bins->newest, bin, memory_order_release);
        atomic_store_explicit(&bin->listed, true, memory_order_release);
    }
    pthread_mutex_unlock(&bins->lock);
    return bin;
}

/* Written under the lock; whether a bin is empty is looked at without it. */
static void bin_set_head(struct zone_bin *bin, struct zone_block *block)
{
    __atomic_store_n(&bin->head, block, __ATOMIC_RELAXED);
}

void zone_bin_push(struct zone_bin *bin, struct zone_block *block)
{
    block->next = NULL;
    zone_lock(&bin->lock);
    if (bin->tail) {
        bin->tail->next = block;
    } else {
        bin_set_head(bin, block);
    }
    bin->tail = block;
    zone_unlock(&bin->lock);
}

void zone_bin_push_ready(struct zone_bin *bin, struct zone_block *block)
{
    zone_lock(&bin->lock);
    block->next = bin->head;
    if (!bin->head) {
        bin->tail = block;
    }
    bin_set_head(bin, block);
    zone_unlock(&bin->lock);
}

static struct zone_block *bin_take_locked(struct zone_bin *bin, uint64_t ready, uint64_t *ret_stamp)
{
    struct zone_block *block = bin->head;
    if (!block || block->stamp > ready) {
        *ret_stamp = block ? block->stamp : 0;
        return NULL;
    }
    bin_set_head(bin, block->next);
    if (!bin->head) {
        bin->tail = NULL;
    }
    return block;
}

struct zone_block *zone_bin_take(struct zone_bin *bin, uint64_t ready, uint64_t *ret_stamp)
{
    zone_lock(&bin->lock);
    struct zone_block *block = bin_take_locked(bin, ready, ret_stamp);
    zone_unlock(&bin->lock);
    return block;
}

struct zone_block *zone_bin_serve(struct zone_bin *bin, uint64_t ready, size_t req_bytes,
                                  uint64_t *ret_stamp)
{
    zone_lock(&bin->lock);
    struct zone_block *block = bin_take_locked(bin, ready, ret_stamp);
    if (block) {
        zone_tally_add(&bin->hits, 1);
        zone_tally_add(&bin->requested, req_bytes);
    }
    zone_unlock(&bin->lock);
    return block;
}

void zone_bin_missed(struct zone_bin *bin, size_t req_bytes, uint64_t ns)
{
    zone_lock(&bin->lock);
    zone_tally_add(&bin->misses, 1);
    zone_tally_add(&bin->miss_ns, ns);
    zone_tally_add(&bin->requested, req_bytes);
    zone_unlock(&bin->lock);
}

struct zone_block *zone_bin_take_cut(struct zone_bin *bin, uint64_t ready)
{
    struct zone_block *before = NULL;
    /* Most bins are empty; what is pushed just now is for the next one who looks. */
    if (!__atomic_load_n(&bin->head, __ATOMIC_RELAXED)) {
        return NULL;
    }
    zone_lock(&bin->lock);
    struct zone_block *block = bin->head;
    while (block && block->stamp <= ready && !block->segment) {
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
            bin_set_head(bin, block->next);
        }
        if (bin->tail == block) {
            bin->tail = before;
        }
    }
    zone_unlock(&bin->lock);
    return block;
}

void zone_bin_ages(struct zone_bin *bin, uint64_t until, struct zone_ages *ages)
{
    zone_lock(&bin->lock);
    for (struct zone_block *it = bin->head; it && it->stamp <= until; it = it->next) {
        zone_ages_add(ages, it->stamp);
    }
    zone_unlock(&bin->lock);
}

void zone_bin_hit(struct zone_bin *bin, size_t req_bytes)
{
    zone_lock(&bin->lock);
    zone_tally_add(&bin->hits, 1);
    zone_tally_add(&bin->requested, req_bytes);
    zone_unlock(&bin->lock);
}
