/* SPDX-License-Identifier: Apache-2.0
 *
 * root[addr >> 35] -> branch[(addr >> 21) & 16383] -> a block that starts in this page of 2 MiB,
 * or, when several do, a tree of nodes. A node tells blocks apart by two bits of their addresses,
 * the highest in which they differ; the driver's granule is 512 bytes (facts.md), so there are six
 * such steps in a page, and a step at which all blocks agree has no node. A map of small blocks
 * thus takes some twenty bytes a block, one of whole blocks nothing beyond the branch.
 *
 * A slot holds a block, or a node with its step in the lowest bits. A node that is left with one
 * entry goes to a list of spare ones, though a reader may be in it: so what a reader finds counts
 * only if its address is the one looked up, and whoever finds nothing behind a node looks again
 * under the lock.
 */
#include "ptrmap.h"

#include "meta.h"

#include <pthread.h>

enum {
    GRANULE_BITS = 9,
    PAGE_BITS = 21,
    STEP_BITS = 2,
    BRANCH_BITS = 14,
    ROOT_BITS = 48 - PAGE_BITS - BRANCH_BITS,
    NODE_SLOTS = 1 << STEP_BITS,
    NODE_STEPS = (PAGE_BITS - GRANULE_BITS) / STEP_BITS,
    NODE_SLAB = 1 << 12,
    BRANCH_SLOTS = 1 << BRANCH_BITS,
    ROOT_SLOTS = 1 << ROOT_BITS,
};

struct node {
    _Atomic uintptr_t slots[NODE_SLOTS];
};

/* The lowest bits of a slot that leads to a node: 1, and above it the step, 0 for the granules. */
#define SLOT_NODE       ((uintptr_t)1)
#define SLOT_STEP_SHIFT 1
#define SLOT_MASK       ((uintptr_t)sizeof(struct node) - 1)

_Static_assert((NODE_STEPS - 1) << SLOT_STEP_SHIFT < (int)sizeof(struct node), "a step fits");

struct branch {
    _Atomic uintptr_t slots[BRANCH_SLOTS];
};

static struct branch *_Atomic root[ROOT_SLOTS];
static pthread_mutex_t ptrmap_lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *node_slab; /* lock; nodes never used */
static unsigned node_left;     /* lock; how many */
static uintptr_t node_spare;   /* lock; the first slot of each leads to the next */

static bool slot_is_node(uintptr_t slot)
{
    return slot & SLOT_NODE;
}

static struct node *slot_node(uintptr_t slot)
{
    return (struct node *)(slot & ~SLOT_MASK);
}

static unsigned slot_step(uintptr_t slot)
{
    return (unsigned)(slot & SLOT_MASK) >> SLOT_STEP_SHIFT;
}

static struct zone_block *slot_block(uintptr_t slot)
{
    return (struct zone_block *)slot;
}

/* The lowest address bit that a step looks at. */
static unsigned step_bits(unsigned step)
{
    return GRANULE_BITS + step * STEP_BITS;
}

/* The slot of addr in the node that a slot leads to. */
static _Atomic uintptr_t *slot_next(uintptr_t slot, zone_addr_t addr)
{
    return &slot_node(slot)->slots[addr >> step_bits(slot_step(slot)) & (NODE_SLOTS - 1)];
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

static struct zone_block *block_at(uintptr_t slot, zone_addr_t addr)
{
    struct zone_block *block = slot_block(slot);
    /* The record may be getting another block's address just now. */
    return block && __atomic_load_n(&block->addr, __ATOMIC_RELAXED) == addr ? block : NULL;
}

static uintptr_t slot_load_locked(_Atomic uintptr_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* The slot where the block at addr is or would be, if no more is known than its address. *ret_node:
 * the slot that leads to the node that it is in, NULL: none. */
static _Atomic uintptr_t *slot_of_locked(struct branch *branch, zone_addr_t addr,
                                         _Atomic uintptr_t **ret_node)
{
    _Atomic uintptr_t *at = page_slot(branch, addr);
    uintptr_t slot = slot_load_locked(at);
    *ret_node = NULL;
    while (slot_is_node(slot)) {
        *ret_node = at;
        at = slot_next(slot, addr);
        slot = slot_load_locked(at);
    }
    return at;
}

static ZONE_COLD struct zone_block *ptrmap_get_locking(struct branch *branch, zone_addr_t addr)
{
    _Atomic uintptr_t *node;
    pthread_mutex_lock(&ptrmap_lock);
    struct zone_block *block =
        block_at(slot_load_locked(slot_of_locked(branch, addr, &node)), addr);
    pthread_mutex_unlock(&ptrmap_lock);
    return block;
}

struct zone_block *zone_ptrmap_get(zone_addr_t addr)
{
    struct branch *branch = branch_of(addr);
    if (!branch) {
        return NULL;
    }
    uintptr_t slot = atomic_load_explicit(page_slot(branch, addr), memory_order_acquire);
    if (!slot_is_node(slot)) {
        return block_at(slot, addr);
    }
    /* A spare node may lead anywhere, but not upwards. */
    unsigned step = NODE_STEPS;
    while (slot_is_node(slot) && slot_step(slot) < step) {
        step = slot_step(slot);
        slot = atomic_load_explicit(slot_next(slot, addr), memory_order_acquire);
    }
    struct zone_block *block = slot_is_node(slot) ? NULL : block_at(slot, addr);
    return ZONE_LIKELY(block) ? block : ptrmap_get_locking(branch, addr);
}

/* The block behind a slot that starts lowest. */
static struct zone_block *slot_lowest_locked(uintptr_t slot)
{
    while (slot_is_node(slot)) {
        struct node *node = slot_node(slot);
        unsigned i = 0;
        while ((slot = slot_load_locked(&node->slots[i])) == 0) {
            i++;
        }
    }
    return slot_block(slot);
}

/* The block behind a slot that starts highest, at addr at most. */
static struct zone_block *slot_below_locked(uintptr_t slot, zone_addr_t addr)
{
    struct zone_block *lowest = slot_lowest_locked(slot);
    if (!lowest || lowest->addr > addr) {
        return NULL;
    }
    if (!slot_is_node(slot)) {
        return lowest;
    }
    /* What all blocks behind the node have in common addr has too, or it lies above them all. */
    unsigned bits = step_bits(slot_step(slot));
    bool among = addr >> bits >> STEP_BITS == lowest->addr >> bits >> STEP_BITS;
    unsigned i = among ? (unsigned)(addr >> bits) & (NODE_SLOTS - 1) : NODE_SLOTS - 1;
    struct zone_block *block;
    while (!(block = slot_below_locked(slot_load_locked(&slot_node(slot)->slots[i]), addr))) {
        i--; /* the lowest is there */
    }
    return block;
}

static struct zone_block *ptrmap_below_locked(zone_addr_t addr, zone_addr_t base)
{
    while (addr >= base) {
        struct branch *branch = branch_of(addr);
        unsigned bits = branch ? PAGE_BITS : PAGE_BITS + BRANCH_BITS;
        struct zone_block *block =
            branch ? slot_below_locked(slot_load_locked(page_slot(branch, addr)), addr) : NULL;
        if (block) {
            return block->addr >= base ? block : NULL;
        }
        zone_addr_t start = addr >> bits << bits; /* of the page, or the branch that is not there */
        if (start == 0) {
            break;
        }
        addr = start - 1;
    }
    return NULL;
}

struct zone_block *zone_ptrmap_below(zone_addr_t addr, zone_addr_t base)
{
    pthread_mutex_lock(&ptrmap_lock);
    struct zone_block *block = ptrmap_below_locked(addr, base);
    pthread_mutex_unlock(&ptrmap_lock);
    return block;
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

static struct node *node_new_locked(void)
{
    struct node *node = slot_node(node_spare);
    if (node) {
        node_spare = slot_load_locked(&node->slots[0]);
        atomic_store_explicit(&node->slots[0], 0, memory_order_relaxed);
        return node;
    }
    if (node_left == 0) {
        node_slab = zone_meta_alloc(NODE_SLAB);
        node_left = node_slab ? NODE_SLAB / sizeof(*node) : 0;
    }
    if (node_left == 0) {
        return NULL;
    }
    node_left--;
    return node_slab++;
}

static void node_delete_locked(struct node *node)
{
    for (unsigned i = 1; i < NODE_SLOTS; i++) {
        atomic_store_explicit(&node->slots[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&node->slots[0], node_spare, memory_order_relaxed);
    node_spare = (uintptr_t)node | SLOT_NODE;
}

/* If a slot leads to a node with one entry, it leads to that entry from now on. */
static void slot_tidy_locked(_Atomic uintptr_t *at)
{
    struct node *node = slot_node(slot_load_locked(at));
    uintptr_t only = 0;
    for (unsigned i = 0; i < NODE_SLOTS; i++) {
        uintptr_t entry = slot_load_locked(&node->slots[i]);
        if (entry != 0 && only != 0) {
            return;
        }
        only = entry != 0 ? entry : only;
    }
    atomic_store_explicit(at, only, memory_order_release);
    node_delete_locked(node);
}

/* Enters a block beside those behind the page's slot, of which there is one. False when the host
 * has no memory. */
static bool page_add_locked(_Atomic uintptr_t *at, struct zone_block *block)
{
    zone_addr_t addr = block->addr;
    uintptr_t slot = slot_load_locked(at);
    /* Any that agrees with addr as far as it goes. */
    while (slot_is_node(slot)) {
        uintptr_t next = slot_load_locked(slot_next(slot, addr));
        slot = next ? next : (uintptr_t)slot_lowest_locked(slot);
    }
    zone_addr_t differs = (slot_block(slot)->addr ^ addr) >> GRANULE_BITS;
    unsigned step = (63 - (unsigned)__builtin_clzll(differs)) / STEP_BITS;
    for (slot = slot_load_locked(at); slot_is_node(slot) && slot_step(slot) > step;
         slot = slot_load_locked(at)) {
        at = slot_next(slot, addr);
    }
    if (slot_is_node(slot) && slot_step(slot) == step) {
        atomic_store_explicit(slot_next(slot, addr), (uintptr_t)block, memory_order_release);
        return true;
    }
    struct node *node = node_new_locked();
    if (!node) {
        return false;
    }
    uintptr_t fresh = (uintptr_t)node | step << SLOT_STEP_SHIFT | SLOT_NODE;
    zone_addr_t there = slot_lowest_locked(slot)->addr;
    atomic_store_explicit(slot_next(fresh, there), slot, memory_order_relaxed);
    atomic_store_explicit(slot_next(fresh, addr), (uintptr_t)block, memory_order_relaxed);
    atomic_store_explicit(at, fresh, memory_order_release);
    return true;
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
    _Atomic uintptr_t *node;
    _Atomic uintptr_t *at = slot_of_locked(branch, addr, &node);
    struct zone_block *there = slot_block(slot_load_locked(at));
    _Atomic uintptr_t *page = page_slot(branch, addr);
    if (slot_load_locked(page) && !(there && there->addr >> GRANULE_BITS == addr >> GRANULE_BITS)) {
        return page_add_locked(page, block);
    }
    block_supersede(there);
    atomic_store_explicit(at, (uintptr_t)block, memory_order_release);
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
    __atomic_store_n(&block->addr, like->addr, __ATOMIC_RELAXED);
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
    _Atomic uintptr_t *node;
    _Atomic uintptr_t *at = slot_of_locked(branch, addr, &node);
    struct zone_block *there = block_at(slot_load_locked(at), addr);
    if (!there || (only && there != only)) {
        return;
    }
    if (!only) {
        block_supersede(there);
    }
    atomic_store_explicit(at, 0, memory_order_release);
    if (node) {
        slot_tidy_locked(node);
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

static void slot_sweep(_Atomic uintptr_t *at, bool (*visit)(struct zone_block *, void *), void *arg)
{
    uintptr_t slot = atomic_load_explicit(at, memory_order_relaxed);
    if (slot_is_node(slot)) {
        for (unsigned i = 0; i < NODE_SLOTS; i++) {
            slot_sweep(&slot_node(slot)->slots[i], visit, arg);
        }
        slot_tidy_locked(at);
    } else if (slot && visit(slot_block(slot), arg)) {
        atomic_store_explicit(at, 0, memory_order_release);
    }
}

void zone_ptrmap_sweep(bool (*visit)(struct zone_block *block, void *arg), void *arg)
{
    pthread_mutex_lock(&ptrmap_lock);
    for (unsigned r = 0; r < ROOT_SLOTS; r++) {
        struct branch *branch = atomic_load_explicit(&root[r], memory_order_relaxed);
        for (unsigned b = 0; branch && b < BRANCH_SLOTS; b++) {
            slot_sweep(&branch->slots[b], visit, arg);
        }
    }
    pthread_mutex_unlock(&ptrmap_lock);
}
