/* SPDX-License-Identifier: Apache-2.0
 *
 * garbage_collection_threshold, by PyTorch's rule (CUDACachingAllocator,
 * garbage_collect_cached_blocks): an allocation that finds nothing cached while more than the
 * threshold is held gives back what is cached and at least as old as the average, again and again
 * until the excess is gone or nothing is left. PyTorch does it in that allocation. Here an
 * allocation gives nothing back, so it notes its epoch, and the next free that records does it for
 * what was cached then: not its own block, which the next allocation is to find. Ages count epochs,
 * one for each free that recorded.
 */
#include "stream.h"

/* Parts of segments become free space, so that segments are seen that nobody uses. */
static void collect_parts(struct zone_pool *pool, uint64_t until)
{
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        struct zone_block *block;
        size_t none = 0;
        while ((block = zone_bin_take_cut(bin, until)) != NULL) {
            zone_pool_trim_block(pool, bin, block, &none);
        }
    }
}

/* The average age of what is ready and was freed before an epoch, rounded up; 0: there is none. */
static uint64_t collect_average(struct zone_pool *pool, uint64_t before, uint64_t until)
{
    struct zone_ages ages = {.now = before};
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        zone_bin_ages(bin, until, &ages);
    }
    zone_arena_ages(&pool->large, until, &ages);
    zone_arena_ages(&pool->small, until, &ages);
    return ages.count > 0 ? (ages.sum + ages.count - 1) / ages.count : 0;
}

/* One round; false if it gave nothing. */
static bool collect_round(struct zone_pool *pool, uint64_t before, size_t excess, size_t *given,
                          int *ret_rc)
{
    uint64_t ready = zone_fence_ready(&pool->fence);
    uint64_t until = before - 1 < ready ? before - 1 : ready;
    size_t start = *given;
    collect_parts(pool, until);
    uint64_t average = collect_average(pool, before, until);
    if (average == 0) {
        return false;
    }
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        struct zone_block *block;
        uint64_t stamp;
        while (*given < excess && *ret_rc == ZONE_GPU_OK &&
               (block = zone_bin_take(bin, before - average, &stamp)) != NULL) {
            *ret_rc = zone_pool_trim_block(pool, bin, block, given);
        }
    }
    if (*ret_rc == ZONE_GPU_OK) {
        *ret_rc = zone_pool_release(pool, excess, before - average, given);
    }
    return *given > start && *ret_rc == ZONE_GPU_OK;
}

/* True if something that was cached before an epoch is there yet; else there is no need to wait. */
static bool collect_any(struct zone_pool *pool, uint64_t before)
{
    return collect_average(pool, before, before - 1) > 0;
}

int zone_pool_collect(struct zone_pool *pool, const struct zone_ticket *ticket)
{
    uint64_t before = atomic_exchange(&pool->collect_before, 0);
    size_t used = zone_limit_used(pool->device);
    if (before == 0 || used <= pool->collect_above) {
        return ZONE_GPU_OK;
    }
    zone_stream_harvest(pool);
    if (!collect_any(pool, before)) {
        return ZONE_GPU_OK;
    }
    int rc = zone_pool_wait_own(pool, ticket);
    size_t given = 0;
    atomic_fetch_add(&pool->giving, 1); /* as in zone_pool_give_back */
    if (rc == ZONE_GPU_OK && __atomic_load_n(&pool->ctx, __ATOMIC_SEQ_CST)) {
        zone_stream_harvest(pool);
        size_t excess = used - pool->collect_above;
        while (given < excess && collect_round(pool, before, excess, &given, &rc)) {
        }
    }
    atomic_fetch_sub(&pool->giving, 1);
    zone_count_add(&pool->counts.trims, given > 0);
    return rc;
}
