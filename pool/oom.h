/* SPDX-License-Identifier: Apache-2.0
 *
 * Why an allocation failed, for people: the facts of one failure, the verdict drawn from them, and
 * its words. The pool gathers the facts (refuse.c), the shim adds the neighbours and says it. Made
 * for the worst moment: no malloc, no stdio stream, no lock, no locale; never calls the driver. All
 * sizes are bytes.
 */
#pragma once

#include "base.h"

#include <stdatomic.h>

/* A line of the explanation, at most; each is written with `zone[PID] ` before it. */
#define ZONE_OOM_LINE 300

/* One failure. total = free + allocated + pending + cached + others + what zone_oom_rest() gives.
 */
struct zone_oom {
    int device;
    size_t requested; /* by the program */
    size_t bytes;     /* needed for it: its size class */
    size_t total;     /* of the device */
    size_t free;      /* says the driver */
    /* What the pools of this process hold there, in all contexts. */
    size_t allocated;
    size_t pending;      /* freed, and running work may still use it */
    size_t cached;       /* freed and ready */
    size_t reclaimable;  /* of pending and cached: what could go back once the work is done */
    size_t shared;       /* of cached: was exported, so it is used no more */
    size_t largest;      /* piece of cached or pending memory that one request could have */
    bool cuts_large;     /* blocks from 1 MiB up are cut from segments */
    const char *refuser; /* the option whose limit refused; NULL: the driver did */
    size_t limit;        /* that it sets, and how much of it was used */
    size_t limit_used;
    /* Other processes on the device; not known without NVML. */
    bool others_known;
    unsigned others;
    size_t others_bytes;
    uint64_t explained; /* how many failures have been explained, this one included */
};

/* From what nothing would help over what would do if it were free or in one piece. */
enum zone_oom_verdict {
    ZONE_OOM_LIMIT,
    ZONE_OOM_TOO_LARGE,
    ZONE_OOM_REFUSED,
    ZONE_OOM_PENDING,
    ZONE_OOM_SHARED,
    ZONE_OOM_FRAGMENTATION,
    ZONE_OOM_NEIGHBOURS,
    ZONE_OOM_ELSEWHERE,
    ZONE_OOM_SHORTAGE,
};

/* The first verdict that fits the facts. */
enum zone_oom_verdict zone_oom_verdict(const struct zone_oom *oom);

/* Bytes of the device that nobody above holds: contexts, code, memory past the pool, and other
 * processes if they are not known. */
size_t zone_oom_rest(const struct zone_oom *oom);

/* The verdict in a word, why in a sentence, and what to try. Constant text. */
const char *zone_oom_word(const struct zone_oom *oom);
const char *zone_oom_why(const struct zone_oom *oom);
const char *zone_oom_try(const struct zone_oom *oom);

/* The two lines, cut to size and without a newline: the numbers, and what they mean. */
void zone_oom_numbers(const struct zone_oom *oom, char *ret_text, size_t size);
void zone_oom_meaning(const struct zone_oom *oom, char *ret_text, size_t size);

/* When a failure is explained: the first at once, later ones after a pause that doubles with each,
 * from one second on. A program that looks for the limit by trying is neither flooded nor slowed
 * down, and one that fails after a long time is explained. */
struct zone_oom_gate {
    _Atomic uint64_t next_ns;
    _Atomic unsigned passed;
};

/* True for the one thread that may explain now. */
bool zone_oom_due(struct zone_oom_gate *gate, uint64_t now_ns);
