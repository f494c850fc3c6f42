/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of one context: what cudaMalloc and cudaFree become. From 1 MiB up a block is a whole
 * driver allocation of a 512-byte size class; smaller ones are cut from segments, larger ones too
 * if the options ask for it. pool.c holds both fast paths; ladder.c what an allocation does when no
 * ready block is there; carve.c what is cut from what; trim.c what gives memory back; registry.c
 * which pools exist.
 *
 * Locking: none of these functions holds a lock while it calls the device. Any thread, any context.
 * Errors: the driver's codes, which the caller returns to the program as they are.
 */
#pragma once

#include "arena.h"
#include "bins.h"
#include "counters.h"
#include "fence.h"
#include "fill.h"
#include "gpu.h"
#include "ledger.h"
#include "limit.h"
#include "oom.h"
#include "options.h"

/* What all pools of the process share. Owned by the shim, outlives every pool. */
struct zone_process {
    const struct zone_gpu *gpu;
    const struct zone_options *options;
    /* How many allocations the host may read without asking while kernels write them (managed
     * memory). While there are any, free_order auto waits in the free as the driver does. */
    _Atomic int host_watched;
    /* Says why an allocation failed; NULL: nobody wants to know. May take milliseconds. */
    void (*explain)(const struct zone_oom *oom);
    struct zone_oom_gate oom_gate;
    /* Tells the user one line about the configuration; NULL: nobody. */
    void (*say)(const char *line);
    /* May a stream of the device be made to wait for another one's free? NULL: yes. */
    bool (*may_depend)(int device);
};

/* Who frees: decides whether the free may wait. */
enum zone_free_by {
    ZONE_FREE_BY_FREE,   /* cuMemFree, which natively waits for the context */
    ZONE_FREE_BY_STREAM, /* cuMemFreeAsync, which never waits */
};

/* Counts that are not derived from something else; see counters.def for their meaning. */
#define ZONE_POOL_BUDGET_MIN  (64 * ZONE_MIB)
#define ZONE_POOL_BUDGET_MAX  (4 * ZONE_GIB)
#define ZONE_POOL_BUDGET_AUTO SIZE_MAX /* see pool_budget */

struct zone_pool_counts {
    _Atomic uint64_t driver_allocs;
    _Atomic uint64_t driver_alloc_ns;
    _Atomic uint64_t driver_frees;
    _Atomic uint64_t driver_free_ns;
    _Atomic uint64_t throttle_waits;
    _Atomic uint64_t throttle_wait_ns;
    _Atomic uint64_t sync_waits;
    _Atomic uint64_t sync_wait_ns;
    _Atomic uint64_t rungs;
    _Atomic uint64_t rung_wait_ns;
    _Atomic uint64_t ooms;
    _Atomic uint64_t oom_rejections;
    _Atomic uint64_t trims;
    _Atomic uint64_t trimmed_bytes;
    _Atomic uint64_t tainted;
};

struct zone_stream;

enum { ZONE_STREAM_BUCKETS = 64 };

/* What all streams of a pool share: see stream.h. */
struct zone_streams {
    _Atomic bool any;         /* some stream has lists */
    size_t unmarked_max;      /* const; bytes freed on a stream before it gets a mark anyway */
    _Atomic uint64_t wanted;  /* epoch of the last allocation that found no block of its class */
    _Atomic uint64_t misses;  /* how many had to grow */
    _Atomic uint64_t covered; /* how many of them when a context event was recorded for them last */
    struct zone_level used;   /* bytes held in stream order, as the program asked for them */
    struct zone_level reserved; /* of those blocks, and those in lists */
    _Atomic uint64_t gave_ns;   /* when the driver last got a block in the order of a stream */
    _Atomic uint64_t marks;
    _Atomic uint64_t waits;
};

struct zone_pool {
    struct zone_process *process; /* const */
    void *ctx;                    /* const while in use; NULL: the pool is free to be taken */
    void *leaving;                /* registry lock; ctx while it is being destroyed */
    _Atomic int giving; /* threads that give back or fill just now; the context must stay */
    struct zone_stream *_Atomic stream_buckets[ZONE_STREAM_BUCKETS]; /* only ever added to */
    _Atomic bool open_frees;    /* some free has recorded nothing since the last record */
    uint64_t ctx_id;            /* const; the driver's number of the context, 0 if unknown */
    int device;                 /* const; ordinal */
    bool primary;               /* const; the context is its device's primary one */
    enum zone_free_order order; /* const */
    bool odd_frees;             /* const; order is unsafe, or freed blocks are filled */
    bool rounds_large;          /* const; classes from 1 MiB up are multiples of 2 MiB */
    _Atomic size_t budget;      /* pending bytes a free tolerates, or ZONE_POOL_BUDGET_AUTO */
    _Atomic size_t min_free;    /* device bytes to leave free */
    _Atomic size_t max_cached;  /* cached bytes that a free tolerates */
    size_t budget_cap;          /* const; the most that an automatic budget may be */
    size_t total;               /* const; bytes of the device */
    size_t collect_above;       /* const; bytes held of the device above which old cached ones go */
    _Atomic uint64_t collect_before; /* what was freed before this epoch may go; 0: nothing */
    _Atomic unsigned shrink_rest;    /* so many frees do not look whether max_cached is passed */
    _Atomic bool tight;              /* the device is nearly full: frees behave as natively */
    _Atomic int fault;         /* the driver's code once the context is lost; then all calls pass */
    _Atomic size_t free_guess; /* free bytes of the device when last looked, less growth since */
    _Atomic uint64_t looked_ns; /* when that was */
    struct zone_ledger ledger;
    struct zone_pool_counts counts;
    _Atomic size_t whole_live;         /* bytes of whole blocks that the program holds */
    bool cuts_small;                   /* const; blocks below 1 MiB are cut from segments */
    bool cuts_large;                   /* const; blocks from 1 MiB up too */
    bool initial;                      /* written once; it has the device's initial pool */
    struct zone_cut_rules small_rules; /* const */
    struct zone_cut_rules large_rules; /* const */
    struct zone_fence fence;
    struct zone_fill fill;
    struct zone_streams streams;
    struct zone_bins bins;
    struct zone_arena small;
    struct zone_arena large;
};

/* Serves a request: ready block, ask once, grow; waits only before it would report out of memory.
 * The calling thread's current context is the pool's, or one whose memory belongs to it. */
int zone_pool_alloc(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr);

/* Frees a block that the caller has moved from LIVE to FREED. May record, may wait as long as the
 * native call would. */
int zone_pool_free(struct zone_block *block, enum zone_free_by by);

/* A claimed block is the program's again: its free failed. */
static inline void zone_block_unclaim(struct zone_block *block)
{
    atomic_store_explicit(&block->state, ZONE_BLOCK_LIVE, memory_order_release);
}

/* Moves a live block to FREED; false if it is not live: a double free. */
static inline bool zone_block_claim(struct zone_block *block)
{
    uint8_t live = ZONE_BLOCK_LIVE;
    return atomic_compare_exchange_strong_explicit(&block->state, &live, ZONE_BLOCK_FREED,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Frees a claimed block as the driver would at this moment, with its code; on failure it is live
 * again. For tainted blocks, lost contexts and captures. A whole block goes back to the driver. */
int zone_pool_free_for_real(struct zone_block *block);

/* Others may hold the block's memory itself from now on: its free will be the driver's. So is that
 * of a block that the driver gave during a capture (ladder.c), which is not counted here. */
void zone_pool_taint(struct zone_block *block);

/* The same around another call of the driver: leave, call, then left with the call's code, which it
 * returns. leave returns the time for left. */
uint64_t zone_pool_leave(struct zone_block *block);
int zone_pool_left(struct zone_block *block, int rc, uint64_t start_ns);

/* Enters what the driver has just allocated (bytes large, counted against the limit; req_bytes of
 * them asked for, in ns nanoseconds) as a live block. False when the host has no memory; the
 * allocation then stays the driver's and is counted no more. */
bool zone_pool_adopt(struct zone_pool *pool, zone_addr_t addr, size_t bytes, size_t req_bytes,
                     uint64_t ns);

/* The slow half of zone_pool_alloc (ladder.c); bin may be NULL, stamp is its head's, 0 if empty. */
int zone_pool_alloc_slow(struct zone_pool *pool, size_t bytes, size_t req_bytes, uint64_t stamp,
                         zone_addr_t *ret_addr);

/* The same in three steps, for who knows of more memory between the last two: true if the pool
 * cannot serve the request, *ret_rc is then what the driver says; asks and grows; the last rungs,
 * once the driver has refused memory. */
bool zone_pool_alloc_odd(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                         zone_addr_t *ret_addr, int *ret_rc);
int zone_pool_alloc_early(struct zone_pool *pool, size_t bytes, size_t req_bytes, uint64_t stamp,
                          zone_addr_t *ret_addr);
int zone_pool_alloc_last(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                         zone_addr_t *ret_addr);

/* For an allocation that must not touch the fence (a capture is under way): the driver first, then
 * what is ready, then the driver again after giving back what is ready. */
int zone_pool_alloc_captured(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr);

/* The driver, or a limit, has refused memory and the program is told so: counts it, and explains it
 * when that is due (refuse.c). Without a pool: zone_refuse, for which the caller has filled in
 * device, requested and bytes, and total in case the driver does not say; ctx is where to ask. */
void zone_pool_refuse(struct zone_pool *pool, size_t bytes, size_t req_bytes);
void zone_refuse(struct zone_process *process, void *ctx, struct zone_oom *oom);

/* Takes a ready block of the class and hands it out; false if there is none. *ret_stamp as
 * zone_bin_take. */
bool zone_pool_reuse(struct zone_pool *pool, struct zone_bin *bin, size_t req_bytes,
                     zone_addr_t *ret_addr, uint64_t *ret_stamp);

/* How many bytes to ask the driver for when a block of this class is to be a whole one. */
static inline size_t zone_pool_whole_size(const struct zone_options *options, size_t bytes)
{
    return options->zero_fill && bytes < ZONE_FILL_SCRUBBED ? ZONE_FILL_SCRUBBED : bytes;
}

/* The driver's allocation, counted, and timed in *ret_ns. Out of memory too if a limit forbids it,
 * without asking the driver (limit.h). */
int zone_pool_driver_alloc(struct zone_pool *pool, size_t bytes, zone_addr_t *ret_addr,
                           uint64_t *ret_ns);

/* An allocation that is the driver's to serve (the pool is switched off, the context lost), adopted
 * as a block, under the limit too. */
int zone_pool_alloc_past(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr);

/* The driver's free, counted. Waits as it does: see gpu.h. */
int zone_pool_driver_free(struct zone_pool *pool, zone_addr_t addr);

/* Gives ready blocks back to the driver, those freed longest ago first, until bytes are given back
 * or none is left. Returns the bytes given back. Waits as cuMemFree does: see gpu.h. */
size_t zone_pool_give_back(struct zone_pool *pool, size_t bytes);

/* Waits, as cuMemFree does, for all work submitted so far: then all that was freed before is ready.
 * Nothing is done for a pool that holds nothing unused or has lost its context. Returns the
 * driver's code; ZONE_GPU_REFUSED: what is pending stays so, as while something captures. */
int zone_pool_drain(struct zone_pool *pool);

/* Inside a free on a device that is nearly full: waits for the free's own mark and gives back until
 * min_free is free again. */
int zone_pool_free_tight(struct zone_pool *pool, const struct zone_ticket *ticket);

/* Inside a free: brings the cached bytes down to max_cached. */
int zone_pool_shrink(struct zone_pool *pool, const struct zone_ticket *ticket);

/* Inside a free: gives old cached memory back, after growth beyond garbage_collection_threshold. */
int zone_pool_collect(struct zone_pool *pool, const struct zone_ticket *ticket);

/* Parts of these. Waits for the free's own mark, which makes every block freed before it ready. */
int zone_pool_wait_own(struct zone_pool *pool, const struct zone_ticket *ticket);

/* Gives a ready block, out of its bin, back and adds its bytes to *given; a part of a segment
 * becomes free space of it. On failure it goes back to its bin, or, if bin is NULL, to those that
 * are to be filled. */
int zone_pool_trim_block(struct zone_pool *pool, struct zone_bin *bin, struct zone_block *block,
                         size_t *given);

/* For a call of the program that ran out of memory: waits until *deadline_ns (0: sets it to
 * oom_wait_ms from now) for the context to come to rest, then gives everything ready back. Returns
 * the bytes given back. */
size_t zone_pool_rescue(struct zone_pool *pool, uint64_t *deadline_ns);

/* After growth by bytes: looks how full the device is, at most as often as it matters. */
void zone_pool_look(struct zone_pool *pool, size_t bytes);

/* Waits for the work that earlier frees of the program would natively have waited for. True if it
 * had to wait. */
bool zone_pool_settle(struct zone_pool *pool);

/* Remembers a lost context. Returns what the program's call should return: rc if it is a fault,
 * else 0. */
int zone_pool_note(struct zone_pool *pool, int rc);

/* True while this thread has freed blocks since its last record. */
bool zone_pool_thread_has_open_frees(void);

/* Fills a snapshot with this pool's counts. */
void zone_pool_count(struct zone_pool *pool, struct zone_counters *ret);

/* After the context died: the pool holds nothing. Its blocks have left the pointer map. */
void zone_pool_forget(struct zone_pool *pool);

/* Sets up what is cut, from the options and the device's size. */
void zone_pool_carve_init(struct zone_pool *pool);

/* Cuts a block of a class from a segment, or from what ready blocks of other classes leave when
 * they merge; false if these sizes are not cut or nothing is there. */
bool zone_pool_carve(struct zone_pool *pool, size_t bytes, size_t req_bytes, zone_addr_t *ret_addr);

/* How large a segment the driver should be asked for when a block of this class is missing; 0: the
 * block itself. Then add_segment, which takes the segment's address and gives that of a block
 * handed out; false when the host has no memory. */
size_t zone_pool_segment_size(struct zone_pool *pool, size_t bytes);
bool zone_pool_add_segment(struct zone_pool *pool, zone_addr_t *addr, size_t segment_bytes,
                           size_t bytes, size_t req_bytes, uint64_t ns);

/* A ready block of a segment, out of its bin, becomes free space of the segment. */
void zone_pool_absorb(struct zone_pool *pool, struct zone_block *block);

/* Gives segments without blocks, with a stamp of at most until, back until *given reaches bytes.
 * Returns the driver's code. */
int zone_pool_release(struct zone_pool *pool, size_t bytes, uint64_t until, size_t *given);

/* zone_pool_free_for_real for a block of a segment, which the driver does not know. */
int zone_pool_free_cut(struct zone_block *block, enum zone_free_by by);

/* Sets the bounds that may change while the pool is in use: when it is made, and by
 * zone_registry_adjust. */
void zone_pool_bound(struct zone_pool *pool, const struct zone_options *options);

static inline size_t zone_pool_min_free(const struct zone_pool *pool)
{
    return atomic_load_explicit(&pool->min_free, memory_order_relaxed);
}

static inline size_t zone_pool_max_cached(const struct zone_pool *pool)
{
    return atomic_load_explicit(&pool->max_cached, memory_order_relaxed);
}

/* Cached bytes that giving back could free once all is ready: not the holes in segments. */
size_t zone_pool_available(struct zone_pool *pool);

/* The driver has bytes back that it gave in one allocation. */
static inline void zone_pool_gave_back(struct zone_pool *pool, size_t bytes)
{
    zone_limit_return(pool->device, zone_ledger_shrink(&pool->ledger, bytes));
}

/* The program gets a block, or gave it back. */
static inline void zone_pool_count_out(struct zone_pool *pool, struct zone_block *block)
{
    zone_ledger_hand_out(&pool->ledger, block->bytes, block->req_bytes);
    if (!block->segment) {
        atomic_fetch_add_explicit(&pool->whole_live, block->bytes, memory_order_relaxed);
    }
}

static inline void zone_pool_count_back(struct zone_pool *pool, struct zone_block *block)
{
    zone_ledger_take_back(&pool->ledger, block->bytes, block->req_bytes);
    if (!block->segment) {
        atomic_fetch_sub_explicit(&pool->whole_live, block->bytes, memory_order_relaxed);
    }
}

/* The block is stream-ordered memory no more: freed otherwise, or gone. */
static inline void zone_pool_out_of_stream(struct zone_pool *pool, struct zone_block *block)
{
    if (ZONE_UNLIKELY(block->in_stream)) {
        block->in_stream = false;
        zone_level_sub(&pool->streams.used, block->req_bytes);
        zone_level_sub(&pool->streams.reserved, block->bytes);
    }
}

static inline void zone_pool_hand_out(struct zone_pool *pool, struct zone_block *block,
                                      size_t req_bytes)
{
    block->req_bytes = req_bytes;
    block->fresh = false;
    atomic_store_explicit(&block->buffer_id, 0, memory_order_relaxed);
    zone_pool_count_out(pool, block);
    atomic_store_explicit(&block->state, ZONE_BLOCK_LIVE, memory_order_release);
}

/* Where a freed block, already stamped, goes. */
static inline void zone_pool_put(struct zone_pool *pool, struct zone_bin *bin,
                                 struct zone_block *block)
{
    if (ZONE_UNLIKELY(pool->fill.on)) {
        zone_fill_push(pool, block);
    } else {
        zone_bin_push(bin, block);
    }
}

/* The class of a request: see zone_options_roundup. Where large blocks are cut, they start at
 * multiples of 2 MiB as natively, so their sizes are; where they must be zero, see fill.h. */
static inline size_t zone_pool_class(const struct zone_pool *pool, size_t req_bytes)
{
    size_t bytes = zone_options_roundup(pool->process->options, req_bytes);
    if (ZONE_UNLIKELY(pool->rounds_large && bytes >= ZONE_BIN_LARGE)) {
        bytes = (bytes + 2 * ZONE_MIB - 1) & ~(2 * ZONE_MIB - 1); /* wraps to 0 near SIZE_MAX */
    }
    return bytes;
}

static inline void zone_count_add(_Atomic uint64_t *count, uint64_t by)
{
    atomic_fetch_add_explicit(count, by, memory_order_relaxed);
}
