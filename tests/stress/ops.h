/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread may do in one step.
 */
#pragma once

#include "block.h"

struct op {
    const char *name;
    unsigned weight;
    void (*run)(struct thread *thread);
    bool alone;                            /* with the world stopped */
    bool (*when)(const struct plan *plan); /* NULL: in every round */
};

extern const struct op ops_shared[];   /* ops.c; ends with a row without a name */
extern const struct op ops_alone[];    /* alone.c */
extern const struct op ops_handover[]; /* handover.c */
extern const struct op ops_bounds[];   /* bounds.c */

/* Draws an operation. */
void ops_start(void);
const struct op *ops_any(struct rng *rng);

/* The driver's in_calls-th call of that name from now on fails. */
void fail_call(const char *name, uint64_t in_calls);

/* Takes a block out of what the thread owns, or adds one. */
struct block *thread_take(struct thread *thread, unsigned index);
void thread_put(struct thread *thread, struct block *block);
/* A block of this thread; NULL if it has none. */
struct block *thread_any(struct thread *thread);

/* Calls visit for every block that any thread owns or that lies between two; the world is stopped.
 * A block for which it returns true leaves. */
void blocks_each(bool (*visit)(struct block *block, void *arg), void *arg);
