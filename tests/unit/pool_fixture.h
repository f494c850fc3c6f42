/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool over the model of a GPU, and the calls of a program on it as the shim makes them: a malloc
 * may not wait, what it returns must be free of work, a free is claimed first. After each test the
 * counters must add up.
 */
#pragma once

#include "model_gpu.h"
#include "pool.h"
#include "ptrmap.h"
#include "registry.h"
#include "stream.h"
#include "unit_main.h"

#define MS UINT64_C(1000000)

extern struct zone_process pool_process;
extern struct zone_pool *pool; /* of MODEL_CTX */

/* A new device of 64 GiB with default options. */
void pool_setup(void);
void pool_teardown(void);

/* The same with another device and a ZONE_ALLOC_CONF text. */
void pool_reopen(size_t capacity, const char *conf);
void pool_reopen_without_events(size_t capacity, const char *conf);

/* The pool of a context, made if need be. */
struct zone_pool *pool_of(void *ctx, int device);

/* cudaMalloc: of the pool of MODEL_CTX, of another, and one that may fail. */
zone_addr_t take(size_t bytes);
zone_addr_t take_from(struct zone_pool *from, size_t bytes);
int try_take(size_t bytes, zone_addr_t *ret_addr);

/* cudaFree and cudaFreeAsync. */
void give(zone_addr_t addr);
int try_give(zone_addr_t addr);
void give_in_stream(zone_addr_t addr);

/* cudaMallocAsync and cudaFreeAsync of the pool of MODEL_CTX on a stream, and of another pool; the
 * end of a stream. */
zone_addr_t take_on(unsigned stream, size_t bytes);
int try_take_on(unsigned stream, size_t bytes, zone_addr_t *ret_addr);
void give_on(unsigned stream, zone_addr_t addr);
int try_give_on(unsigned stream, zone_addr_t addr);
struct zone_stream *stream_of(unsigned stream);
void end_stream(unsigned stream);

/* Work of the pool's context on a stream that uses addr. */
unsigned work_on(zone_addr_t addr, unsigned stream, uint64_t ns);

struct zone_block *block_at(zone_addr_t addr);

/* The pool's counters, which must add up. */
struct zone_counters counts(void);

/* All calls of the device so far. */
unsigned calls(void);
