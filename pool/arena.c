/* SPDX-License-Identifier: Apache-2.0
 *
 * See arena.h. Neighbours are linked by address, so cutting and merging need no search.
 */
#include "arena.h"

#include "meta.h"
#include "ptrmap.h"

void zone_arena_init(struct zone_arena *arena, unsigned shift, size_t guard)
{
    arena->guard = guard;
    pthread_mutex_init(&arena->lock, NULL);
    arena->used = NULL;
    arena->empty = NULL;
    atomic_store(&arena->bytes, 0);
    atomic_store(&arena->count, 0);
    atomic_store(&arena->blocks, 0);
    atomic_store(&arena->cursor, 0);
    zone_runs_init(&arena->runs, shift);
}

/* Records of segments are recycled, never unmapped. */
static pthread_mutex_t segment_lock = PTHREAD_MUTEX_INITIALIZER;
static struct zone_segment *segment_spare;

static struct zone_segment *segment_new(void)
{
    pthread_mutex_lock(&segment_lock);
    struct zone_segment *segment = segment_spare;
    if (segment) {
        segment_spare = segment->next;
    }
    pthread_mutex_unlock(&segment_lock);
    return segment ? segment : zone_meta_alloc(sizeof(*segment));
}

static void segment_delete(struct zone_segment *segment)
{
    pthread_mutex_lock(&segment_lock);
    segment->next = segment_spare;
    segment_spare = segment;
    pthread_mutex_unlock(&segment_lock);
}

void zone_arena_forget(struct zone_arena *arena)
{
    pthread_mutex_lock(&arena->lock);
    while (arena->used || arena->empty) {
        struct zone_segment **list = arena->used ? &arena->used : &arena->empty;
        struct zone_segment *segment = *list;
        *list = segment->next;
        segment_delete(segment);
    }
    atomic_store(&arena->bytes, 0);
    atomic_store(&arena->count, 0);
    atomic_store(&arena->blocks, 0);
    zone_runs_init(&arena->runs, arena->runs.shift);
    pthread_mutex_unlock(&arena->lock);
}

/* Nothing of it is a block that somebody uses or may use. */
static bool segment_is_empty(const struct zone_segment *segment)
{
    return segment->carved == segment->dead;
}

static struct zone_segment **segment_list(struct zone_arena *arena,
                                          const struct zone_segment *segment)
{
    return segment_is_empty(segment) ? &arena->empty : &arena->used;
}

static void segment_link_locked(struct zone_arena *arena, struct zone_segment *segment)
{
    struct zone_segment **list = segment_list(arena, segment);
    segment->back = NULL;
    segment->next = *list;
    if (segment->next) {
        segment->next->back = segment;
    }
    *list = segment;
}

static void segment_unlink_locked(struct zone_arena *arena, struct zone_segment *segment)
{
    if (segment->back) {
        segment->back->next = segment->next;
    } else {
        *segment_list(arena, segment) = segment->next;
    }
    if (segment->next) {
        segment->next->back = segment->back;
    }
}

/* What is carved, or dead, changes: the segment may change lists. */
static void segment_count_locked(struct zone_arena *arena, struct zone_segment *segment,
                                 size_t carved, size_t dead)
{
    segment_unlink_locked(arena, segment);
    segment->carved = carved;
    segment->dead = dead;
    segment_link_locked(arena, segment);
}

static void arena_own(struct zone_arena *arena, const struct zone_segment *segment, bool own)
{
    size_t sign = own ? 1 : SIZE_MAX;
    atomic_fetch_add(&arena->bytes, sign * segment->bytes);
    atomic_fetch_add(&arena->count, sign);
}

static struct zone_block *segment_block(struct zone_segment *segment, struct zone_pool *pool,
                                        zone_addr_t addr, size_t bytes)
{
    const struct zone_block like = {
        .addr = addr,
        .bytes = bytes,
        .pool = pool,
        .kind = ZONE_BLOCK_DEVICE,
        .state = ZONE_BLOCK_FREED,
        .segment = segment,
        .fresh = false, /* the driver knows the segment only: the buffer id is ours */
    };
    return zone_ptrmap_enter(&like);
}

/* The part of the block from bytes on becomes a run of its own. Without a record for it the block
 * stays as large as it is. */
static void arena_cut_locked(struct zone_arena *arena, struct zone_block *block, size_t bytes)
{
    struct zone_block *rest =
        segment_block(block->segment, block->pool, block->addr + bytes, block->bytes - bytes);
    if (!rest) {
        return;
    }
    atomic_store_explicit(&rest->state, ZONE_BLOCK_RUN, memory_order_relaxed);
    rest->below = block;
    rest->above = block->above;
    if (rest->above) {
        rest->above->below = rest;
    }
    block->above = rest;
    block->bytes = bytes;
    zone_runs_add(&arena->runs, rest);
}

static void arena_carve_locked(struct zone_arena *arena, struct zone_block *block, size_t bytes,
                               const struct zone_cut_rules *rules)
{
    if (block->bytes - bytes >= rules->min_rest && bytes < rules->max_split) {
        arena_cut_locked(arena, block, bytes);
    }
    struct zone_segment *segment = block->segment;
    segment_count_locked(arena, segment, segment->carved + block->bytes, segment->dead);
    atomic_fetch_add(&arena->blocks, 1);
}

static bool block_is_run(const struct zone_block *block)
{
    return block && atomic_load_explicit(&block->state, memory_order_relaxed) == ZONE_BLOCK_RUN;
}

static bool cut_allowed(size_t bytes, const struct zone_block *run,
                        const struct zone_cut_rules *rules)
{
    return bytes < rules->max_split ? run->bytes < rules->max_split
                                    : run->bytes - bytes < rules->max_over;
}

struct zone_block *zone_arena_take(struct zone_arena *arena, size_t bytes,
                                   const struct zone_cut_rules *rules)
{
    pthread_mutex_lock(&arena->lock);
    struct zone_block *run;
    do {
        run = zone_runs_fit(&arena->runs, bytes);
        if (run && !cut_allowed(bytes, run, rules)) {
            run = NULL;
        }
        if (run) {
            zone_runs_remove(&arena->runs, run);
        }
        /* Not RUN: the driver has given its memory to somebody else, see zone_ptrmap_set. */
    } while (run && !block_is_run(run));
    if (run) {
        atomic_store_explicit(&run->state, ZONE_BLOCK_FREED, memory_order_relaxed);
        arena_carve_locked(arena, run, bytes, rules);
    }
    pthread_mutex_unlock(&arena->lock);
    return run;
}

/* Keeps the start of a new segment from everybody. Returns what is left, or the whole when the host
 * has no memory for a record. */
static struct zone_block *arena_guard_locked(struct zone_arena *arena, struct zone_block *first)
{
    if (arena->guard == 0) {
        return first;
    }
    arena_cut_locked(arena, first, arena->guard);
    struct zone_block *rest = first->above;
    if (!rest) {
        return first;
    }
    atomic_store_explicit(&first->tainted, 1, memory_order_relaxed);
    segment_count_locked(arena, first->segment, first->bytes, first->bytes);
    zone_runs_remove(&arena->runs, rest);
    atomic_store_explicit(&rest->state, ZONE_BLOCK_FREED, memory_order_relaxed);
    return rest;
}

struct zone_block *zone_arena_add(struct zone_arena *arena, struct zone_pool *pool,
                                  zone_addr_t addr, size_t bytes, size_t first_bytes,
                                  const struct zone_cut_rules *rules)
{
    struct zone_segment *segment = segment_new();
    if (!segment) {
        return NULL;
    }
    *segment = (struct zone_segment){.bytes = bytes};
    struct zone_block *first = segment_block(segment, pool, addr, bytes);
    if (!first) {
        segment_delete(segment);
        return NULL;
    }
    segment->first = first;
    pthread_mutex_lock(&arena->lock);
    segment_link_locked(arena, segment);
    arena_own(arena, segment, true);
    struct zone_block *block = arena_guard_locked(arena, first);
    arena_carve_locked(arena, block, first_bytes, rules);
    pthread_mutex_unlock(&arena->lock);
    return block;
}

/* The upper of two neighbours is no block of its own any more. */
static void arena_join_locked(struct zone_block *below, struct zone_block *above)
{
    below->bytes += above->bytes;
    below->above = above->above;
    if (below->above) {
        below->above->below = below;
    }
    zone_ptrmap_remove(above);
    zone_block_delete(above);
}

size_t zone_arena_put(struct zone_arena *arena, struct zone_block *block)
{
    pthread_mutex_lock(&arena->lock);
    struct zone_segment *segment = block->segment;
    segment_count_locked(arena, segment, segment->carved - block->bytes, segment->dead);
    segment->stamp = block->stamp > segment->stamp ? block->stamp : segment->stamp;
    atomic_fetch_sub(&arena->blocks, 1);
    if (block_is_run(block->above)) {
        zone_runs_remove(&arena->runs, block->above);
        arena_join_locked(block, block->above);
    }
    if (block_is_run(block->below)) {
        struct zone_block *below = block->below;
        zone_runs_remove(&arena->runs, below);
        arena_join_locked(below, block);
        block = below;
    }
    size_t bytes = block->bytes;
    atomic_store_explicit(&block->state, ZONE_BLOCK_RUN, memory_order_relaxed);
    zone_runs_add(&arena->runs, block);
    pthread_mutex_unlock(&arena->lock);
    return bytes;
}

void zone_arena_retire(struct zone_arena *arena, struct zone_block *block)
{
    pthread_mutex_lock(&arena->lock);
    struct zone_segment *segment = block->segment;
    segment_count_locked(arena, segment, segment->carved, segment->dead + block->bytes);
    atomic_fetch_sub(&arena->blocks, 1);
    pthread_mutex_unlock(&arena->lock);
}

struct zone_block *zone_arena_leave(struct zone_arena *arena, size_t bytes, uint64_t until)
{
    struct zone_segment *best = NULL;
    pthread_mutex_lock(&arena->lock);
    for (struct zone_segment *it = arena->empty; it; it = it->next) {
        if (it->stamp > until) {
            continue;
        }
        bool enough = best && best->bytes >= bytes;
        bool better = !best || (enough ? it->bytes >= bytes && it->bytes < best->bytes
                                       : it->bytes > best->bytes);
        best = better ? it : best;
        if (bytes == SIZE_MAX || best->bytes == bytes) {
            break;
        }
    }
    if (best) {
        segment_unlink_locked(arena, best);
        arena_own(arena, best, false);
        for (struct zone_block *block = best->first; block; block = block->above) {
            if (block_is_run(block)) {
                zone_runs_remove(&arena->runs, block);
            }
            atomic_store_explicit(&block->state, ZONE_BLOCK_LEAVING, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&arena->lock);
    return best ? best->first : NULL;
}

void zone_arena_gone(struct zone_block *first)
{
    struct zone_segment *segment = first->segment;
    while (first) {
        struct zone_block *above = first->above;
        zone_ptrmap_remove(first);
        zone_block_delete(first);
        first = above;
    }
    segment_delete(segment);
}

void zone_arena_kept(struct zone_arena *arena, struct zone_block *first)
{
    pthread_mutex_lock(&arena->lock);
    segment_link_locked(arena, first->segment);
    arena_own(arena, first->segment, true);
    for (struct zone_block *block = first; block; block = block->above) {
        bool dead = atomic_load_explicit(&block->tainted, memory_order_relaxed);
        atomic_store_explicit(&block->state, dead ? ZONE_BLOCK_FREED : ZONE_BLOCK_RUN,
                              memory_order_relaxed);
        if (!dead) {
            zone_runs_add(&arena->runs, block);
        }
    }
    pthread_mutex_unlock(&arena->lock);
}

void zone_arena_ages(struct zone_arena *arena, uint64_t until, struct zone_ages *ages)
{
    pthread_mutex_lock(&arena->lock);
    for (const struct zone_segment *it = arena->empty; it; it = it->next) {
        if (it->stamp <= until) {
            zone_ages_add(ages, it->stamp);
        }
    }
    pthread_mutex_unlock(&arena->lock);
}

static bool segment_is_idle(const struct zone_segment *segment)
{
    for (const struct zone_block *block = segment->first; block; block = block->above) {
        if (atomic_load_explicit(&block->state, memory_order_relaxed) == ZONE_BLOCK_LIVE) {
            return false;
        }
    }
    return true;
}

size_t zone_arena_idle(struct zone_arena *arena)
{
    size_t bytes = 0;
    pthread_mutex_lock(&arena->lock);
    for (const struct zone_segment *it = arena->empty; it; it = it->next) {
        bytes += it->bytes;
    }
    for (const struct zone_segment *it = arena->used; it; it = it->next) {
        bytes += segment_is_idle(it) ? it->bytes : 0;
    }
    pthread_mutex_unlock(&arena->lock);
    return bytes;
}

void zone_arena_look(struct zone_arena *arena, size_t *ret_run, size_t *ret_dead)
{
    *ret_dead = 0;
    pthread_mutex_lock(&arena->lock);
    *ret_run = zone_runs_largest(&arena->runs);
    struct zone_segment *lists[] = {arena->used, arena->empty};
    for (unsigned i = 0; i < 2; i++) {
        for (const struct zone_segment *it = lists[i]; it; it = it->next) {
            *ret_dead += it->dead > arena->guard ? it->dead - arena->guard : 0;
        }
    }
    pthread_mutex_unlock(&arena->lock);
}
