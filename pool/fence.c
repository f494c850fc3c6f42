/* SPDX-License-Identifier: Apache-2.0
 *
 * Epochs and context events: see fence.h for the rule and why the order of its three steps matters.
 * Every call of the device is made between two short holds of the lock; a mark in use by a thread
 * is kept by its users count.
 */
#include "fence.h"

#include <string.h>

void zone_fence_init(struct zone_fence *fence)
{
    memset(fence, 0, sizeof(*fence));
    atomic_store(&fence->open, 1);
    fence->ask_newest = true;
}

static struct zone_mark *fence_mark(struct zone_fence *fence, uint64_t index)
{
    return &fence->marks[index % ZONE_FENCE_MARKS];
}

bool zone_fence_is_quiet(struct zone_fence *fence)
{
    zone_lock(&fence->lock);
    bool quiet = fence->recording == 0;
    for (uint64_t i = fence->head; i < fence->tail; i++) {
        quiet = quiet && fence_mark(fence, i)->users == 0;
    }
    zone_unlock(&fence->lock);
    return quiet;
}

/* The event of this epoch is complete: so is every older one, published or not. */
static void fence_settle_locked(struct zone_fence *fence, uint64_t epoch)
{
    uint64_t ready = atomic_load_explicit(&fence->ready, memory_order_relaxed);
    if (epoch > ready) {
        ready = epoch;
        atomic_store_explicit(&fence->ready, ready, memory_order_release);
    }
    size_t pending = zone_fence_pending(fence);
    for (uint64_t i = fence->head; i < fence->tail; i++) {
        struct zone_mark *mark = fence_mark(fence, i);
        if (mark->epoch > ready) {
            break;
        }
        if (!mark->settled) {
            mark->settled = true;
            pending -= mark->bytes;
        }
    }
    atomic_store_explicit(&fence->pending, pending, memory_order_relaxed);
    while (fence->head < fence->tail) {
        struct zone_mark *mark = fence_mark(fence, fence->head);
        if (!mark->settled || mark->users > 0) {
            break;
        }
        fence->spare[fence->spares++] = mark->event;
        fence->head++;
    }
}

/* Drivers before 12.5: the native wait takes the place of the event. */
static int fence_close_by_waiting(struct zone_fence *fence, const struct zone_gpu *gpu, void *ctx,
                                  struct zone_ticket *ret)
{
    ret->epoch = atomic_fetch_add(&fence->open, 1);
    int rc = gpu->synchronize(ctx);
    zone_lock(&fence->lock);
    if (rc == ZONE_GPU_OK) {
        fence_settle_locked(fence, ret->epoch);
    } else {
        zone_tally_add(&fence->counts.record_failures, 1);
    }
    zone_unlock(&fence->lock);
    return rc;
}

int zone_fence_close(struct zone_fence *fence, const struct zone_gpu *gpu, void *ctx, size_t bytes,
                     bool waits, struct zone_ticket *ret)
{
    *ret = (struct zone_ticket){0};
    if (!gpu->record) {
        return fence_close_by_waiting(fence, gpu, ctx, ret);
    }
    zone_lock(&fence->lock);
    if (fence->tail - fence->head + fence->recording >= ZONE_FENCE_MARKS) {
        fence->carry += bytes;
        ret->epoch = zone_fence_stamp(fence);
        ret->before = fence->tail;
        zone_unlock(&fence->lock);
        return ZONE_GPU_REFUSED;
    }
    void *event = fence->spares > 0 ? fence->spare[--fence->spares] : NULL;
    fence->recording++;
    ret->before = fence->tail;
    ret->epoch = atomic_fetch_add(&fence->open, 1);
    zone_unlock(&fence->lock);

    int rc = event ? ZONE_GPU_OK : gpu->event_create(ctx, &event);
    if (rc == ZONE_GPU_OK) {
        rc = gpu->record(ctx, event);
    }

    zone_lock(&fence->lock);
    fence->recording--;
    if (rc == ZONE_GPU_OK) {
        ret->published = true;
        ret->index = fence->tail++;
        bytes += fence->carry;
        fence->carry = 0;
        zone_tally_add(&fence->counts.records, 1);
        *fence_mark(fence, ret->index) =
            (struct zone_mark){.epoch = ret->epoch, .event = event, .bytes = bytes, .waits = waits};
        atomic_store_explicit(&fence->pending, zone_fence_pending(fence) + bytes,
                              memory_order_relaxed);
    } else {
        fence->carry += bytes;
        zone_tally_add(&fence->counts.record_failures, 1);
        if (event) {
            fence->spare[fence->spares++] = event;
        }
    }
    zone_unlock(&fence->lock);
    return rc;
}

/* Calls the device about a mark with the lock released; settles it when it is complete. */
static int fence_call_locked(struct zone_fence *fence, int (*call)(void *event), uint64_t index)
{
    struct zone_mark *mark = fence_mark(fence, index);
    void *event = mark->event;
    uint64_t epoch = mark->epoch;
    mark->users++;
    zone_unlock(&fence->lock);
    int rc = call(event);
    zone_lock(&fence->lock);
    mark->users--;
    if (rc == ZONE_GPU_OK) {
        fence_settle_locked(fence, epoch);
    }
    return rc;
}

static int fence_query_locked(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t index)
{
    zone_tally_add(&fence->counts.queries, 1);
    return fence_call_locked(fence, gpu->query, index);
}

/* The oldest mark that covers the stamp; tail if none is published. */
static uint64_t fence_covering_locked(struct zone_fence *fence, uint64_t stamp)
{
    uint64_t index = fence->head;
    while (index < fence->tail && fence_mark(fence, index)->epoch < stamp) {
        index++;
    }
    return index;
}

bool zone_fence_ask(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t stamp,
                    int *ret_fault)
{
    zone_lock(&fence->lock);
    int rc = ZONE_GPU_NOT_READY;
    uint64_t needed = fence_covering_locked(fence, stamp);
    if (needed < fence->tail) {
        /* On an idle device the newest mark settles everything with one question; on a busy one
         * only the oldest have a chance. */
        uint64_t newest = fence->tail - 1;
        if (fence->ask_newest && newest != needed && fence_mark(fence, newest)->epoch >= stamp) {
            rc = fence_query_locked(fence, gpu, newest);
            fence->ask_newest = rc == ZONE_GPU_OK;
        }
        if (rc != ZONE_GPU_OK) {
            needed = fence_covering_locked(fence, stamp);
            if (zone_fence_ready(fence) < stamp && needed < fence->tail) {
                rc = fence_query_locked(fence, gpu, needed);
                if (rc == ZONE_GPU_OK && needed + 1 >= fence->tail) {
                    fence->ask_newest = true;
                }
            }
        }
    }
    bool ready = zone_fence_ready(fence) >= stamp;
    zone_unlock(&fence->lock);
    if (zone_gpu_is_fault(rc)) {
        *ret_fault = rc;
    }
    return ready;
}

/* Asks first: a wait that is not needed should not be counted as one. */
static int fence_wait_locked(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t index,
                             uint64_t *ret_waited_ns)
{
    struct zone_mark *mark = fence_mark(fence, index);
    mark->users++; /* keeps the mark in its place between the question and the wait */
    int rc = fence_query_locked(fence, gpu, index);
    if (rc == ZONE_GPU_NOT_READY || rc == ZONE_GPU_REFUSED) {
        uint64_t start = gpu->now_ns();
        rc = fence_call_locked(fence, gpu->wait, index);
        uint64_t waited = gpu->now_ns() - start;
        *ret_waited_ns = waited > 0 ? waited : 1;
    }
    mark->users--;
    fence_settle_locked(fence, zone_fence_ready(fence));
    return rc;
}

int zone_fence_settle_to(struct zone_fence *fence, const struct zone_gpu *gpu,
                         const struct zone_ticket *ticket, size_t target, uint64_t *ret_waited_ns)
{
    int rc = ZONE_GPU_OK;
    *ret_waited_ns = 0;
    zone_lock(&fence->lock);
    size_t left = zone_fence_pending(fence);
    uint64_t pick = fence->tail;
    for (uint64_t i = fence->head; i < fence->tail && left > target; i++) {
        const struct zone_mark *mark = fence_mark(fence, i);
        bool mine = ticket->published && i == ticket->index;
        if (!mark->settled && (i < ticket->before || mine)) {
            left -= mark->bytes;
            pick = i;
        }
    }
    if (pick < fence->tail) {
        rc = fence_wait_locked(fence, gpu, pick, ret_waited_ns);
    }
    zone_unlock(&fence->lock);
    return rc;
}

int zone_fence_wait_own(struct zone_fence *fence, const struct zone_gpu *gpu,
                        const struct zone_ticket *ticket, uint64_t *ret_waited_ns)
{
    int rc = ZONE_GPU_OK;
    *ret_waited_ns = 0;
    zone_lock(&fence->lock);
    if (ticket->published && ticket->epoch > zone_fence_ready(fence)) {
        rc = fence_wait_locked(fence, gpu, ticket->index, ret_waited_ns);
    }
    zone_unlock(&fence->lock);
    return rc;
}

uint64_t zone_fence_newest_wait(struct zone_fence *fence)
{
    uint64_t epoch = 0;
    zone_lock(&fence->lock);
    for (uint64_t i = fence->head; i < fence->tail; i++) {
        const struct zone_mark *mark = fence_mark(fence, i);
        if (mark->waits && !mark->settled && mark->epoch > epoch) {
            epoch = mark->epoch;
        }
    }
    zone_unlock(&fence->lock);
    return epoch;
}

int zone_fence_wait_epoch(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t epoch)
{
    int rc = ZONE_GPU_OK;
    uint64_t waited = 0;
    zone_lock(&fence->lock);
    uint64_t index = fence->head;
    while (index < fence->tail && fence_mark(fence, index)->epoch != epoch) {
        index++;
    }
    if (index < fence->tail && epoch > zone_fence_ready(fence)) {
        rc = fence_wait_locked(fence, gpu, index, &waited);
    }
    zone_unlock(&fence->lock);
    return rc;
}

bool zone_fence_poll(struct zone_fence *fence, const struct zone_gpu *gpu, uint64_t epoch,
                     uint64_t deadline_ns, int *ret_fault)
{
    enum { NAP_NS_MIN = 20000, NAP_NS_MAX = 1000000 };
    uint64_t nap = NAP_NS_MIN;
    while (!zone_fence_ask(fence, gpu, epoch, ret_fault)) {
        zone_lock(&fence->lock);
        bool published = fence_covering_locked(fence, epoch) < fence->tail;
        zone_unlock(&fence->lock);
        if (*ret_fault || !published || gpu->now_ns() >= deadline_ns) {
            return false;
        }
        gpu->sleep_ns(nap);
        nap = nap * 2 < NAP_NS_MAX ? nap * 2 : NAP_NS_MAX;
    }
    return true;
}
