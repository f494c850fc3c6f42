/* SPDX-License-Identifier: Apache-2.0
 *
 * root[addr >> 35] -> branch[(addr >> 21) & 16383] -> a block that starts in this page, or, when
 * several do, a leaf with a slot for each multiple of 512 (the driver's granule, facts.md). A slot
 * of a branch tells the two apart by its lowest bit. Nodes are never freed: a reader may be in
 * them, and the driver uses the same addresses again.
 */
#include "ptrmap.h"

#include "meta.h"

#include <pthread.h>

enum {
    GRANULE_BITS = 9,
    PAGE_BITS = 21,
    BRANCH_BITS = 14,
    ROOT_BITS = 48 - PAGE_BITS - BRANCH_BITS,
    LEAF_SLOTS = 1 << (PAGE_BITS - GRANULE_BITS),
    BRANCH_SLOTS = 1 << BRANCH_BITS,
    ROOT_SLOTS = 1 << ROOT_BITS,
};

typedef struct zone_block *_Atomic leaf_slot;

struct branch {
    _Atomic uintptr_t slots[BRANCH_SLOTS];
};

static struct branch *_Atomic root[ROOT_SLOTS];
static pthread_mutex_t ptrmap_lock = PTHREAD_MUTEX_INITIALIZER;

static leaf_slot *slot_leaf(uintptr_t slot)
{
    return (leaf_slot *)(slot & ~(uintptr_t)1);
}

static unsigned leaf_index(zone_addr_t addr)
{
    return (unsigned)(addr >> GRANULE_BITS) & (LEAF_SLOTS - 1);
}

static struct branch *branch_of(zone_addr_t addr)
{
    if (addr >> 48) {
        return NULL;
    }
    return atomic_load_explicit(&root[addr >> (PAGE_BITS + BRANCH_BITS)], memory_order_acquire);
}

static _Atomic uintptr_t *page_slot(struct branch *branch, zone_addr_t addr)
{
    return &branch->slots[(addr >> PAGE_BITS) & (BRANCH_SLOTS - 1)];
}

struct zone_block *zone_ptrmap_get(zone_addr_t addr)
{
    struct branch *branch = branch_of(addr);
    if (!branch) {
        return NULL;
    }
    uintptr_t slot = atomic_load_explicit(page_slot(branch, addr), memory_order_acquire);
    struct zone_block *block =
        slot & 1 ? atomic_load_explicit(&slot_leaf(slot)[leaf_index(addr)], memory_order_acquire)
                 : (struct zone_block *)slot;
    return block && block->addr == addr ? block : NULL;
}

/* The block of a page that starts highest, at addr at most. */
static struct zone_block *page_below(uintptr_t slot, zone_addr_t addr)
{
    if (!(slot & 1)) {
        struct zone_block *block = (struct zone_block *)slot;
        return block && block->addr <= addr ? block : NULL;
    }
    for (unsigned i = leaf_index(addr) + 1; i > 0; i--) {
        struct zone_block *block =
            atomic_load_explicit(&slot_leaf(slot)[i - 1], memory_order_acquire);
        if (block) {
            return block;
        }
    }
    return NULL;
}

struct zone_block *zone_ptrmap_below(zone_addr_t addr, zone_addr_t base)
{
    const zone_addr_t page_mask = ((zone_addr_t)1 << PAGE_BITS) - 1;
    while (addr >= base) {
        struct branch *branch = branch_of(addr);
        uintptr_t slot =
            branch ? atomic_load_explicit(page_slot(branch, addr), memory_order_acquire) : 0;
        struct zone_block *block = page_below(slot, addr);
        if (block) {
            return block->addr >= base ? block : NULL;
        }
        if ((addr & ~page_mask) == 0) {
            break;
        }
        addr = (addr & ~page_mask) - 1;
    }
    return NULL;
}

/* The driver gave this block's memory out again without our having given it back: whoever frees or
 * reuses the record must see that it is gone. The record itself is lost, since a bin may hold it.
 */
static void block_supersede(struct zone_block *block)
{
    if (block && atomic_load_explicit(&block->state, memory_order_relaxed) != ZONE_BLOCK_LEAVING) {
        atomic_store_explicit(&block->state, ZONE_BLOCK_GONE, memory_order_relaxed);
    }
}

static bool ptrmap_set_locked(struct zone_block *block)
{
    zone_addr_t addr = block->addr;
    if (addr >> 48) {
        return false;
    }
    struct branch *branch = branch_of(addr);
    if (!branch) {
        branch = zone_meta_alloc(sizeof(*branch));
        if (!branch) {
            return false;
        }
        atomic_store_explicit(&root[addr >> (PAGE_BITS + BRANCH_BITS)], branch,
                              memory_order_release);
    }
    _Atomic uintptr_t *page = page_slot(branch, addr);
    uintptr_t slot = atomic_load_explicit(page, memory_order_relaxed);
    if (slot & 1) {
        leaf_slot *entry = &slot_leaf(slot)[leaf_index(addr)];
        block_supersede(atomic_load_explicit(entry, memory_order_relaxed));
        atomic_store_explicit(entry, block, memory_order_release);
        return true;
    }
    struct zone_block *there = (struct zone_block *)slot;
    if (!there || there->addr == addr) {
        block_supersede(there);
        atomic_store_explicit(page, (uintptr_t)block, memory_order_release);
        return true;
    }
    leaf_slot *leaf = zone_meta_alloc(LEAF_SLOTS * sizeof(*leaf));
    if (!leaf) {
        return false;
    }
    atomic_store_explicit(&leaf[leaf_index(there->addr)], there, memory_order_relaxed);
    atomic_store_explicit(&leaf[leaf_index(addr)], block, memory_order_relaxed);
    atomic_store_explicit(page, (uintptr_t)leaf | 1, memory_order_release);
    return true;
}

bool zone_ptrmap_set(struct zone_block *block)
{
    pthread_mutex_lock(&ptrmap_lock);
    bool done = ptrmap_set_locked(block);
    pthread_mutex_unlock(&ptrmap_lock);
    return done;
}

struct zone_block *zone_ptrmap_enter(const struct zone_block *like)
{
    struct zone_block *block = zone_block_new();
    if (!block) {
        return NULL;
    }
    block->addr = like->addr;
    block->bytes = like->bytes;
    block->req_bytes = like->req_bytes;
    block->stamp = 0;
    block->pool = like->pool;
    block->segment = like->segment;
    block->below = NULL;
    block->above = NULL;
    block->fresh = like->fresh;
    atomic_store_explicit(&block->kind, like->kind, memory_order_relaxed);
    atomic_store_explicit(&block->state, like->state, memory_order_release);
    if (!zone_ptrmap_set(block)) {
        zone_block_delete(block);
        return NULL;
    }
    return block;
}

/* Takes out what leads from addr to this block; NULL: to any. */
static void ptrmap_clear_locked(zone_addr_t addr, const struct zone_block *only)
{
    struct branch *branch = branch_of(addr);
    if (!branch) {
        return;
    }
    _Atomic uintptr_t *page = page_slot(branch, addr);
    uintptr_t slot = atomic_load_explicit(page, memory_order_relaxed);
    leaf_slot *entry = slot & 1 ? &slot_leaf(slot)[leaf_index(addr)] : NULL;
    struct zone_block *there =
        entry ? atomic_load_explicit(entry, memory_order_relaxed) : (struct zone_block *)slot;
    if (!there || there->addr != addr || (only && there != only)) {
        return;
    }
    if (!only) {
        block_supersede(there);
    }
    if (entry) {
        atomic_store_explicit(entry, NULL, memory_order_release);
    } else {
        atomic_store_explicit(page, 0, memory_order_release);
    }
}

void zone_ptrmap_remove(struct zone_block *block)
{
    pthread_mutex_lock(&ptrmap_lock);
    ptrmap_clear_locked(block->addr, block);
    pthread_mutex_unlock(&ptrmap_lock);
}

void zone_ptrmap_evict(zone_addr_t addr)
{
    if (ZONE_LIKELY(!zone_ptrmap_get(addr))) {
        return;
    }
    pthread_mutex_lock(&ptrmap_lock);
    ptrmap_clear_locked(addr, NULL);
    pthread_mutex_unlock(&ptrmap_lock);
}

static void leaf_sweep(leaf_slot *leaf, bool (*visit)(struct zone_block *, void *), void *arg)
{
    for (unsigned i = 0; i < LEAF_SLOTS; i++) {
        struct zone_block *block = atomic_load_explicit(&leaf[i], memory_order_relaxed);
        if (block && visit(block, arg)) {
            atomic_store_explicit(&leaf[i], NULL, memory_order_release);
        }
    }
}

void zone_ptrmap_sweep(bool (*visit)(struct zone_block *block, void *arg), void *arg)
{
    pthread_mutex_lock(&ptrmap_lock);
    for (unsigned r = 0; r < ROOT_SLOTS; r++) {
        struct branch *branch = atomic_load_explicit(&root[r], memory_order_relaxed);
        for (unsigned b = 0; branch && b < BRANCH_SLOTS; b++) {
            uintptr_t slot = atomic_load_explicit(&branch->slots[b], memory_order_relaxed);
            if (slot & 1) {
                leaf_sweep(slot_leaf(slot), visit, arg);
            } else if (slot && visit((struct zone_block *)slot, arg)) {
                atomic_store_explicit(&branch->slots[b], 0, memory_order_release);
            }
        }
    }
    pthread_mutex_unlock(&ptrmap_lock);
}
