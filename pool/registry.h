/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pools exist: one per context. Pools are never freed, since another thread may still be
 * inside one; the pool of a dead context is used again for a later one.
 */
#pragma once

#include "pool.h"

/* What is known of a context when its pool is made. */
struct zone_context_facts {
    void *ctx;
    uint64_t id;
    int device;
    bool primary;
};

/* The pool of a context, or NULL. Takes no lock. */
struct zone_pool *zone_registry_find(const void *ctx);

/* The pool of a context, made if need be; asks the device how much memory is free. NULL when there
 * is no room or the device does not answer. */
struct zone_pool *zone_registry_make(struct zone_process *process,
                                     const struct zone_context_facts *facts);

/* The context is about to be destroyed: its pool is found no more, as the driver may give the same
 * handle to a new context before the destroying call returns. Then show, if the call failed, or
 * drop. */
void zone_registry_hide(struct zone_pool *pool);
void zone_registry_show(struct zone_pool *pool);

/* The context is gone, and all its memory with it: forgets its blocks without touching the device.
 * Its counts stay in the sums. */
void zone_registry_drop(struct zone_pool *pool);

/* Calls visit for the pool of every context that lives. */
void zone_registry_each(void (*visit)(struct zone_pool *pool, void *arg), void *arg);

/* Gives back what the pools of a device (-1: of all) hold ready, except one pool; waits for all of
 * them together until deadline_ns, or for oom_wait_ms. Returns the bytes given back. */
size_t zone_registry_rescue_until(int device, const struct zone_pool *except, uint64_t deadline_ns);
size_t zone_registry_rescue(int device, const struct zone_pool *except);

/* Cached bytes of a device that an allocation could have. */
size_t zone_registry_cached(int device);

/* The most that giving back all of it could free: the driver takes memory in steps of 2 MiB, so
 * that a block may free more than its own bytes. Of all devices if device is negative. */
size_t zone_registry_cached_at_most(int device);

/* False if a limit of the device forbids so much beside what the program holds, even with nothing
 * cached. */
bool zone_registry_may_fit(int device, size_t bytes);

/* What the program holds of a device, in blocks of all its contexts. */
size_t zone_registry_live(int device);

/* Sums of a device over all contexts that it ever had. */
void zone_registry_count(int device, struct zone_counters *ret);

/* The same for a call of the program, which may come while contexts are made and die: waits for
 * those that do. Memory of a context that is being destroyed just now is not counted. */
void zone_registry_look(int device, struct zone_counters *ret);

/* Peaks of a device start again from the values of now. No later peak is lost. */
void zone_registry_reset_peaks(int device);

/* Changes options that all pools share, see zone_options_take, for the pools that exist and those
 * to come. */
void zone_registry_adjust(struct zone_options *options, const struct zone_options *from,
                          uint64_t keys);
