/* SPDX-License-Identifier: Apache-2.0
 *
 * Free runs of segments by size, for best fit: one list for each size in units, and a bitmap of the
 * lists that hold something, so that finding, adding and removing take the same few steps however
 * many runs there are. Runs that are larger than the last list's size share one list, which is
 * searched. No locking of its own (the arena's); never calls the driver.
 */
#pragma once

#include "block.h"

enum { ZONE_RUNS_EXACT = 1 << 12 };

struct zone_runs {
    unsigned shift; /* const; a unit is 1 << shift bytes, and divides every run's size */
    size_t bytes;   /* in all runs */
    uint64_t groups;
    uint64_t lists[ZONE_RUNS_EXACT / 64];
    struct zone_block *heads[ZONE_RUNS_EXACT + 1]; /* the last: all larger ones */
};

void zone_runs_init(struct zone_runs *runs, unsigned shift);

void zone_runs_add(struct zone_runs *runs, struct zone_block *run);
void zone_runs_remove(struct zone_runs *runs, struct zone_block *run);

/* A smallest run of at least so many bytes, or NULL; it stays where it is. */
struct zone_block *zone_runs_fit(const struct zone_runs *runs, size_t bytes);

/* Bytes of the largest run, 0 if there is none. */
size_t zone_runs_largest(const struct zone_runs *runs);
