/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test may ask the simulated libcuda.so.1 besides CUDA. Look the names up with
 * dlsym(RTLD_DEFAULT, …): on a real driver they do not exist.
 */
#pragma once

#include <stdint.h>

#define ZSIM_EXPORT __attribute__((visibility("default")))

/* Calls of an exported driver function (its exact name, with _v2 and _ptsz) so far. */
ZSIM_EXPORT uint64_t zsim_calls(const char *name);

/* Things of a kind that live: "allocations", "arrays", "contexts", "events", "graphs" (executable
 * ones too), "libraries" (with external memory), "modules", "physical", "pools", "streams". */
ZSIM_EXPORT uint64_t zsim_live(const char *kind);

/* Lets the in_calls-th call from now on of this name return code; 0: each of them. Returns 0, or -1
 * for an unknown name. A code that stands for a lost context (700, 702, 710, 719 …) leaves the
 * caller's context lost. */
ZSIM_EXPORT int zsim_fail(const char *name, uint64_t in_calls, int code);

/* Takes back the failures that no call has met yet. */
ZSIM_EXPORT void zsim_fail_none(void);

/* Threads that wait at this moment inside a free for running work. */
ZSIM_EXPORT unsigned zsim_frees_waiting(void);

/* 2 MiB chunks of a device that are taken, by whatever kind of memory. */
ZSIM_EXPORT uint64_t zsim_chunks(int device);
