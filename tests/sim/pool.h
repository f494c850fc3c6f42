/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of stream-ordered memory, as pool.c serves them and pool_query.c answers for them.
 */
#pragma once

#include "sim.h"

struct spare;

struct sim_pool {
    struct sim_device *device;
    int reuse[3];
    uint64_t threshold;
    uint64_t used, used_high, reserved, reserved_high;
    bool destroyed;
    bool exportable, imported;
    int fd; /* of an imported one: the exporter's memory */
    struct spare *spares;
    unsigned access; /* bit per device besides its own */
};

struct sim_pool *sim_pool_new(struct sim_device *device);
/* A destroyed pool goes when it holds nothing any more. */
void sim_pool_end(struct sim_pool *pool);
struct sim_pool *sim_default_pool(struct sim_device *device);
struct sim_pool *sim_current_pool(struct sim_device *device);
/* Gives back ranges whose free has run, until the pool holds no more than keep bytes. */
void sim_pool_trim(struct sim_pool *pool, uint64_t keep);
