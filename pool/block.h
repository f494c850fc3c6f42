/* SPDX-License-Identifier: Apache-2.0
 *
 * A block: memory handed out again and again to requests of its size class. A whole block is one
 * allocation of the driver; a cut block is a part of a segment (segment.h), which is one.
 *
 * States, each change made by exactly one thread:
 *   LIVE     the program owns it                 -> FREED by the program's free (compare and swap)
 *   FREED    in a bin, or on the way there       -> LIVE when handed out, LEAVING when given back,
 *                                                   RUN when its segment takes it
 *   RUN      ready and free in its segment       -> FREED when cut, LEAVING, GONE when merged
 *   LEAVING  being given back to the driver      -> gone, or back to where it was if that failed
 * Invariant: bytes is what a whole block got from the driver; 0 < req_bytes <= bytes while LIVE.
 * Records are recycled but never unmapped, so a lock-free reader may look at a retired one; it must
 * compare addr with the address it looked up.
 */
#pragma once

#include "base.h"

#include <stdatomic.h>

enum zone_block_state {
    ZONE_BLOCK_GONE,
    ZONE_BLOCK_LIVE,
    ZONE_BLOCK_FREED,
    ZONE_BLOCK_RUN,
    ZONE_BLOCK_LEAVING,
};

enum zone_block_kind {
    ZONE_BLOCK_DEVICE,  /* cuMemAlloc memory: pooled */
    ZONE_BLOCK_MANAGED, /* known only because its existence changes when a free must wait */
};

struct zone_pool;
struct zone_segment;

/* How long ago cached memory was freed, in epochs before `now`, summed up for an average. */
struct zone_ages {
    uint64_t now;
    uint64_t sum;
    uint64_t count;
};

static inline void zone_ages_add(struct zone_ages *ages, uint64_t stamp)
{
    ages->sum += ages->now - stamp;
    ages->count++;
}

struct zone_block {
    zone_addr_t addr; /* const while in use; loaded atomically by who does not own the record */
    size_t bytes;     /* const while LIVE or in a bin: the size class. Runs: arena lock */
    size_t req_bytes; /* owner; what the program asked for */
    union {
        uint64_t stamp;             /* bin lock; the epoch that must be ready before reuse */
        struct zone_block *back;    /* arena lock; runs of one size are a list in both directions */
        _Atomic uint64_t buffer_id; /* while LIVE; 0: not asked for yet */
    };
    struct zone_pool *pool;  /* const */
    struct zone_block *next; /* bin lock, or the arena's while it is a run, or the spare list's */
    _Atomic uint8_t state;   /* enum zone_block_state */
    _Atomic uint8_t kind;    /* enum zone_block_kind; const, but looked at in spare records, too */
    bool fresh;              /* owner; the first use since the driver allocated it */
    bool sync_memops;        /* owner; as the program has set it. A segment's is all its blocks' */
    bool in_stream;          /* owner; allocated in stream order */
    _Atomic uint8_t tainted; /* freed for real, never recycled: see zone_pool_taint */
    struct zone_segment *segment; /* const while LIVE; NULL: a whole block */
    struct zone_block *below;     /* arena lock; neighbours by address in the segment */
    struct zone_block *above;
};

static inline enum zone_block_kind zone_block_kind(const struct zone_block *block)
{
    return (enum zone_block_kind)atomic_load_explicit(&block->kind, memory_order_relaxed);
}

/* A record in state GONE, or NULL when the host has no memory. */
struct zone_block *zone_block_new(void);

/* Returns the record; the caller has taken it out of the pointer map. */
void zone_block_delete(struct zone_block *block);

/* CU_POINTER_ATTRIBUTE_BUFFER_ID of a block that is not fresh, for as long as the program holds it:
 * never the driver's (those are small numbers), never the same twice. */
uint64_t zone_block_buffer_id(struct zone_block *block);
