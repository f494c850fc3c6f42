/* SPDX-License-Identifier: Apache-2.0
 *
 * Freed blocks by size class. A bin is a queue: blocks enter at the tail when they are freed and
 * leave from the head, so that the head is the block whose epoch is ready first. Classes are
 * multiples of 512 bytes (the driver's step, facts.md): below 1 MiB found by index, above in a
 * table that only grows. Each bin has its own lock, held for a few instructions. Never calls the
 * driver.
 */
#pragma once

#include "block.h"
#include "lock.h"

#include <pthread.h>

#define ZONE_BIN_STEP  ((size_t)512)
#define ZONE_BIN_LARGE ZONE_MIB /* from here on every free records an event */

enum { ZONE_BIN_SMALL_COUNT = 1 << 11 };

struct zone_bin {
    zone_lock_t lock;
    struct zone_block *head;    /* lock; freed first */
    struct zone_block *tail;    /* lock */
    size_t bytes;               /* const; of every block in it */
    _Atomic uint64_t hits;      /* written under lock; requests served from it */
    _Atomic uint64_t misses;    /* written under lock; requests for which the driver allocated */
    _Atomic uint64_t miss_ns;   /* written under lock; what those took in the driver */
    _Atomic uint64_t requested; /* written under lock; bytes that both asked for */
    struct zone_bin *older;     /* const once listed; the list of all bins in use */
    _Atomic bool listed;
};

struct zone_bin_table {
    size_t mask;
    struct zone_bin *_Atomic slots[];
};

struct zone_bins {
    struct zone_bin small[ZONE_BIN_SMALL_COUNT];
    struct zone_bin_table *_Atomic large; /* replaced when it grows; old ones stay readable */
    size_t large_count;                   /* lock */
    struct zone_bin *_Atomic newest;      /* list of the bins that ever held or served a block */
    pthread_mutex_t lock;
};

void zone_bins_init(struct zone_bins *bins);

/* The bin of a class, a positive multiple of 512 bytes; NULL if there is none yet. Takes no lock.
 */
struct zone_bin *zone_bins_find(struct zone_bins *bins, size_t bytes);

/* The bin of a class, made if need be; NULL when the host has no memory. */
__attribute__((nonnull)) struct zone_bin *zone_bins_make(struct zone_bins *bins, size_t bytes);

/* Puts a block, already stamped, at the tail. */
void zone_bin_push(struct zone_bin *bin, struct zone_block *block);

/* Puts a ready block at the head. */
void zone_bin_push_ready(struct zone_bin *bin, struct zone_block *block);

/* Takes the head if its stamp is at most ready. Else returns NULL and sets *ret_stamp to the head's
 * stamp, or to 0 when the bin is empty. zone_bin_serve also counts a request of req_bytes. */
struct zone_block *zone_bin_take(struct zone_bin *bin, uint64_t ready, uint64_t *ret_stamp);
struct zone_block *zone_bin_serve(struct zone_bin *bin, uint64_t ready, size_t req_bytes,
                                  uint64_t *ret_stamp);

/* The same for the first ready block that is cut from a segment, wherever it stands. */
struct zone_block *zone_bin_take_cut(struct zone_bin *bin, uint64_t ready);

/* Adds the age of each block at the head whose stamp is at most until, which is before ages->now.
 */
void zone_bin_ages(struct zone_bin *bin, uint64_t until, struct zone_ages *ages);

/* Counts a request of req_bytes that was cut from a segment. */
void zone_bin_hit(struct zone_bin *bin, size_t req_bytes);

/* Counts a request of req_bytes that the driver served in ns nanoseconds. */
void zone_bin_missed(struct zone_bin *bin, size_t req_bytes, uint64_t ns);
