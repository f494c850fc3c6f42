/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot of the counters of one device, or of several summed up: plain numbers, no atomics. The
 * pool counts in its own way and fills a snapshot on request; report.c prints it. The struct
 * expands from counters.def. No locking, never calls the driver.
 */
#pragma once

#include "base.h"

/* Raised whenever a row changes its meaning or place; new rows are appended and change only the
 * size. */
#define ZONE_COUNTERS_VERSION 1

struct zone_gauge {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated; /* total that was ever added */
    uint64_t freed;     /* total that was ever taken away: allocated - freed = current */
};

#define ZONE_COUNTER_STORE_GAUGE struct zone_gauge
#define ZONE_COUNTER_STORE_LEVEL struct zone_gauge /* only current is used */
#define ZONE_COUNTER_STORE_SUM   uint64_t
#define ZONE_COUNTER_STORE_LAST  uint64_t

struct zone_counters {
    uint32_t size; /* of the struct, so that a reader of another version can skip */
    uint32_t version;
#define ZONE_COUNTER(name, kind, ...) ZONE_COUNTER_STORE_##kind name;
#include "counters.def"
};

enum zone_counter_kind {
    ZONE_COUNTER_GAUGE,
    ZONE_COUNTER_LEVEL,
    ZONE_COUNTER_SUM,
    ZONE_COUNTER_LAST
};
enum zone_counter_unit {
    ZONE_COUNTER_BYTES,
    ZONE_COUNTER_COUNT,
    ZONE_COUNTER_NS,
    ZONE_COUNTER_CODE
};

/* A row of the table, for whoever lists counters. */
struct zone_counter_info {
    const char *name;
    enum zone_counter_kind kind;
    enum zone_counter_unit unit;
    const char *doc;
    size_t offset; /* of the field in struct zone_counters */
};

/* All zero, with size and version. */
void zone_counters_init(struct zone_counters *counters);

/* Adds `other` up in `sum`. The peak of a sum is the sum of the peaks: an upper bound. */
void zone_counters_add(struct zone_counters *sum, const struct zone_counters *other);

/* Raises the peaks to those of `other`, where that one's are higher. */
void zone_counters_raise_peaks(struct zone_counters *counters, const struct zone_counters *other);

/* The same sums, and no peaks. */
void zone_counters_clear_peaks(struct zone_counters *counters);

/*
 * Whether the counters add up, as they must when no call is under way: NULL, or the text of the
 * first equation that does not hold.
 */
const char *zone_counters_check(const struct zone_counters *counters);

/* The table: row `index`, NULL after the last one; and its equations as text. */
const struct zone_counter_info *zone_counters_info(unsigned index);
const char *zone_counters_balance(unsigned index);
