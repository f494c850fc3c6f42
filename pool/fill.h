/* SPDX-License-Identifier: Apache-2.0
 *
 * zero_fill and junk_fill: what a block holds when the program gets it. With either a freed block
 * does not go into its bin but waits here until it is ready (fence.h), is filled by an asynchronous
 * memset on a stream of libzone's own, and goes into its bin once that memset is known to be
 * complete. So bins, and the free runs that come out of them, hold filled memory only, and neither
 * path of an allocation knows of fills.
 *
 * A context event covers the fills that were started before it, so a free that waits may wait for
 * one. That cannot tie it to later work: a fill is started when its block is ready and waits for no
 * event, and such a memset was never kept from the device by a kernel launched later that fills it
 * (GPU check driver_facts, fill_priority; behind an event it was, whatever its priority).
 *
 * Nobody else waits for a fill but the last rung before out of memory and whoever gives memory
 * back, both by polling: a kernel that occupies the whole device and waits for later work must not
 * be waited for. The one exception is new memory under junk_fill (zone_fill_fresh). While a stream
 * captures nothing is filled.
 *
 * What a fresh driver allocation of ZONE_FILL_SCRUBBED and more holds is zero already (facts.md),
 * so under zero_fill the pool asks the driver for nothing smaller.
 *
 * Locking: one leaf lock for the queue, never held across a call of the device; `busy` gives the
 * stream and the batches to one thread at a time, the others go on. Errors: the driver's codes,
 * kept by zone_pool_note.
 */
#pragma once

#include "block.h"
#include "lock.h"
#include "options.h"

enum {
    ZONE_FILL_BATCHES = 64,
    ZONE_FILL_JUNK = 0xFF, /* NaN in every format of floating point, -1 as a signed number */
};

#define ZONE_FILL_SCRUBBED (2 * ZONE_MIB)

/* Blocks whose memsets lie before one event. */
struct zone_fill_batch {
    void *event; /* kept for the next batch in this place */
    struct zone_block *blocks;
};

struct zone_fill {
    bool on;            /* const */
    bool fresh;         /* const; new memory of the driver is filled too */
    unsigned char with; /* const */
    _Atomic bool busy;
    void *stream;      /* busy; NULL: not made yet */
    void *fresh_event; /* busy */
    zone_lock_t lock;
    struct zone_block *head; /* lock; freed, not filled, those freed first in front */
    struct zone_block *tail; /* lock */
    unsigned first;          /* busy; number of the oldest batch */
    _Atomic unsigned count;  /* written by busy; batches under way */
    struct zone_fill_batch batches[ZONE_FILL_BATCHES];
    _Atomic uint64_t fills;
    _Atomic uint64_t bytes;
};

struct zone_pool;

/* Starts anew for a context, as the options say; zero_fill goes before junk_fill. The stream and
 * the events of an earlier context died with it. */
void zone_fill_init(struct zone_fill *fill, const struct zone_options *options);

/* For a new pool: makes the stream, while there is memory for one. Else the first fill does. */
void zone_fill_begin(struct zone_pool *pool);

/* A freed block, already stamped, waits for its fill. */
void zone_fill_push(struct zone_pool *pool, struct zone_block *block);

/* Puts blocks whose fill is complete into their bins and starts those that are ready by now. Asks
 * the device about one event each way; never waits. False if nothing could be started for now. */
bool zone_fill_advance(struct zone_pool *pool);

/* Nothing that is ready is left without a fill, and none is under way. */
bool zone_fill_is_idle(struct zone_pool *pool);

/* Polls, for a short while, until that is so. */
void zone_fill_finish(struct zone_pool *pool);

/* Takes the oldest ready block that is a whole driver allocation out, unfilled; NULL if there is
 * none. */
struct zone_block *zone_fill_take_whole(struct zone_pool *pool);

/* Fills memory that the driver has just given and waits for it, if the options ask for that. */
void zone_fill_fresh(struct zone_pool *pool, zone_addr_t addr, size_t bytes);
