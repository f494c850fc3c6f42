/* SPDX-License-Identifier: Apache-2.0
 *
 * See runs.h. A list's bit lives in lists[], the bit of a word with any bit set in groups.
 */
#include "runs.h"

#include <string.h>

void zone_runs_init(struct zone_runs *runs, unsigned shift)
{
    memset(runs, 0, sizeof(*runs));
    runs->shift = shift;
}

static size_t runs_list(const struct zone_runs *runs, size_t bytes)
{
    size_t units = bytes >> runs->shift;
    return units < ZONE_RUNS_EXACT ? units : ZONE_RUNS_EXACT;
}

void zone_runs_add(struct zone_runs *runs, struct zone_block *run)
{
    size_t list = runs_list(runs, run->bytes);
    struct zone_block *head = runs->heads[list];
    run->back = NULL;
    run->next = head;
    if (head) {
        head->back = run;
    }
    runs->heads[list] = run;
    runs->bytes += run->bytes;
    if (list < ZONE_RUNS_EXACT) {
        runs->lists[list / 64] |= UINT64_C(1) << list % 64;
        runs->groups |= UINT64_C(1) << list / 64;
    }
}

void zone_runs_remove(struct zone_runs *runs, struct zone_block *run)
{
    size_t list = runs_list(runs, run->bytes);
    if (run->back) {
        run->back->next = run->next;
    } else {
        runs->heads[list] = run->next;
    }
    if (run->next) {
        run->next->back = run->back;
    }
    run->next = NULL;
    run->back = NULL;
    runs->bytes -= run->bytes;
    if (list < ZONE_RUNS_EXACT && !runs->heads[list]) {
        runs->lists[list / 64] &= ~(UINT64_C(1) << list % 64);
        if (runs->lists[list / 64] == 0) {
            runs->groups &= ~(UINT64_C(1) << list / 64);
        }
    }
}

/* The smallest of a list whose runs differ in size. */
static struct zone_block *runs_fit_largest(const struct zone_runs *runs, size_t bytes)
{
    struct zone_block *best = NULL;
    for (struct zone_block *run = runs->heads[ZONE_RUNS_EXACT]; run; run = run->next) {
        if (run->bytes >= bytes && (!best || run->bytes < best->bytes)) {
            best = run;
        }
    }
    return best;
}

struct zone_block *zone_runs_fit(const struct zone_runs *runs, size_t bytes)
{
    /* Upwards: a part of a unit needs a whole one. */
    size_t list = runs_list(runs, bytes + ((size_t)1 << runs->shift) - 1);
    if (list == ZONE_RUNS_EXACT) {
        return runs_fit_largest(runs, bytes);
    }
    uint64_t word = runs->lists[list / 64] >> list % 64;
    if (word) {
        return runs->heads[list + (size_t)__builtin_ctzll(word)];
    }
    size_t group = list / 64 + 1;
    uint64_t groups = group < 64 ? runs->groups >> group : 0;
    if (!groups) {
        return runs_fit_largest(runs, bytes);
    }
    group += (size_t)__builtin_ctzll(groups);
    return runs->heads[group * 64 + (size_t)__builtin_ctzll(runs->lists[group])];
}

size_t zone_runs_largest(const struct zone_runs *runs)
{
    size_t largest = 0;
    for (struct zone_block *run = runs->heads[ZONE_RUNS_EXACT]; run; run = run->next) {
        largest = run->bytes > largest ? run->bytes : largest;
    }
    if (largest == 0 && runs->groups) {
        size_t group = 63 - (size_t)__builtin_clzll(runs->groups);
        size_t list = group * 64 + 63 - (size_t)__builtin_clzll(runs->lists[group]);
        largest = list << runs->shift;
    }
    return largest;
}
