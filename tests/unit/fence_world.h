/* SPDX-License-Identifier: Apache-2.0
 *
 * What fence_interleave.c plays with: blocks, work, events and the two threads, and a number for
 * the state of it all, so that a state is not played on twice. Only one test runs in the process.
 */
#pragma once

#include "fence.h"
#include "interleave.h"

enum { BLOCKS = 6, WORK = 16, EVENTS = 16 };

enum block_state { BLOCK_NONE, BLOCK_HELD, BLOCK_FREED };

/* A block, and what ran on it. */
struct block {
    enum block_state state;
    uint64_t stamp;
};

struct work {
    int block;
    bool complete;
};

enum event_state { EVENT_NEW, EVENT_RECORDED, EVENT_FAILED, EVENT_DEAD };

struct event {
    enum event_state state;
    unsigned covers; /* work with a smaller number */
    /* Recorded since the thread last let go of the lock, under which it chooses its event. */
    bool changed[INTERLEAVE_THREADS];
};

/* What a thread holds and may be asked about. */
struct actor {
    int held;           /* its block, -1: none */
    unsigned may_await; /* its free may wait for work below this number */
};

struct fence_world {
    struct block blocks[BLOCKS];
    struct work work[WORK];
    struct event events[EVENTS];
    struct actor actors[INTERLEAVE_THREADS];
    unsigned works, made;
    int queue[BLOCKS]; /* the bin: freed blocks in order */
    unsigned queued;
    unsigned generation;
};

extern struct fence_world w;
extern struct zone_fence fence;

/* The same for states from which everything goes on alike: numbers and times matter only as far as
 * they are compared. */
uint64_t fence_world_hash(void);
