/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of rounds; see plan.h.
 */
#include "plan.h"

#include "rng.h"

#include <stdlib.h>
#include <string.h>

enum { DRIVER = 13000, MIB = 1 << 20 };

/* Devices below 1 GiB have no segments, and are soon full. */
static const struct row {
    const char *conf;
    unsigned driver;
    unsigned memory_mb;
} rows[] = {
    {"", DRIVER, 256},
    {"", DRIVER, 96},
    {"free_order:event", DRIVER, 1024},
    {"max_cached_mb:8", DRIVER, 1024},
    {"", 12040, 128},
    {"min_free_mb:32", DRIVER, 512},
    {"", DRIVER, 1024},
    {"max_pending_mb:2", DRIVER, 128},
    {"max_pending_mb:100000", DRIVER, 4096},
    {"", DRIVER, 1024},
    {"max_split_size_mb:64,large_segment_size_mb:16", DRIVER, 2048},
    {"free_order:sync", DRIVER, 128},
    {"max_cached_mb:0,max_pending_mb:0", DRIVER, 128},
    {"roundup_power2_divisions:4", DRIVER, 1024},
    {"", 12020, 1024},
    /* Not short: on a busy machine work takes its time, and allocations would rightly fail. */
    {"oom_wait_ms:12000,min_free_mb:0", DRIVER, 96},
    {"", 11040, 256},
    {"backend:off", DRIVER, 256},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

struct plan plan_make(uint64_t seed, unsigned round)
{
    static const unsigned jitters[] = {0, 50, 0, 20, 400};
    static const unsigned loads[] = {40, 90, 70, 120};
    static const enum ending endings[] = {END_TIDY, END_TORN, END_TIDY, END_ABRUPT};
    struct rng rng = rng_at(seed, 0, round);
    /* Every row has its turn before one comes again. */
    const struct row *row = &rows[(seed + round) % ROWS];
    return (struct plan){
        .seed = rng_next(&rng),
        .round = round,
        .conf = row->conf,
        .driver = row->driver,
        .memory_mb = row->memory_mb,
        .jitter_us = jitters[rng_below(&rng, sizeof jitters / sizeof jitters[0])],
        .load = loads[rng_below(&rng, sizeof loads / sizeof loads[0])],
        .inject = rng_once_in(&rng, 4),
        .async = rng_once_in(&rng, 5),
        .captures = !rng_once_in(&rng, 4),
        .resets = !rng_once_in(&rng, 4),
        .forks = !rng_once_in(&rng, 3),
        .ending = endings[rng_below(&rng, sizeof endings / sizeof endings[0])],
    };
}

/* The number after "key:", or fallback. */
static size_t bytes_of(const char *conf, const char *key, size_t fallback)
{
    const char *at = strstr(conf, key);
    return at ? (size_t)strtoull(at + strlen(key), NULL, 10) * MIB : fallback;
}

struct conf conf_read(void)
{
    const char *conf = getenv("ZONE_ALLOC_CONF");
    const char *disable = getenv("ZONE_DISABLE");
    conf = conf ? conf : "";
    bool off = (disable && *disable && strcmp(disable, "0") != 0) || strstr(conf, "backend:off");
    bool unsafe = strstr(conf, "free_order:unsafe");
    return (struct conf){
        .waits = off || (!unsafe && !strstr(conf, "free_order:event")),
        .exact = !strstr(conf, "roundup_power2_divisions"),
        .fits = !strstr(conf, "roundup_power2_divisions") && !strstr(conf, "split"),
        .pools = !off,
        .unsafe = unsafe,
        .max_cached = bytes_of(conf, "max_cached_mb:", SIZE_MAX),
        .max_pending = bytes_of(conf, "max_pending_mb:", SIZE_MAX),
        .min_free = bytes_of(conf, "min_free_mb:", (size_t)256 * MIB),
    };
}
