/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of libzone.h, found as a program finds them.
 */
#pragma once

#include "victim.h"

#include "libzone.h"

#define ZONE_API(X)                                                                                \
    X(version)                                                                                     \
    X(memory_allocated)                                                                            \
    X(max_memory_allocated)                                                                        \
    X(memory_reserved)                                                                             \
    X(reset_peak_memory_stats)                                                                     \
    X(empty_cache)                                                                                 \
    X(set_allocator_settings)                                                                      \
    X(report)

struct zone_api {
#define X(name) __typeof__(zone_##name) *name;
    ZONE_API(X)
#undef X
};

/* Under libzone all of them are there; without it none is: false. */
bool zone_api_load(struct zone_api *ret_api);

/* The size that a call gives for a device; it has to return code, and 0 with another than 0. */
size_t zone_api_bytes(int (*call)(int device, size_t *ret_bytes), int device, int code);

/* Each call about a device, and the others, return this code, and sizes are 0. */
void zone_api_all(const struct zone_api *api, int device, int code);
