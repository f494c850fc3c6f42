/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of pools. Added to under one lock, read without.
 */
#include "registry.h"

#include "meta.h"
#include "ptrmap.h"
#include "stream.h"

#include <string.h>

enum { REGISTRY_POOLS = 256 };

static struct zone_pool *_Atomic registry[REGISTRY_POOLS];
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct zone_counters registry_past[ZONE_OPTIONS_DEVICES]; /* lock; of dropped pools */

static void *pool_ctx(struct zone_pool *pool)
{
    return __atomic_load_n(&pool->ctx, __ATOMIC_ACQUIRE);
}

struct zone_pool *zone_registry_find(const void *ctx)
{
    for (unsigned i = 0; ctx && i < REGISTRY_POOLS; i++) {
        struct zone_pool *pool = atomic_load_explicit(&registry[i], memory_order_acquire);
        if (!pool) {
            break;
        }
        if (pool_ctx(pool) == ctx) {
            return pool;
        }
    }
    return NULL;
}

void zone_registry_each(void (*visit)(struct zone_pool *pool, void *arg), void *arg)
{
    for (unsigned i = 0; i < REGISTRY_POOLS; i++) {
        struct zone_pool *pool = atomic_load_explicit(&registry[i], memory_order_acquire);
        if (pool && pool_ctx(pool)) {
            visit(pool, arg);
        }
    }
}

static size_t size_clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

void zone_pool_bound(struct zone_pool *pool, const struct zone_options *options)
{
    bool automatic = options->max_pending_mb == ZONE_OPTIONS_AUTO;
    size_t budget = zone_options_bytes(options->max_pending_mb);
    size_t min_free = zone_options_bytes(options->min_free_mb);
    atomic_store(&pool->budget, automatic ? ZONE_POOL_BUDGET_AUTO : budget);
    /* A small device must not be all headroom. */
    atomic_store(&pool->min_free, size_clamp(min_free, 0, pool->total / 16));
    /* With cudaMallocAsync it is the driver's pool that keeps so much. */
    atomic_store(&pool->max_cached, options->backend == ZONE_BACKEND_CUDA_MALLOC_ASYNC
                                        ? 0
                                        : zone_options_bytes(options->max_cached_mb));
}

/* Everything but ctx, which makes the pool visible. */
static void pool_init(struct zone_pool *pool, struct zone_process *process,
                      const struct zone_context_facts *facts, size_t free_bytes, size_t total)
{
    const struct zone_options *options = process->options;
    /* What a thread that came too late for the context before may have counted. */
    zone_limit_return(pool->device, zone_ledger_clear(&pool->ledger));
    zone_limit_set(options, facts->device, total);
    /* ctx is NULL already and others read it as they look for theirs; giving counts threads that
     * came too late for the context before. */
    size_t from = offsetof(struct zone_pool, open_frees);
    memset((char *)pool + from, 0, sizeof(*pool) - from);
    zone_bins_init(&pool->bins);
    zone_fence_init(&pool->fence);
    zone_streams_init(pool);
    pool->process = process;
    pool->ctx_id = facts->id;
    pool->device = facts->device;
    pool->primary = facts->primary;
    pool->order = (enum zone_free_order)options->free_order;
    zone_fill_init(&pool->fill, options);
    pool->odd_frees = pool->fill.on || pool->order == ZONE_FREE_ORDER_UNSAFE;
    pool->total = total;
    pool->streams.unmarked_max = total / 64;
    atomic_store(&pool->shrink_rest, 0);
    size_t limit = zone_limit_bytes(facts->device);
    pool->collect_above = options->garbage_collection_threshold > 0
                              ? zone_options_share(options->garbage_collection_threshold,
                                                   limit < total ? limit : total)
                              : SIZE_MAX;
    pool->budget_cap = size_clamp(free_bytes / 8, ZONE_POOL_BUDGET_MIN, ZONE_POOL_BUDGET_MAX);
    zone_pool_bound(pool, options);
    zone_pool_carve_init(pool);
    atomic_store(&pool->free_guess, free_bytes);
    atomic_store(&pool->looked_ns, process->gpu->now_ns());
}

/* A pool whose context is gone and that no thread is in, or a new one. Lock held. */
static struct zone_pool *registry_spare_locked(void)
{
    for (unsigned i = 0; i < REGISTRY_POOLS; i++) {
        struct zone_pool *pool = atomic_load_explicit(&registry[i], memory_order_relaxed);
        if (!pool) {
            pool = zone_meta_alloc(sizeof(*pool));
            if (pool) {
                atomic_store_explicit(&registry[i], pool, memory_order_release);
            }
            return pool;
        }
        if (pool->leaving) {
            continue;
        }
        if (!pool_ctx(pool) && zone_fence_is_quiet(&pool->fence)) {
            return pool;
        }
    }
    return NULL;
}

struct zone_pool *zone_registry_make(struct zone_process *process,
                                     const struct zone_context_facts *facts)
{
    size_t free_bytes, total;
    if (process->gpu->mem_info(facts->ctx, &free_bytes, &total) != ZONE_GPU_OK) {
        return NULL;
    }
    pthread_mutex_lock(&registry_lock);
    struct zone_pool *pool = zone_registry_find(facts->ctx);
    if (!pool) {
        pool = registry_spare_locked();
        if (pool) {
            pool_init(pool, process, facts, free_bytes, total);
            __atomic_store_n(&pool->ctx, facts->ctx, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&registry_lock);
    if (pool) {
        zone_fill_begin(pool);
    }
    return pool;
}

static bool drop_visit(struct zone_block *block, void *arg)
{
    if (block->pool != arg) {
        return false;
    }
    struct zone_pool *pool = arg;
    if (zone_block_kind(block) == ZONE_BLOCK_MANAGED) {
        atomic_fetch_sub(&pool->process->host_watched, 1);
    }
    zone_block_delete(block);
    return true;
}

void zone_registry_hide(struct zone_pool *pool)
{
    enum { NAP_NS = 50000 };
    pthread_mutex_lock(&registry_lock);
    if (pool_ctx(pool)) {
        pool->leaving = pool_ctx(pool);
        __atomic_store_n(&pool->ctx, NULL, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&registry_lock);
    /* Who gives back waits for the context's work, as its destruction does. */
    while (atomic_load(&pool->giving) > 0) {
        pool->process->gpu->sleep_ns(NAP_NS);
    }
}

void zone_registry_show(struct zone_pool *pool)
{
    pthread_mutex_lock(&registry_lock);
    if (pool->leaving) {
        __atomic_store_n(&pool->ctx, pool->leaving, __ATOMIC_RELEASE);
        pool->leaving = NULL;
    }
    pthread_mutex_unlock(&registry_lock);
}

struct count {
    int device;
    struct zone_counters *sum;
};

static void count_visit(struct zone_pool *pool, void *arg)
{
    struct count *count = arg;
    if (pool->device == count->device) {
        struct zone_counters counters;
        zone_counters_init(&counters);
        zone_pool_count(pool, &counters);
        zone_counters_add(count->sum, &counters);
    }
}

/* The counts of a pool that goes join those of the ones before it. What it may have held beside the
 * pools that live now is the peak of these contexts together; contexts that come later hold theirs
 * in its place, not in addition. */
static void registry_keep_counts(struct zone_pool *pool)
{
    struct zone_counters *past = &registry_past[pool->device];
    struct zone_counters counters;
    struct zone_counters together;
    struct count count = {.device = pool->device, .sum = &together};
    zone_counters_init(&counters);
    zone_pool_count(pool, &counters);
    together = counters;
    zone_registry_each(count_visit, &count); /* this one is not among them any more */
    zone_counters_clear_peaks(&counters);
    zone_counters_add(past, &counters);
    zone_counters_raise_peaks(past, &together);
}

void zone_registry_drop(struct zone_pool *pool)
{
    pthread_mutex_lock(&registry_lock);
    if (pool_ctx(pool) || pool->leaving) {
        __atomic_store_n(&pool->ctx, NULL, __ATOMIC_RELEASE);
        pool->leaving = NULL;
        zone_ptrmap_sweep(drop_visit, pool);
        zone_pool_forget(pool);
        if (pool->device >= 0 && pool->device < ZONE_OPTIONS_DEVICES) {
            registry_keep_counts(pool);
        }
    }
    pthread_mutex_unlock(&registry_lock);
}

struct rescue {
    int device;
    const struct zone_gpu *gpu; /* of the pools seen */
    const struct zone_pool *except;
    uint64_t deadline_ns; /* 0: set by the first pool */
    size_t bytes;
};

static void rescue_visit(struct zone_pool *pool, void *arg)
{
    struct rescue *rescue = arg;
    if (pool != rescue->except && (rescue->device < 0 || pool->device == rescue->device)) {
        rescue->bytes += zone_pool_rescue(pool, &rescue->deadline_ns);
    }
}

size_t zone_registry_rescue_until(int device, const struct zone_pool *except, uint64_t deadline_ns)
{
    struct rescue rescue = {.device = device, .except = except, .deadline_ns = deadline_ns};
    zone_registry_each(rescue_visit, &rescue);
    return rescue.bytes;
}

size_t zone_registry_rescue(int device, const struct zone_pool *except)
{
    return zone_registry_rescue_until(device, except, 0);
}

static void cached_visit(struct zone_pool *pool, void *arg)
{
    struct rescue *sum = arg;
    if (pool->device == sum->device) {
        sum->gpu = pool->process->gpu;
        sum->bytes += zone_pool_available(pool);
    }
}

/* What the driver keeps of what was given back. */
static size_t registry_idle(const struct rescue *sum)
{
    return sum->gpu && sum->gpu->idle ? sum->gpu->idle(sum->device) : 0;
}

size_t zone_registry_cached(int device)
{
    struct rescue sum = {.device = device};
    zone_registry_each(cached_visit, &sum);
    return sum.bytes + registry_idle(&sum);
}

static void at_most_visit(struct zone_pool *pool, void *arg)
{
    struct rescue *sum = arg;
    /* Whole blocks that the program does not hold, and perhaps some parts of segments. */
    size_t segments = zone_level_now(&pool->ledger.segments) + atomic_load(&pool->small.blocks) +
                      atomic_load(&pool->large.blocks) - atomic_load(&pool->small.count) -
                      atomic_load(&pool->large.count);
    size_t live = zone_ledger_live(&pool->ledger);
    if (sum->device < 0 || pool->device == sum->device) {
        const struct zone_gpu *gpu = pool->process->gpu;
        sum->bytes += gpu->idle ? gpu->idle(pool->device) : 0;
        sum->bytes += zone_ledger_cached(&pool->ledger);
        sum->bytes += segments > live ? (segments - live) * 2 * ZONE_MIB : 0;
    }
}

size_t zone_registry_cached_at_most(int device)
{
    struct rescue sum = {.device = device};
    zone_registry_each(at_most_visit, &sum);
    return sum.bytes;
}

static void live_visit(struct zone_pool *pool, void *arg)
{
    struct rescue *sum = arg;
    if (pool->device == sum->device) {
        sum->bytes += zone_ledger_allocated(&pool->ledger);
    }
}

size_t zone_registry_live(int device)
{
    struct rescue sum = {.device = device};
    zone_registry_each(live_visit, &sum);
    return sum.bytes;
}

bool zone_registry_may_fit(int device, size_t bytes)
{
    size_t limit = zone_limit_bytes(device);
    size_t live = limit == SIZE_MAX ? 0 : zone_registry_live(device);
    return live <= limit && bytes <= limit - live;
}

void zone_registry_count(int device, struct zone_counters *ret)
{
    struct count count = {.device = device, .sum = ret};
    struct zone_counters past;
    zone_counters_init(ret);
    zone_counters_init(&past);
    if (device >= 0 && device < ZONE_OPTIONS_DEVICES) {
        /* Not locked: the report must not wait for a thread that exit has stopped. */
        past = registry_past[device];
        zone_counters_add(ret, &past);
        zone_counters_clear_peaks(ret);
    }
    zone_registry_each(count_visit, &count);
    zone_counters_raise_peaks(ret, &past);
}

void zone_registry_look(int device, struct zone_counters *ret)
{
    pthread_mutex_lock(&registry_lock);
    zone_registry_count(device, ret);
    pthread_mutex_unlock(&registry_lock);
}

/* The same with the lock held, and for those that are about to go, too: they may stay. */
static void registry_each_locked(void (*visit)(struct zone_pool *pool, const void *arg),
                                 const void *arg)
{
    for (unsigned i = 0; i < REGISTRY_POOLS; i++) {
        struct zone_pool *pool = atomic_load_explicit(&registry[i], memory_order_relaxed);
        if (pool && (pool_ctx(pool) || pool->leaving)) {
            visit(pool, arg);
        }
    }
}

static void reset_visit(struct zone_pool *pool, const void *arg)
{
    if (pool->device == *(const int *)arg) {
        zone_ledger_reset_peaks(&pool->ledger);
    }
}

void zone_registry_reset_peaks(int device)
{
    pthread_mutex_lock(&registry_lock);
    registry_each_locked(reset_visit, &device);
    if (device >= 0 && device < ZONE_OPTIONS_DEVICES) {
        zone_counters_clear_peaks(&registry_past[device]);
    }
    pthread_mutex_unlock(&registry_lock);
}

static void bound_visit(struct zone_pool *pool, const void *arg)
{
    zone_pool_bound(pool, arg);
}

void zone_registry_adjust(struct zone_options *options, const struct zone_options *from,
                          uint64_t keys)
{
    pthread_mutex_lock(&registry_lock);
    zone_options_take(options, from, keys);
    registry_each_locked(bound_visit, options);
    pthread_mutex_unlock(&registry_lock);
}
