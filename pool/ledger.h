/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program holds and what the pool holds, with the highest values that really occurred. No
 * lock: an allocation or free changes two words on one cache line, once each, so that threads that
 * share nothing else pay as little as can be. Readers may see one word ahead of the other. Never
 * calls the driver.
 */
#pragma once

#include "base.h"

#include <stdatomic.h>

/* A number that goes up and down, with its highest value. */
struct zone_level {
    _Atomic size_t now;
    _Atomic size_t peak;
};

/* Bytes in classes and their number change together and share a word: the number below, the
 * granules of 512 bytes above. */
#define ZONE_LEDGER_COUNT_BITS 28
#define ZONE_LEDGER_GRANULE    ((size_t)512)

struct zone_ledger {
    _Atomic uint64_t held;         /* allocations of the program: granules and number */
    _Atomic size_t allocated_peak; /* bytes, in classes */
    _Atomic size_t live_peak;
    _Atomic size_t allocated_before; /* the highest allocated_peak that was reset */
    struct zone_level requested;     /* bytes, as the program asked for them */
    struct zone_level reserved;      /* bytes held from the driver: allocated and cached */
    struct zone_level segments;      /* driver allocations held */
    _Atomic uint64_t grown_bytes;    /* by the driver, ever */
    _Atomic uint64_t grown_segments;
};

/* Values are changed and peaks looked at in one order for all threads, which costs nothing on
 * x86-64: an addition that a reset does not see sees the reset's peak, and raises it. */
static inline void zone_peak_raise(_Atomic size_t *peak, size_t now)
{
    size_t highest = atomic_load_explicit(peak, memory_order_seq_cst);
    while (ZONE_UNLIKELY(now > highest) &&
           !atomic_compare_exchange_weak_explicit(peak, &highest, now, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

static inline size_t zone_level_now(const struct zone_level *level)
{
    return atomic_load_explicit(&level->now, memory_order_relaxed);
}

static inline void zone_level_add(struct zone_level *level, size_t by)
{
    size_t now = atomic_fetch_add_explicit(&level->now, by, memory_order_seq_cst) + by;
    zone_peak_raise(&level->peak, now);
}

static inline void zone_level_sub(struct zone_level *level, size_t by)
{
    atomic_fetch_sub_explicit(&level->now, by, memory_order_relaxed);
}

static inline uint64_t zone_ledger_entry(size_t bytes)
{
    return (uint64_t)(bytes / ZONE_LEDGER_GRANULE) << ZONE_LEDGER_COUNT_BITS | 1;
}

static inline size_t zone_ledger_entry_bytes(uint64_t held)
{
    return (size_t)(held >> ZONE_LEDGER_COUNT_BITS) * ZONE_LEDGER_GRANULE;
}

static inline size_t zone_ledger_entry_count(uint64_t held)
{
    return (size_t)(held & ((UINT64_C(1) << ZONE_LEDGER_COUNT_BITS) - 1));
}

/* Bytes, in classes, and number of what the program holds. */
static inline size_t zone_ledger_allocated(const struct zone_ledger *ledger)
{
    return zone_ledger_entry_bytes(atomic_load_explicit(&ledger->held, memory_order_relaxed));
}

static inline size_t zone_ledger_live(const struct zone_ledger *ledger)
{
    return zone_ledger_entry_count(atomic_load_explicit(&ledger->held, memory_order_relaxed));
}

/* The program got a block of a class for a request. */
static inline void zone_ledger_hand_out(struct zone_ledger *ledger, size_t bytes, size_t req_bytes)
{
    uint64_t entry = zone_ledger_entry(bytes);
    uint64_t held = atomic_fetch_add_explicit(&ledger->held, entry, memory_order_seq_cst) + entry;
    zone_peak_raise(&ledger->allocated_peak, zone_ledger_entry_bytes(held));
    zone_peak_raise(&ledger->live_peak, zone_ledger_entry_count(held));
    zone_level_add(&ledger->requested, req_bytes);
}

/* The program gave one back. */
static inline void zone_ledger_take_back(struct zone_ledger *ledger, size_t bytes, size_t req_bytes)
{
    atomic_fetch_sub_explicit(&ledger->held, zone_ledger_entry(bytes), memory_order_relaxed);
    zone_level_sub(&ledger->requested, req_bytes);
}

/* The driver allocated. */
static inline void zone_ledger_grow(struct zone_ledger *ledger, size_t bytes)
{
    zone_level_add(&ledger->reserved, bytes);
    zone_level_add(&ledger->segments, 1);
    atomic_fetch_add_explicit(&ledger->grown_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&ledger->grown_segments, 1, memory_order_relaxed);
}

/* The driver took back. Returns the bytes by which that is less: none of what zone_ledger_clear has
 * returned already, for a thread that was at it when the context died. */
static inline size_t zone_ledger_shrink(struct zone_ledger *ledger, size_t bytes)
{
    size_t now = zone_level_now(&ledger->reserved);
    size_t less;
    do {
        less = bytes < now ? bytes : now;
    } while (!atomic_compare_exchange_weak_explicit(&ledger->reserved.now, &now, now - less,
                                                    memory_order_relaxed, memory_order_relaxed));
    zone_level_sub(&ledger->segments, 1);
    return less;
}

/* Bytes that the pool holds and the program does not. */
static inline size_t zone_ledger_cached(const struct zone_ledger *ledger)
{
    size_t reserved = zone_level_now(&ledger->reserved);
    size_t allocated = zone_ledger_allocated(ledger);
    return reserved > allocated ? reserved - allocated : 0;
}

/* The peak becomes the value of now. The value is looked at again once the peak is low: what was
 * added in between saw the old one. */
static inline void zone_level_reset_peak(struct zone_level *level)
{
    atomic_store(&level->peak, atomic_load(&level->now));
    zone_peak_raise(&level->peak, atomic_load(&level->now));
}

static inline void zone_ledger_reset_peaks(struct zone_ledger *ledger)
{
    uint64_t held = atomic_load(&ledger->held);
    size_t before = atomic_exchange(&ledger->allocated_peak, zone_ledger_entry_bytes(held));
    zone_peak_raise(&ledger->allocated_before, before);
    atomic_store(&ledger->live_peak, zone_ledger_entry_count(held));
    held = atomic_load(&ledger->held);
    zone_peak_raise(&ledger->allocated_peak, zone_ledger_entry_bytes(held));
    zone_peak_raise(&ledger->live_peak, zone_ledger_entry_count(held));
    zone_level_reset_peak(&ledger->requested);
    zone_level_reset_peak(&ledger->reserved);
    zone_level_reset_peak(&ledger->segments);
}

/* The most that the program has ever held, in classes: no reset changes it. */
static inline size_t zone_ledger_allocated_ever(const struct zone_ledger *ledger)
{
    size_t before = atomic_load_explicit(&ledger->allocated_before, memory_order_relaxed);
    size_t peak = atomic_load_explicit(&ledger->allocated_peak, memory_order_relaxed);
    return peak > before ? peak : before;
}

/* The context died: nothing is held any more. Returns the bytes that had been reserved. */
static inline size_t zone_ledger_clear(struct zone_ledger *ledger)
{
    atomic_store_explicit(&ledger->held, 0, memory_order_relaxed);
    atomic_store_explicit(&ledger->requested.now, 0, memory_order_relaxed);
    atomic_store_explicit(&ledger->segments.now, 0, memory_order_relaxed);
    return atomic_exchange_explicit(&ledger->reserved.now, 0, memory_order_relaxed);
}
