/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes reuse safe. cudaFree natively waits for all work of the context, so a freed block may be
 * handed out again only when all work submitted before its free is complete (facts.md, "What blocks
 * whom"; the rule was chosen there, last table).
 *
 * A context has a running epoch. A free that records takes the open epoch's number FIRST, then
 * records a context event, then publishes the two together as a mark. A free that does not record
 * carries the number that is open, which the next record closes. So the event of a mark was
 * recorded after every free that carries its number or an older one had begun, and once it is
 * complete, all of those blocks are ready. Number after record would be wrong: a free could then
 * carry a number whose event does not cover its work.
 *
 * Invariants: ready < open; a mark's epoch < open; a mark's event is neither re-recorded nor
 * dropped while a thread asks or waits for it (users > 0). Locking: one leaf lock, never held
 * across a call of the device. Errors: the driver's codes.
 */
#pragma once

#include "base.h"
#include "gpu.h"
#include "lock.h"

#include <stdatomic.h>

enum { ZONE_FENCE_MARKS = 1024 };

struct zone_mark {
    uint64_t epoch;
    void *event;
    size_t bytes;   /* freed bytes that count as pending until it completes */
    uint32_t users; /* threads that ask or wait for the event just now */
    bool settled;   /* known complete; bytes no longer count */
    bool waits;     /* natively the free that recorded it would have waited for it */
};

/* What a free that recorded knows about its mark. */
struct zone_ticket {
    uint64_t epoch;  /* the block's stamp; set even when the record failed */
    uint64_t before; /* marks with a smaller index were recorded before this free took its number */
    uint64_t index;  /* of its own mark */
    bool published;
};

struct zone_fence_counts {
    _Atomic uint64_t records;
    _Atomic uint64_t record_failures;
    _Atomic uint64_t queries;
};

struct zone_fence {
    _Atomic uint64_t open;  /* the number that the next record takes */
    _Atomic uint64_t ready; /* all blocks stamped at most this may be reused */
    _Atomic size_t pending; /* bytes of marks not settled; written under the lock */
    zone_lock_t lock;
    uint64_t head;                   /* lock; index of the oldest mark kept */
    uint64_t tail;                   /* lock; index of the next mark */
    unsigned recording;              /* lock; threads between taking a number and publishing */
    bool ask_newest;                 /* lock; the newest mark was complete when last asked */
    size_t carry;                    /* lock; bytes of failed records, counted with the next mark */
    unsigned spares;                 /* lock */
    struct zone_fence_counts counts; /* written under lock */
    void *spare[ZONE_FENCE_MARKS];   /* lock; events that nobody uses */
    struct zone_mark marks[ZONE_FENCE_MARKS]; /* lock; mark i at i % ZONE_FENCE_MARKS */
};

/* Starts anew for a context; events of an earlier one are forgotten, as they died with it. */
void zone_fence_init(struct zone_fence *fence);

/* True when no thread is between taking a number and publishing, asking, or waiting. */
bool zone_fence_is_quiet(struct zone_fence *fence);

/* The stamp for a free that does not record. Call it inside the free: work that the thread
 * submitted before is covered. Takes no lock. */
static inline uint64_t zone_fence_stamp(struct zone_fence *fence)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&fence->open, memory_order_seq_cst);
}

static inline uint64_t zone_fence_ready(const struct zone_fence *fence)
{
    return atomic_load_explicit(&fence->ready, memory_order_acquire);
}

static inline size_t zone_fence_pending(const struct zone_fence *fence)
{
    return atomic_load_explicit(&fence->pending, memory_order_relaxed);
}

/* Closes the open epoch: number, record, publish. bytes is what becomes ready with it; waits says
 * whether the native call waits for the context. Returns 0, the driver's code of a failed record,
 * or ZONE_GPU_REFUSED (capture, or too many marks); after a failure the epoch stays open and the
 * next record covers it. Where the driver cannot record, waits for the context instead, after which
 * the epoch is ready. */
int zone_fence_close(struct zone_fence *fence, const struct zone_gpu *gpu, void *ctx, size_t bytes,
                     bool waits, struct zone_ticket *ret);

/* Asks the device once whether blocks stamped so are ready; only published epochs are asked.
 * *ret_fault gets a driver code that means a lost context, else is left alone. Never waits. */
bool zone_fence_ask(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t stamp,
                    int *ret_fault);

/* Inside a free: waits for the oldest mark whose completion brings the pending bytes down to
 * target, among those recorded before this free began or by it, which is a subset of what the
 * native free waits for. Returns 0 or the driver's code; *ret_waited_ns is the time waited, 0 if
 * nothing had to be. */
int zone_fence_settle_to(struct zone_fence *fence, const struct zone_gpu *gpu,
                         const struct zone_ticket *ticket, size_t target, uint64_t *ret_waited_ns);

/* Inside a free: waits for the free's own mark. */
int zone_fence_wait_own(struct zone_fence *fence, const struct zone_gpu *gpu,
                        const struct zone_ticket *ticket, uint64_t *ret_waited_ns);

/* The epoch of the newest mark that natively would have been waited for, 0 if all such are ready.
 */
uint64_t zone_fence_newest_wait(struct zone_fence *fence);

/* Waits for the mark of this epoch, if it is kept. Returns 0 or the driver's code. Unlike a
 * question the wait is allowed while something captures, so that it takes no longer than the work
 * does. */
int zone_fence_wait_epoch(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t epoch);

/* Asks again and again whether an epoch is ready, sleeping in between, until the clock reaches
 * deadline_ns. An epoch that is not published is not waited for. */
bool zone_fence_poll(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t epoch,
                     uint64_t deadline_ns, int *ret_fault);
