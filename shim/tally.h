/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts that belong to no pool: calls that went past it, retries, oddities. Named as in
 * counters.def, which explains them. Atomic, no lock.
 */
#pragma once

#include "base.h"

#include <stdatomic.h>

#define ZONE_TALLIES(X)                                                                            \
    X(ooms)                                                                                        \
    X(exit_waits)                                                                                  \
    X(retries)                                                                                     \
    X(retries_rescued)                                                                             \
    X(double_frees)                                                                                \
    X(bypass_pitch)                                                                                \
    X(bypass_managed)                                                                              \
    X(bypass_async)                                                                                \
    X(bypass_host)                                                                                 \
    X(bypass_array)                                                                                \
    X(bypass_vmm)                                                                                  \
    X(bypass_capture)                                                                              \
    X(bypass_foreign_free)                                                                         \
    X(bypass_no_context)

struct zone_tally {
#define X(name) _Atomic uint64_t name;
    ZONE_TALLIES(X)
#undef X
};

extern struct zone_tally zone_tally;

#define ZONE_TALLY(name) atomic_fetch_add_explicit(&zone_tally.name, 1, memory_order_relaxed)
