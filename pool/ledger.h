/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program holds and what the pool holds, with the highest values that really occurred. One
 * lock for the few numbers that change together; readers take none and may see one number ahead of
 * another. Never calls the driver.
 */
#pragma once

#include "lock.h"

/* A number with its highest value; written under the ledger's lock. */
struct zone_level {
    _Atomic size_t now;
    _Atomic size_t peak;
};

struct zone_ledger {
    zone_lock_t lock;
    struct zone_level allocated; /* bytes the program holds, in classes */
    struct zone_level requested; /* the same as it asked for them */
    struct zone_level live;      /* allocations the program holds */
    struct zone_level reserved;  /* bytes held from the driver: allocated and cached */
    struct zone_level segments;  /* driver allocations held */
};

static inline size_t zone_level_now(const struct zone_level *level)
{
    return atomic_load_explicit(&level->now, memory_order_relaxed);
}

static inline void zone_level_add_locked(struct zone_level *level, size_t by)
{
    size_t now = zone_level_now(level) + by;
    atomic_store_explicit(&level->now, now, memory_order_relaxed);
    if (now > atomic_load_explicit(&level->peak, memory_order_relaxed)) {
        atomic_store_explicit(&level->peak, now, memory_order_relaxed);
    }
}

static inline void zone_level_sub_locked(struct zone_level *level, size_t by)
{
    atomic_store_explicit(&level->now, zone_level_now(level) - by, memory_order_relaxed);
}

/* The program got a block of a class for a request. */
static inline void zone_ledger_hand_out(struct zone_ledger *ledger, size_t bytes, size_t req_bytes)
{
    zone_lock(&ledger->lock);
    zone_level_add_locked(&ledger->allocated, bytes);
    zone_level_add_locked(&ledger->requested, req_bytes);
    zone_level_add_locked(&ledger->live, 1);
    zone_unlock(&ledger->lock);
}

/* The program gave one back. */
static inline void zone_ledger_take_back(struct zone_ledger *ledger, size_t bytes, size_t req_bytes)
{
    zone_lock(&ledger->lock);
    zone_level_sub_locked(&ledger->allocated, bytes);
    zone_level_sub_locked(&ledger->requested, req_bytes);
    zone_level_sub_locked(&ledger->live, 1);
    zone_unlock(&ledger->lock);
}

/* The driver allocated. */
static inline void zone_ledger_grow(struct zone_ledger *ledger, size_t bytes)
{
    zone_lock(&ledger->lock);
    zone_level_add_locked(&ledger->reserved, bytes);
    zone_level_add_locked(&ledger->segments, 1);
    zone_unlock(&ledger->lock);
}

/* The driver took back. */
static inline void zone_ledger_shrink(struct zone_ledger *ledger, size_t bytes)
{
    zone_lock(&ledger->lock);
    zone_level_sub_locked(&ledger->reserved, bytes);
    zone_level_sub_locked(&ledger->segments, 1);
    zone_unlock(&ledger->lock);
}

/* Bytes that the pool holds and the program does not. */
static inline size_t zone_ledger_cached(const struct zone_ledger *ledger)
{
    size_t reserved = zone_level_now(&ledger->reserved);
    size_t allocated = zone_level_now(&ledger->allocated);
    return reserved > allocated ? reserved - allocated : 0;
}

/* The context died: nothing is held any more. */
static inline void zone_ledger_clear(struct zone_ledger *ledger)
{
    struct zone_level *const levels[] = {&ledger->allocated, &ledger->requested, &ledger->live,
                                         &ledger->reserved, &ledger->segments};
    zone_lock(&ledger->lock);
    for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        atomic_store_explicit(&levels[i]->now, 0, memory_order_relaxed);
    }
    zone_unlock(&ledger->lock);
}
