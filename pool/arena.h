/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: driver allocations that are cut into blocks. A pool has one arena for small blocks and
 * one for large ones. A part of a segment is a block of the program, a freed block in a bin, or a
 * free run; only runs are cut and merged, and only ready blocks become runs (fence.h), so whatever
 * an arena hands out may be used at once. The lowest block of a segment keeps its record until the
 * segment goes back, so the driver is never given a segment's address by a program's second free.
 *
 * Locking: one mutex an arena, under which the map's and the records' locks are taken; never held
 * across a call of the device. Errors: a host without memory makes blocks larger or less often
 * reused, never wrong.
 */
#pragma once

#include "runs.h"

#include <pthread.h>

struct zone_segment {
    size_t bytes;   /* const */
    size_t carved;  /* lock; bytes that are not runs */
    size_t dead;    /* lock; bytes of blocks that must not be used again, part of carved */
    uint64_t stamp; /* lock; of its part that was freed last and is a run by now */
    struct zone_block *first;  /* const; the block where the segment starts */
    struct zone_segment *next; /* lock */
    struct zone_segment *back; /* lock */
};

struct zone_arena {
    pthread_mutex_t lock;
    struct zone_segment *used;  /* lock; segments that hold a block */
    struct zone_segment *empty; /* lock; the others */
    size_t guard;               /* const; see zone_arena_init */
    _Atomic size_t bytes;       /* of all segments */
    _Atomic size_t count;       /* number of segments */
    _Atomic size_t blocks;      /* blocks that are not runs */
    _Atomic unsigned cursor;    /* where looking through the bins goes on */
    struct zone_runs runs;      /* lock */
};

/* What may be cut from what: PyTorch's rules (peers.md §1.5). */
struct zone_cut_rules {
    size_t max_split; /* runs from this size up are not cut, and serve only such requests */
    size_t max_over;  /* by how much such a run may exceed the request */
    size_t min_rest;  /* a smaller rest stays with the block */
};

/* Sizes in an arena are multiples of 1 << shift. The first guard bytes of a segment, 0 or a block's
 * size, are no block of the program's. With a guard no block starts where its segment does: a
 * library that found the driver past every hook and frees a block there is refused, as it would be
 * for any address inside an allocation, instead of freeing the segment. */
void zone_arena_init(struct zone_arena *arena, unsigned shift, size_t guard);

/* The context died: nothing is left. Its blocks have left the map. */
void zone_arena_forget(struct zone_arena *arena);

/* Cuts a block out of the run that fits best: FREED, in no bin, the caller's. NULL if none fits. */
struct zone_block *zone_arena_take(struct zone_arena *arena, size_t bytes,
                                   const struct zone_cut_rules *rules);

/* Makes a segment of what the driver has just allocated and cuts a block from it, as above. NULL
 * when the host has no memory for records; nothing has changed then. */
struct zone_block *zone_arena_add(struct zone_arena *arena, struct zone_pool *pool,
                                  zone_addr_t addr, size_t bytes, size_t first_bytes,
                                  const struct zone_cut_rules *rules);

/* A ready block, in no bin, becomes a run and merges with runs beside it. Returns the run's size.
 */
size_t zone_arena_put(struct zone_arena *arena, struct zone_block *block);

/* A block that others may still hold is used no more; its segment goes back with the rest. */
void zone_arena_retire(struct zone_arena *arena, struct zone_block *block);

/* Takes a segment that holds no block out, to be given back: its first block, now LEAVING. Of those
 * with a stamp of at most until the smallest of at least bytes, else the largest; NULL if there is
 * none. Then gone, if the driver took it, or kept. */
struct zone_block *zone_arena_leave(struct zone_arena *arena, size_t bytes, uint64_t until);
void zone_arena_gone(struct zone_block *first);
void zone_arena_kept(struct zone_arena *arena, struct zone_block *first);

/* The largest run, and the bytes of blocks that are used no more because others may hold them. */
void zone_arena_look(struct zone_arena *arena, size_t *ret_run, size_t *ret_dead);

/* Adds the age of each segment that holds no block and has a stamp of at most until. */
void zone_arena_ages(struct zone_arena *arena, uint64_t until, struct zone_ages *ages);

/* Bytes of the segments of which the program holds nothing: what giving back could free once all
 * is ready. */
size_t zone_arena_idle(struct zone_arena *arena);
