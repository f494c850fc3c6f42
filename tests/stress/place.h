/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts, their streams and kernels, and the lock that threads hold while they work in them.
 * Place 0 is the primary context, place 1 one that was created. A third one is never ended: it
 * holds the pinned words in which kernels answer.
 */
#pragma once

#include "stress.h"

/* cuInit, the home of the words, both places. False if there is no GPU. */
bool places_start(void);
/* Ends a place: its streams, events and memory are gone, work may be under way. how is random.
 * The world is stopped, or the program is about to exit. */
void place_end(struct place *place, uint32_t how);
void place_begin(struct place *place);

/* Held by a thread for one step; for operations that need to be alone; to end one's turn. */
void world_enter(void);
void world_stop(void);
void world_leave(void);

/* Makes it current for this thread. NULL: no context. */
void place_use(const struct place *place);
struct place *place_any(struct rng *rng);

/* Pinned words, zeroed, reachable from every context and never freed. */
uint32_t *words_new(size_t count);
static inline CUdeviceptr words_ptr(const uint32_t *words)
{
    return (CUdeviceptr)(uintptr_t)words;
}

/* A stream of any kind, for work that is submitted by this thread with the place current. */
struct lane lane_any(const struct place *place, struct rng *rng);
void lane_done(struct lane lane);

/* tests/victims/kernels.ptx */
extern const char victim_ptx[];

/* Launches in the current place. */
void submit_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                 uint32_t value);
void submit_add(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                uint32_t value);
void submit_copy(const struct place *place, CUstream stream, CUdeviceptr dst, CUdeviceptr src,
                 size_t bytes);
void submit_check(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                  uint32_t value, uint32_t *bad);
void submit_spin(const struct place *place, CUstream stream, uint64_t us);
void submit_fault(const struct place *place, CUstream stream);
void submit_signal(const struct place *place, CUstream stream, uint32_t *flag);
void submit_waitflag(const struct place *place, CUstream stream, uint32_t *flag, uint32_t *how,
                     uint64_t limit_us);
