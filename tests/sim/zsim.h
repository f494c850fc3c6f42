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

/* Lets the in_calls-th call from now on of this name return code; 0, or -1 for an unknown name. */
ZSIM_EXPORT int zsim_fail(const char *name, uint64_t in_calls, int code);

/* Threads that wait at this moment inside a free for running work. */
ZSIM_EXPORT unsigned zsim_frees_waiting(void);

/* 2 MiB chunks of a device that are taken, by whatever kind of memory. */
ZSIM_EXPORT uint64_t zsim_chunks(int device);
