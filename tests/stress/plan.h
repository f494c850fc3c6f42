/* SPDX-License-Identifier: Apache-2.0
 *
 * What a round is like: a process of its own with its own settings of libzone and of the simulated
 * GPU, all drawn from the seed. The parent sets the environment from it, the child reads the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ending {
    END_TIDY,   /* all memory freed, contexts alive: the report must say that nothing is held */
    END_TORN,   /* contexts destroyed with blocks live, cached and pending: nothing is taken */
    END_ABRUPT, /* exit while threads run */
};

struct plan {
    uint64_t seed;
    unsigned round;
    /* Environment; what the caller has set already is left alone. */
    const char *conf;
    unsigned driver;
    unsigned memory_mb;
    unsigned jitter_us;
    /* Program */
    unsigned load; /* percent of the device that the program would like to hold */
    bool inject;   /* driver calls fail */
    bool async;    /* stream-ordered memory too: fits is not checked, its pool keeps memory */
    bool captures;
    bool resets;
    bool forks;
    enum ending ending;
};

struct plan plan_make(uint64_t seed, unsigned round);

/* What ZONE_ALLOC_CONF says, as the program must know it to judge. */
struct conf {
    bool waits;         /* a free makes the host wait for what it natively waits for, where seen */
    bool exact;         /* size classes are the driver's steps */
    bool fits;          /* what is held keeps nothing else from being had */
    bool pools;         /* on, and not backend:off */
    bool unsafe;        /* free_order:unsafe */
    size_t max_cached;  /* bytes; SIZE_MAX: no limit */
    size_t max_pending; /* bytes; SIZE_MAX: automatic */
    size_t min_free;    /* bytes */
};

struct conf conf_read(void);
