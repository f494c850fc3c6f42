/* SPDX-License-Identifier: Apache-2.0
 *
 * backend:cudaMallocAsync: the pool's memory comes from the driver's default stream-ordered pool
 * and goes back there as soon as it is ready, so that nothing but pending blocks stays with
 * libzone, and the program's own cudaMallocAsync shares what is free. The fence is the pool's as
 * ever: what goes back has no work left, so the driver may hand it to anybody at once.
 *
 * Each context has one private stream for these calls. It never waits for anything of the program:
 * frees are of ready memory, and internal dependencies, by which the driver's pool would make an
 * allocation wait for another stream's work, are turned off for the default pool. An allocation
 * waits for its own stream, which is idle, because natively memory is good for every stream at
 * once.
 *
 * Locking: one leaf mutex for the table of streams, never held across a driver call.
 */
#pragma once

#include "options.h"
#include "pool.h"

/* The device seam with this backend: the driver's, but for where memory comes from. Where the
 * driver or the device has no pools it is cuMemAlloc, and one line says so. */
const struct zone_gpu *zone_async_gpu(void);

/* What the driver's pools may keep from now on: max_cached_mb. Calls the driver. */
void zone_async_bound(const struct zone_options *options);

/* Before the context of a hidden pool is destroyed: its memory would outlive it in the driver's
 * pool, so it is freed now, after the context's work. Does nothing with another backend. */
void zone_async_leave(struct zone_pool *pool);
