/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocation fails: counted always; explained when it is time for that (oom.h), as only then
 * the facts are gathered. They are read without stopping anybody, so they may be off by what other
 * threads are doing. Called with no lock held; asks the driver for its free memory and nothing
 * else.
 */
#include "pool.h"

#include "limit.h"
#include "registry.h"
#include "stream.h"

static size_t refuse_largest_freed(struct zone_pool *pool)
{
    size_t largest = 0;
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        zone_lock(&bin->lock);
        if (bin->head && bin->bytes > largest) {
            largest = bin->bytes;
        }
        zone_unlock(&bin->lock);
    }
    return largest;
}

static void refuse_raise(size_t *value, size_t to)
{
    *value = to > *value ? to : *value;
}

static void refuse_add_pool(struct zone_pool *pool, void *arg)
{
    struct zone_oom *oom = arg;
    if (pool->device != oom->device) {
        return;
    }
    size_t idle = zone_ledger_cached(&pool->ledger);
    size_t pending = zone_fence_pending(&pool->fence);
    pending = pending < idle ? pending : idle;
    size_t available = zone_pool_available(pool);
    oom->allocated += zone_ledger_allocated(&pool->ledger);
    oom->pending += pending;
    oom->cached += idle - pending;
    oom->reclaimable += available < idle ? available : idle;
    oom->cuts_large = oom->cuts_large || pool->cuts_large;
    refuse_raise(&oom->largest, refuse_largest_freed(pool));
    refuse_raise(&oom->largest, zone_streams_largest(pool));
    struct zone_arena *arenas[] = {&pool->small, &pool->large};
    for (unsigned i = 0; i < 2; i++) {
        size_t run;
        size_t dead;
        zone_arena_look(arenas[i], &run, &dead);
        refuse_raise(&oom->largest, run);
        oom->shared += dead;
    }
}

/* The smaller of two options is the limit; the other one does not matter. */
static void refuse_add_limit(const struct zone_options *options, struct zone_oom *oom)
{
    size_t limit = zone_limit_bytes(oom->device);
    size_t used = zone_limit_used(oom->device);
    if (limit == SIZE_MAX || (oom->bytes <= limit && used <= limit - oom->bytes)) {
        return;
    }
    bool by_mb = limit == zone_options_bytes(options->max_reserved_mb.mb[oom->device]);
    oom->refuser = by_mb ? "max_reserved_mb" : "per_process_memory_fraction";
    oom->limit = limit;
    oom->limit_used = used;
}

void zone_refuse(struct zone_process *process, void *ctx, struct zone_oom *oom)
{
    if (!process->explain || !zone_oom_due(&process->oom_gate, process->gpu->now_ns())) {
        return;
    }
    if (process->gpu->mem_info(ctx, &oom->free, &oom->total) != ZONE_GPU_OK) {
        oom->free = 0;
    }
    zone_registry_each(refuse_add_pool, oom);
    refuse_add_limit(process->options, oom);
    process->explain(oom);
}

void zone_pool_refuse(struct zone_pool *pool, size_t bytes, size_t req_bytes)
{
    zone_count_add(&pool->counts.ooms, 1);
    zone_count_add(&pool->counts.oom_rejections, !zone_limit_has_room(pool->device, bytes));
    struct zone_oom oom = {
        .device = pool->device, .requested = req_bytes, .bytes = bytes, .total = pool->total};
    if (bytes < req_bytes) {
        oom.bytes = req_bytes; /* has no class: it wraps around */
    }
    zone_refuse(pool->process, pool->ctx, &oom);
}
