/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills a snapshot of counters from a pool. Most numbers are derived here rather than counted on
 * the fast path: the bins know how often they served and what a miss of their class took. Reads
 * without stopping anybody, so a snapshot taken while threads allocate may be off by what they are
 * doing.
 */
#include "stream.h"

static uint64_t load(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* A gauge from its current and highest value and the total that was ever added to it. */
static struct zone_gauge gauge(size_t now, const _Atomic size_t *peak, uint64_t allocated)
{
    struct zone_gauge ret = {
        .current = now,
        .peak = atomic_load_explicit(peak, memory_order_relaxed),
        .allocated = allocated,
    };
    ret.freed = allocated > ret.current ? allocated - ret.current : 0;
    return ret;
}

struct bin_sums {
    uint64_t served_bytes;
    uint64_t requested;
};

static void count_bins(struct zone_pool *pool, struct zone_counters *ret, struct bin_sums *sums)
{
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        /* Not locked: at exit a thread may have been stopped while it held the lock. */
        uint64_t hits = load(&bin->hits);
        uint64_t misses = load(&bin->misses);
        ret->hits += hits;
        ret->misses += misses;
        sums->served_bytes += (hits + misses) * bin->bytes;
        sums->requested += load(&bin->requested);
        ret->saved_ns += misses > 0 ? hits * (load(&bin->miss_ns) / misses) : 0;
    }
}

void zone_pool_count(struct zone_pool *pool, struct zone_counters *ret)
{
    struct zone_pool_counts *counts = &pool->counts;
    const struct zone_ledger *ledger = &pool->ledger;
    struct bin_sums sums = {0};
    count_bins(pool, ret, &sums);
    zone_streams_count(pool, ret, &sums.served_bytes, &sums.requested);
    ret->stream_marks = load(&pool->streams.marks);
    ret->stream_waits = load(&pool->streams.waits);
    ret->allocated_bytes =
        gauge(zone_ledger_allocated(ledger), &ledger->allocated_peak, sums.served_bytes);
    ret->requested_bytes =
        gauge(zone_level_now(&ledger->requested), &ledger->requested.peak, sums.requested);
    ret->allocation = gauge(zone_ledger_live(ledger), &ledger->live_peak, ret->hits + ret->misses);
    ret->reserved_bytes = gauge(zone_level_now(&ledger->reserved), &ledger->reserved.peak,
                                load(&ledger->grown_bytes));
    ret->segment = gauge(zone_level_now(&ledger->segments), &ledger->segments.peak,
                         load(&ledger->grown_segments));
    size_t pending = zone_fence_pending(&pool->fence);
    size_t idle = zone_ledger_cached(ledger);
    ret->pending_bytes.current = pending < idle ? pending : idle;
    ret->cached_bytes.current = idle - ret->pending_bytes.current;
    ret->active_bytes.current = ret->allocated_bytes.current + ret->pending_bytes.current;
    ret->driver_alloc_calls = load(&counts->driver_allocs);
    ret->driver_alloc_ns = load(&counts->driver_alloc_ns);
    ret->driver_free_calls = load(&counts->driver_frees);
    ret->driver_free_ns = load(&counts->driver_free_ns);
    ret->records = load(&pool->fence.counts.records);
    ret->record_failures = load(&pool->fence.counts.record_failures);
    ret->queries = load(&pool->fence.counts.queries);
    ret->throttle_waits = load(&counts->throttle_waits);
    ret->throttle_wait_ns = load(&counts->throttle_wait_ns);
    ret->sync_waits = load(&counts->sync_waits);
    ret->sync_wait_ns = load(&counts->sync_wait_ns);
    ret->trims = load(&counts->trims);
    ret->trimmed_bytes = load(&counts->trimmed_bytes);
    ret->fills = load(&pool->fill.fills);
    ret->filled_bytes = load(&pool->fill.bytes);
    ret->oom_rung = load(&counts->rungs);
    ret->oom_wait_ns = load(&counts->rung_wait_ns);
    ret->ooms = load(&counts->ooms);
    ret->oom_rejections = load(&counts->oom_rejections);
    ret->tainted = load(&counts->tainted);
    ret->fault_code = (uint64_t)atomic_load_explicit(&pool->fault, memory_order_relaxed);
}
