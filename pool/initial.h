/* SPDX-License-Identifier: Apache-2.0
 *
 * initial_pool_size_mb: one segment that a device's first pool takes from the driver ahead of all
 * that the program asks for, and that blocks from 1 MiB up are cut from. A device has one at a
 * time: when its context ends, the next context that allocates gets it anew. If it is refused, the
 * program is told once and runs without. It goes back to the driver only where memory is short
 * (max_cached_mb, min_free_mb, or before out of memory) and nothing of it is in use.
 */
#pragma once

#include "pool.h"

/* The bytes that the caller is to ask the driver for and add to a pool of the device; 0: none, or
 * another thread has them. */
size_t zone_initial_claim(const struct zone_options *options, int device);

/* The claim came to nothing: another may try. */
void zone_initial_unclaim(int device);

/* The driver or a limit refused it: says so, and no other tries. */
void zone_initial_refused(const struct zone_process *process, int device);

/* Gives the pool what was claimed and allocated, already counted. False when the host has no
 * memory; the allocation then stays the driver's. */
bool zone_pool_add_initial(struct zone_pool *pool, zone_addr_t addr, size_t bytes);

/* The pool's context died. */
void zone_initial_forget(struct zone_pool *pool);

/* Inside an allocation by a pool that was not made by one: claims, asks and adds. */
void zone_pool_start(struct zone_pool *pool);
