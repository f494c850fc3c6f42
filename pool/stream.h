/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory: what cudaMallocAsync and cudaFreeAsync become. Each stream has lists of
 * the blocks that were freed on it. What was freed on a stream is at once good for that stream, as
 * its later work comes after its earlier work: no event, no call of the device.
 *
 * For everybody else (other streams, cudaMalloc, merging, giving back) a block of a list is good
 *  - when an event recorded on its stream after its free has completed (a mark), or
 *  - when its stamp is ready as any freed block's is (fence.h): a context event covers all streams.
 * Then it is harvested: it leaves the list for the bins. A mark takes the next epoch number FIRST
 * and is recorded then, as in fence.h, so it covers the blocks of its list with that stamp or an
 * older one. Nothing is recorded as long as all requests are served: an allocation that has to grow
 * sets pool->streams.wanted, and the next free on each stream records one mark. A free also records
 * when much was freed since the last mark, so that the last rung below finds an event.
 *
 * When the driver refuses memory a stream may have the block that another stream freed, once the
 * driver has been told to let it wait on the device for that block's mark: natively the internal
 * dependencies of the default pool. A free never waits, and nobody waits for a mark on the host.
 *
 * Freed blocks under zero_fill and junk_fill are filled on the stream that takes them, or, when
 * they are harvested, as in fill.h.
 *
 * Locking: one leaf lock a stream, never held across a call of the device; bins.h's and meta.h's
 * locks are never taken under it. Errors: the driver's codes; a host without memory makes blocks
 * good later, never earlier.
 */
#pragma once

#include "pool.h"

enum { ZONE_STREAM_MARKS = 8, ZONE_STREAM_CLASSES = 16 };

/* An event recorded on the stream: blocks of its list stamped at most epoch are behind it. */
struct zone_stream_mark {
    uint64_t epoch;
    void *event;    /* stays for the next mark in this place */
    uint32_t users; /* threads that ask about it, or make a stream wait for it, just now */
};

/* The freed blocks of one size class; those freed first in front. */
struct zone_stream_class {
    _Atomic size_t bytes; /* 0: an empty slot; set last, under the lock */
    struct zone_block *head;
    struct zone_block *tail;
    struct zone_bin *bin;       /* of the same class; const */
    _Atomic uint64_t hits;      /* written under the lock; requests served from here */
    _Atomic uint64_t requested; /* written under the lock; bytes that they asked for */
};

/* Only added to; replaced when half full. */
struct zone_stream_table {
    size_t mask;
    struct zone_stream_class slots[];
};

struct zone_stream {
    zone_lock_t lock;
    _Atomic uint64_t id;      /* the driver's, never used twice; 0: nobody's */
    struct zone_pool *pool;   /* const; whose blocks these are */
    struct zone_stream *next; /* const; in its bucket */
    void *ctx;                /* const while in use; the stream's own, where its events are made */
    bool foreign;   /* const while in use; another context's stream: only marks cover its work */
    bool gone;      /* lock; the stream is destroyed */
    bool recording; /* lock; a thread is between number and publishing */
    unsigned head;  /* lock; number of the oldest mark kept */
    unsigned tail;  /* lock; of the next one */
    struct zone_stream_table *_Atomic table; /* written under the lock */
    size_t classes;                          /* lock */
    size_t blocks;                           /* lock */
    size_t unmarked;                         /* lock; bytes in lists with a stamp above numbered */
    uint64_t numbered; /* lock; epoch of the newest mark, recorded or about to be */
    uint64_t newest;   /* lock; of the newest that was recorded */
    uint64_t ready;    /* lock; frees stamped at most this are done */
    struct zone_stream_mark marks[ZONE_STREAM_MARKS]; /* lock; mark i at i % ZONE_STREAM_MARKS */
};

/* The lists of a stream for blocks of a pool, made if need be; NULL when the host has no memory.
 * ctx is the stream's own context. Takes no lock if they are there. */
struct zone_stream *zone_stream_find(struct zone_pool *pool, uint64_t id, void *ctx);

/* The same if they are there; NULL if not. */
struct zone_stream *zone_stream_look(struct zone_pool *pool, uint64_t id);

/* Serves a request on the stream from what was freed on it; false if nothing is there. Calls
 * nothing of the device. */
bool zone_stream_serve(struct zone_stream *stream, size_t req_bytes, zone_addr_t *ret_addr);

/* The slow half: ready block, ask, grow, another stream's block, and what zone_pool_alloc does
 * before it reports out of memory. handle is the stream as the seam knows it. The calling thread's
 * context is the pool's. */
int zone_stream_alloc(struct zone_stream *stream, void *handle, size_t req_bytes,
                      zone_addr_t *ret_addr);

/* A live block that was allocated in another way becomes stream-ordered memory. */
void zone_stream_adopt(struct zone_pool *pool, zone_addr_t addr);

/* Frees a claimed block of the stream's pool in stream order. Never waits. */
int zone_stream_free(struct zone_stream *stream, void *handle, struct zone_block *block);

/* The stream is about to be destroyed: marks what was freed on it. Then gone, if it was. */
void zone_stream_leave(struct zone_stream *stream, void *handle);
void zone_stream_gone(struct zone_stream *stream);

/* Records a mark if there is room for one. Returns the driver's code. */
int zone_stream_mark(struct zone_stream *stream, void *handle);

/* Is all complete that the stream was given so far? Records a mark to ask about. */
bool zone_stream_is_idle(struct zone_stream *stream, void *handle);

/* Moves all blocks that are good for everybody into their bins. Asks the device about marks; never
 * waits. */
void zone_stream_harvest(struct zone_pool *pool);

/* For an allocation that found nothing ready: harvests its class and serves it if that brought a
 * block; if not, and blocks of this size are cut, harvests everything. */
bool zone_stream_help(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                      zone_addr_t *ret_addr);

/* An allocation found nothing: the frees to come record marks. */
static inline void zone_stream_want(struct zone_pool *pool)
{
    if (ZONE_UNLIKELY(atomic_load_explicit(&pool->streams.any, memory_order_relaxed))) {
        atomic_fetch_add_explicit(&pool->streams.misses, 1, memory_order_relaxed);
        atomic_store_explicit(&pool->streams.wanted, zone_fence_stamp(&pool->fence),
                              memory_order_relaxed);
    }
}

/* The driver has refused memory: hands out the smallest block that is large enough, of the stream
 * itself or, if that is allowed, of another one for whose mark the stream then waits. */
bool zone_stream_borrow(struct zone_stream *stream, void *handle, size_t bytes, size_t req_bytes,
                        zone_addr_t *ret_addr);

/* cuMemPoolTrimTo of the device's default pool: as long as the pool's part of it is more than keep
 * bytes, gives back what was freed in stream order, if the context is at rest. */
void zone_stream_trim(struct zone_pool *pool, size_t keep);

/* An empty table; NULL when the host has no memory. */
struct zone_stream_table *zone_stream_table_new(size_t slots);

/* A pool starts anew: every list is nobody's. The context died: nothing is in them any more. */
void zone_streams_init(struct zone_pool *pool);
void zone_streams_forget(struct zone_pool *pool);

/* Adds the hits of all lists to a snapshot, and what they saved. */
void zone_streams_count(struct zone_pool *pool, struct zone_counters *ret, uint64_t *ret_served,
                        uint64_t *ret_requested);

/* The largest class of which a list holds a block. */
size_t zone_streams_largest(struct zone_pool *pool);

/* Calls visit for all lists that belong to a stream. */
void zone_streams_each(struct zone_pool *pool, void (*visit)(struct zone_stream *stream, void *arg),
                       void *arg);

/* Fills a block, in the order of the stream, as the options say. Returns the driver's code. */
int zone_stream_fill(struct zone_stream *stream, void *handle, const struct zone_block *block);

/* What the files of this room share. The slot of a class: its own, or the empty one where it would
 * go. Lock held. */
static inline size_t zone_stream_slot_bytes(const struct zone_stream_class *slot)
{
    return atomic_load_explicit(&slot->bytes, memory_order_relaxed);
}

static inline struct zone_stream_class *zone_stream_slot(struct zone_stream_table *table,
                                                         size_t bytes)
{
    size_t i = (size_t)((uint64_t)(bytes / ZONE_BIN_STEP) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (;; i++) {
        struct zone_stream_class *slot = &table->slots[i & table->mask];
        size_t there = zone_stream_slot_bytes(slot);
        if (there == bytes || there == 0) {
            return slot;
        }
    }
}

static inline struct zone_stream_table *zone_stream_table(const struct zone_stream *stream)
{
    return atomic_load_explicit(&stream->table, memory_order_relaxed);
}

static inline struct zone_stream_class *zone_stream_class(const struct zone_stream *stream,
                                                          size_t bytes)
{
    return zone_stream_slot(zone_stream_table(stream), bytes);
}

/* Takes the block in front out; NULL if there is none. Lock held. */
static inline struct zone_block *zone_stream_pop(struct zone_stream *stream,
                                                 struct zone_stream_class *slot)
{
    struct zone_block *block;
    do {
        block = slot->head;
        if (!block) {
            return NULL;
        }
        slot->head = block->next;
        stream->blocks--;
        stream->unmarked -= block->stamp > stream->numbered ? block->bytes : 0;
        /* Not FREED: the driver has given its memory to somebody else, see zone_ptrmap_set. */
    } while (ZONE_UNLIKELY(atomic_load_explicit(&block->state, memory_order_relaxed) !=
                           ZONE_BLOCK_FREED));
    return block;
}

/* The program gets a block that was in a list. */
static inline void zone_stream_hand_out(struct zone_pool *pool, struct zone_block *block,
                                        size_t req_bytes)
{
    zone_pool_hand_out(pool, block, req_bytes);
    block->in_stream = true;
    zone_level_add(&pool->streams.used, req_bytes);
}
