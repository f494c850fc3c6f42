/* SPDX-License-Identifier: Apache-2.0
 *
 * What an allocation does when its class has no ready block, cheapest first:
 *   rung 1  ask the device once whether the oldest block of the class is ready by now
 *   rung 2  grow: the driver allocates a block of the class
 *   rung 3  the driver has no memory: poll until a block of the class is ready or the context is at
 * rest, at most oom_wait_ms rung 4  the context is at rest: give ready blocks of other classes
 * back, then ask the driver again rung 5  the driver's own error Only the last rungs wait: a
 * program that holds a lock which running work needs would otherwise hang in an allocation that
 * natively returns.
 */
#include "pool.h"

#include "initial.h"
#include "ptrmap.h"
#include "registry.h"
#include "stream.h"

enum { NAP_NS_MIN = 20000, NAP_NS_MAX = 1000000, CLEARING_NS = 1000000000 };

int zone_pool_driver_alloc(struct zone_pool *pool, size_t bytes, zone_addr_t *ret_addr,
                           uint64_t *ret_ns)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    if (!zone_limit_reserve(pool->device, bytes)) {
        return ZONE_GPU_OUT_OF_MEMORY;
    }
    uint64_t start = gpu->now_ns();
    int rc = gpu->alloc(ret_addr, bytes);
    *ret_ns = gpu->now_ns() - start;
    zone_count_add(&pool->counts.driver_allocs, 1);
    zone_count_add(&pool->counts.driver_alloc_ns, *ret_ns);
    if (rc == ZONE_GPU_OK) {
        zone_fill_fresh(pool, *ret_addr, bytes);
    } else {
        zone_limit_return(pool->device, bytes);
    }
    return rc;
}

bool zone_pool_adopt(struct zone_pool *pool, zone_addr_t addr, size_t bytes, size_t req_bytes,
                     uint64_t ns)
{
    struct zone_bin *bin = zone_bins_make(&pool->bins, bytes);
    const struct zone_block like = {
        .addr = addr,
        .bytes = bytes,
        .req_bytes = req_bytes,
        .pool = pool,
        .kind = ZONE_BLOCK_DEVICE,
        .state = ZONE_BLOCK_LIVE,
        .fresh = true, /* its buffer id is the driver's */
    };
    struct zone_block *block = bin ? zone_ptrmap_enter(&like) : NULL;
    if (!block) {
        zone_limit_return(pool->device, bytes);
        return false;
    }
    zone_ledger_grow(&pool->ledger, bytes);
    zone_pool_count_out(pool, block);
    zone_bin_missed(bin, req_bytes, ns);
    zone_pool_look(pool, bytes);
    return true;
}

/* Rung 2 for one whole block. */
static int ladder_grow_whole(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                             zone_addr_t *ret_addr)
{
    uint64_t ns;
    zone_addr_t addr;
    bytes = zone_pool_whole_size(pool->process->options, bytes);
    int rc = zone_pool_driver_alloc(pool, bytes, &addr, &ns);
    if (rc != ZONE_GPU_OK) {
        return rc;
    }
    *ret_addr = addr;
    zone_pool_adopt(pool, addr, bytes, req_bytes, ns);
    return ZONE_GPU_OK;
}

/* Rung 2. Where no segment fits any more the block itself may. */
static int ladder_grow(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                       zone_addr_t *ret_addr)
{
    uint64_t ns;
    size_t segment = zone_pool_segment_size(pool, bytes);
    if (segment > 0) {
        int rc = zone_pool_driver_alloc(pool, segment, ret_addr, &ns);
        if (rc == ZONE_GPU_OK) {
            if (zone_pool_add_segment(pool, ret_addr, segment, bytes, req_bytes, ns)) {
                zone_pool_look(pool, segment);
            } else {
                zone_pool_adopt(pool, *ret_addr, segment, req_bytes, ns);
            }
            return rc;
        }
        if (rc != ZONE_GPU_OUT_OF_MEMORY || segment == bytes) {
            return rc;
        }
    }
    return ladder_grow_whole(pool, bytes, req_bytes, ret_addr);
}

/* Ready block of the class, asking the device if the oldest is not known to be. */
static bool ladder_ask(struct zone_pool *pool, struct zone_bin *bin, uint64_t stamp,
                       size_t req_bytes, zone_addr_t *ret_addr, int *ret_fault)
{
    return stamp > 0 && zone_fence_ask(&pool->fence, pool->process->gpu, stamp, ret_fault) &&
           zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp);
}

/* Brings the context to rest as far as deadline_ns allows. A block of the class bytes (0: none)
 * that becomes ready meanwhile is taken: *ret_served. True when all work that had been submitted is
 * complete. */
static bool ladder_rest(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                        uint64_t deadline_ns, zone_addr_t *ret_addr, bool *ret_served,
                        int *ret_fault)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    struct zone_ticket ticket;
    uint64_t start = gpu->now_ns();
    uint64_t nap = NAP_NS_MIN;
    bool rest = false;
    /* Closes the open epoch, so that blocks whose free recorded nothing get their turn too. */
    int rc = zone_fence_close(&pool->fence, gpu, pool->ctx, 0, false, &ticket);
    if (zone_gpu_is_fault(rc)) {
        *ret_fault = rc;
    }
    for (*ret_served = false; !*ret_fault;) {
        uint64_t stamp = 0;
        zone_stream_harvest(pool);
        zone_fill_advance(pool);
        struct zone_bin *bin = bytes > 0 ? zone_bins_find(&pool->bins, bytes) : NULL;
        if (bin) {
            *ret_served = zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp) ||
                          ladder_ask(pool, bin, stamp, req_bytes, ret_addr, ret_fault);
        }
        if (bytes > 0 && !*ret_served) {
            *ret_served = zone_pool_carve(pool, bytes, req_bytes, ret_addr);
        }
        if (*ret_served) {
            break;
        }
        rest = zone_fence_ready(&pool->fence) >= ticket.epoch ||
               (ticket.published && zone_fence_ask(&pool->fence, gpu, ticket.epoch, ret_fault));
        rest = rest && (!pool->fill.on || zone_fill_is_idle(pool));
        /* Without an event there is nothing to wait for. */
        if (rest || gpu->now_ns() >= deadline_ns || (gpu->record && !ticket.published)) {
            break;
        }
        gpu->sleep_ns(nap);
        nap = nap * 2 < NAP_NS_MAX ? nap * 2 : NAP_NS_MAX;
    }
    zone_count_add(&pool->counts.rung_wait_ns, gpu->now_ns() - start);
    return rest;
}

static uint64_t ladder_deadline(const struct zone_pool *pool)
{
    uint64_t ms = __atomic_load_n(&pool->process->options->oom_wait_ms, __ATOMIC_RELAXED);
    return pool->process->gpu->now_ns() + ms * UINT64_C(1000000);
}

/* Not even everything that all pools of the device could give back would do: a program that looks
 * for the limit by trying must neither wait nor lose what is cached. What another thread moves from
 * one place to the other while this one adds up must not be missed in both, so three sums agree. */
static bool ladder_is_hopeless(const struct zone_pool *pool, size_t bytes)
{
    enum { LOOKS = 3 };
    if (!zone_registry_may_fit(pool->device, bytes)) {
        return true;
    }
    for (unsigned i = 0; i < LOOKS; i++) {
        size_t free_bytes, total;
        size_t before = zone_registry_cached_at_most(pool->device);
        if (pool->process->gpu->mem_info(pool->ctx, &free_bytes, &total) != ZONE_GPU_OK) {
            return false;
        }
        size_t after = zone_registry_cached_at_most(pool->device);
        if (bytes <= free_bytes + (before > after ? before : after)) {
            return false;
        }
    }
    return true;
}

/* Rung 4: gives back and asks the driver again. *ret_given: something was given back. */
static int ladder_give_and_grow(struct zone_pool *pool, size_t bytes, size_t req_bytes, bool rest,
                                uint64_t deadline_ns, zone_addr_t *ret_addr, bool *ret_given)
{
    int rc = ZONE_GPU_OUT_OF_MEMORY;
    *ret_given = false;
    if (rest) {
        /* First what would do if the driver's memory were in one piece, then everything. */
        if (zone_pool_give_back(pool, bytes) > 0) {
            *ret_given = true;
            rc = ladder_grow(pool, bytes, req_bytes, ret_addr);
        }
        if (rc == ZONE_GPU_OUT_OF_MEMORY && zone_pool_give_back(pool, SIZE_MAX) > 0) {
            *ret_given = true;
            rc = ladder_grow(pool, bytes, req_bytes, ret_addr);
        }
    }
    /* Other contexts may hold cached memory of the same device. */
    if (rc == ZONE_GPU_OUT_OF_MEMORY &&
        zone_registry_rescue_until(pool->device, pool, deadline_ns) > 0) {
        *ret_given = true;
        rc = ladder_grow(pool, bytes, req_bytes, ret_addr);
    }
    /* What went back in an earlier round may have arrived by now. */
    return *ret_given ? rc : ladder_grow(pool, bytes, req_bytes, ret_addr);
}

/* The driver may have what was given back at given_ns (0: nothing was) still to clear. What only a
 * limit refuses it is not asked for. */
static bool ladder_is_clearing(const struct zone_pool *pool, size_t bytes, uint64_t given_ns,
                               uint64_t now)
{
    return given_ns > 0 && now - given_ns < CLEARING_NS && zone_limit_has_room(pool->device, bytes);
}

/* When the driver got memory for the last time that a stream's work may still keep from it; 0: long
 * ago. */
static uint64_t ladder_gave_in_stream(const struct zone_pool *pool)
{
    uint64_t gave = atomic_load_explicit(&pool->streams.gave_ns, memory_order_relaxed);
    return gave > 0 && pool->process->gpu->now_ns() - gave < CLEARING_NS ? gave : 0;
}

/* Rungs 3 to 5. What is given back here another thread may take, which then has cached memory of
 * its own: so again, as long as anything moves, or may: a block that another thread has taken out
 * to give back is on its way for as long as the driver's free waits. The rest of a segment in which
 * a block lives does not move. And the driver clears large memory that it got back before it has it
 * to give: seen natively on an H200, where 105 of 140 GiB freed in three pieces and asked for at
 * once were refused. A program's own free had given it that time. */
static ZONE_COLD int ladder_out_of_memory(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                                          zone_addr_t *ret_addr)
{
    enum { ROUNDS_WITHOUT_ANY = 4 };
    const struct zone_gpu *gpu = pool->process->gpu;
    int rc = ZONE_GPU_OUT_OF_MEMORY;
    int fault = 0;
    uint64_t deadline = ladder_deadline(pool);
    unsigned idle = 0;
    uint64_t given_ns = ladder_gave_in_stream(pool);
    bool counted = false;
    uint64_t now;
    bool rest;
    do {
        bool served;
        bool given;
        /* What is being cleared may count as neither free nor cached. */
        if (given_ns == 0 && ladder_is_hopeless(pool, bytes)) {
            break;
        }
        zone_count_add(&pool->counts.rungs, !counted);
        counted = true;
        rest = ladder_rest(pool, bytes, req_bytes, deadline, ret_addr, &served, &fault);
        if (served) {
            return ZONE_GPU_OK;
        }
        if (fault) {
            return zone_pool_note(pool, fault);
        }
        rc = ladder_give_and_grow(pool, bytes, req_bytes, rest, deadline, ret_addr, &given);
        now = gpu->now_ns();
        if (given) {
            idle = 0;
            given_ns = now;
        } else if (idle++ > 0) {
            gpu->sleep_ns(NAP_NS_MAX);
        }
    } while (rc == ZONE_GPU_OUT_OF_MEMORY && now < deadline &&
             (idle < ROUNDS_WITHOUT_ANY || ladder_is_clearing(pool, bytes, given_ns, now) ||
              !rest || zone_registry_cached(pool->device) > 0));
    if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        zone_pool_refuse(pool, bytes, req_bytes);
    }
    return rc;
}

static int ladder_alloc_past(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr)
{
    const struct zone_gpu *gpu = pool->process->gpu;
    size_t bytes = (req_bytes + ZONE_BIN_STEP - 1) / ZONE_BIN_STEP * ZONE_BIN_STEP;
    if (!zone_limit_reserve(pool->device, bytes)) {
        int fault = atomic_load_explicit(&pool->fault, memory_order_relaxed);
        return fault ? fault : ZONE_GPU_OUT_OF_MEMORY;
    }
    uint64_t start = gpu->now_ns();
    int rc = gpu->alloc(ret_addr, req_bytes);
    if (rc != ZONE_GPU_OK) {
        zone_limit_return(pool->device, bytes);
        return rc;
    }
    /* A lost context never allocates again, so this one was not lost. */
    atomic_store_explicit(&pool->fault, 0, memory_order_relaxed);
    zone_pool_adopt(pool, *ret_addr, bytes, req_bytes, gpu->now_ns() - start);
    return rc;
}

int zone_pool_alloc_past(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr)
{
    int rc = ladder_alloc_past(pool, req_bytes, ret_addr);
    /* What was freed while the pool still served must be in nobody's way. */
    if (rc == ZONE_GPU_OUT_OF_MEMORY && zone_registry_may_fit(pool->device, req_bytes) &&
        zone_pool_give_back(pool, SIZE_MAX) > 0) {
        rc = ladder_alloc_past(pool, req_bytes, ret_addr);
    }
    if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        zone_pool_refuse(pool, req_bytes, req_bytes);
    }
    return rc;
}

bool zone_pool_alloc_odd(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                         zone_addr_t *ret_addr, int *ret_rc)
{
    int fault = atomic_load_explicit(&pool->fault, memory_order_relaxed);
    if (!fault && bytes > 0 && bytes <= pool->total) {
        return false;
    }
    /* A lost context, or a size that no device has: the driver says what it says. */
    *ret_rc = ladder_alloc_past(pool, req_bytes, ret_addr);
    if (*ret_rc != ZONE_GPU_OUT_OF_MEMORY) {
        return true;
    }
    if (fault && bytes > 0 && bytes <= pool->total) {
        /* A lost context would have said so. */
        atomic_store_explicit(&pool->fault, ZONE_GPU_OK, memory_order_relaxed);
        return false;
    }
    zone_pool_refuse(pool, bytes, req_bytes);
    return true;
}

int zone_pool_alloc_early(struct zone_pool *pool, size_t bytes, size_t req_bytes, uint64_t stamp,
                          zone_addr_t *ret_addr)
{
    int fault = ZONE_GPU_OK;
    zone_pool_start(pool);
    struct zone_bin *bin = zone_bins_find(&pool->bins, bytes);
    if (bin && ladder_ask(pool, bin, stamp, req_bytes, ret_addr, &fault)) {
        return ZONE_GPU_OK;
    }
    if (fault) {
        return zone_pool_note(pool, fault);
    }
    if (ZONE_UNLIKELY(pool->fill.on)) {
        zone_fill_advance(pool);
        if (zone_pool_alloc_odd(pool, bytes, req_bytes, ret_addr, &fault)) {
            return fault; /* a fill failed: the driver knows whether the context is lost */
        }
        if (bin && zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp)) {
            return ZONE_GPU_OK;
        }
    }
    if (zone_stream_help(pool, bytes, req_bytes, ret_addr) ||
        zone_pool_carve(pool, bytes, req_bytes, ret_addr)) {
        return ZONE_GPU_OK;
    }
    zone_stream_want(pool);
    int rc = ladder_grow(pool, bytes, req_bytes, ret_addr);
    zone_pool_note(pool, rc);
    return rc;
}

int zone_pool_alloc_last(struct zone_pool *pool, size_t bytes, size_t req_bytes,
                         zone_addr_t *ret_addr)
{
    int rc = ladder_out_of_memory(pool, bytes, req_bytes, ret_addr);
    zone_pool_note(pool, rc);
    return rc;
}

int zone_pool_alloc_slow(struct zone_pool *pool, size_t bytes, size_t req_bytes, uint64_t stamp,
                         zone_addr_t *ret_addr)
{
    int rc;
    if (zone_pool_alloc_odd(pool, bytes, req_bytes, ret_addr, &rc)) {
        return rc;
    }
    rc = zone_pool_alloc_early(pool, bytes, req_bytes, stamp, ret_addr);
    return rc == ZONE_GPU_OUT_OF_MEMORY ? zone_pool_alloc_last(pool, bytes, req_bytes, ret_addr)
                                        : rc;
}

int zone_pool_alloc_captured(struct zone_pool *pool, size_t req_bytes, zone_addr_t *ret_addr)
{
    size_t bytes = zone_pool_class(pool, req_bytes);
    bool past = bytes == 0 || bytes > pool->total ||
                atomic_load_explicit(&pool->fault, memory_order_relaxed);
    int rc = past ? ladder_alloc_past(pool, req_bytes, ret_addr)
                  : ladder_grow_whole(pool, bytes, req_bytes, ret_addr);
    if (rc == ZONE_GPU_OK) {
        struct zone_block *block = zone_ptrmap_get(*ret_addr);
        if (block) {
            /* The driver is asked whatever is cached, so what it gave must not stay with the pool:
             * capture after capture would fill the device. */
            atomic_store_explicit(&block->tainted, 1, memory_order_relaxed);
        }
    }
    if (rc != ZONE_GPU_OUT_OF_MEMORY || past) {
        return rc;
    }
    uint64_t stamp;
    struct zone_bin *bin = zone_bins_find(&pool->bins, bytes);
    if (bin && zone_pool_reuse(pool, bin, req_bytes, ret_addr, &stamp)) {
        return ZONE_GPU_OK;
    }
    if (zone_pool_carve(pool, bytes, req_bytes, ret_addr)) {
        return ZONE_GPU_OK;
    }
    if (zone_pool_give_back(pool, SIZE_MAX) > 0) {
        rc = ladder_grow_whole(pool, bytes, req_bytes, ret_addr);
    }
    if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        zone_pool_refuse(pool, bytes, req_bytes);
    }
    return rc;
}

size_t zone_pool_rescue(struct zone_pool *pool, uint64_t *deadline_ns)
{
    int fault = 0;
    bool served;
    zone_addr_t none;
    if (atomic_load_explicit(&pool->fault, memory_order_relaxed)) {
        return 0;
    }
    if (zone_ledger_cached(&pool->ledger) == 0) {
        return pool->process->gpu->trim ? zone_pool_give_back(pool, SIZE_MAX) : 0;
    }
    if (*deadline_ns == 0) {
        *deadline_ns = ladder_deadline(pool);
    }
    bool rest = ladder_rest(pool, 0, 0, *deadline_ns, &none, &served, &fault);
    return rest && !fault ? zone_pool_give_back(pool, SIZE_MAX) : 0;
}
