/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sizes are cut from segments, and how a pool uses its arenas: small blocks (below 1 MiB)
 * share segments of 2 MiB; large ones are whole driver allocations unless PyTorch's options about
 * cutting are given. A freed block stays in the bin of its size, where the next request of that
 * size finds it without any of this; only when a bin has nothing ready is something cut, first from
 * free runs, then after ready blocks of other sizes have become runs.
 */
#include "pool.h"

enum { SMALL_SEGMENT = 2 << 20, LARGE_UNIT_BITS = 21, SMALL_UNIT_BITS = 9 };
#define LARGE_SHARED (10 * ZONE_MIB) /* requests below share segments; PyTorch's kMinLargeAlloc */

/* A device so small that segments would be a noticeable part of it gets none. */
#define SMALL_DEVICE ZONE_GIB

static bool carve_given(const struct zone_options *options, enum zone_option_id id)
{
    return options->given >> id & 1;
}

void zone_pool_carve_init(struct zone_pool *pool)
{
    const struct zone_options *options = pool->process->options;
    zone_arena_init(&pool->small, SMALL_UNIT_BITS, (size_t)1 << SMALL_UNIT_BITS);
    zone_arena_init(&pool->large, LARGE_UNIT_BITS, 0);
    /* A segment is zero where small memory of the driver's is not. */
    pool->cuts_small = options->zero_fill ||
                       (pool->total >= SMALL_DEVICE && zone_pool_max_cached(pool) >= SMALL_SEGMENT);
    pool->cuts_large = carve_given(options, ZONE_OPTION_ID_large_segment_size_mb) ||
                       carve_given(options, ZONE_OPTION_ID_max_split_size_mb) ||
                       carve_given(options, ZONE_OPTION_ID_max_non_split_rounding_mb) ||
                       options->initial_pool_size_mb > 0;
    if (options->backend == ZONE_BACKEND_CUDA_MALLOC_ASYNC) {
        /* The driver's pool cuts and merges. */
        pool->cuts_small = pool->cuts_large = false;
    }
    pool->rounds_large = pool->cuts_large || options->zero_fill;
    pool->small_rules = (struct zone_cut_rules){
        .max_split = SIZE_MAX, .max_over = SIZE_MAX, .min_rest = (size_t)1 << SMALL_UNIT_BITS};
    pool->large_rules =
        (struct zone_cut_rules){.max_split = zone_options_bytes(options->max_split_size_mb),
                                .max_over = zone_options_bytes(options->max_non_split_rounding_mb),
                                .min_rest = (size_t)1 << LARGE_UNIT_BITS};
}

struct carving {
    struct zone_arena *arena;
    const struct zone_cut_rules *rules;
    size_t segment; /* bytes of a new one */
};

/* The arena of blocks of a size, if they are cut. */
static struct zone_arena *carve_arena(struct zone_pool *pool, size_t bytes)
{
    return bytes < ZONE_BIN_LARGE ? &pool->small : &pool->large;
}

/* False if blocks of this size are whole. */
static bool carve_how(struct zone_pool *pool, size_t bytes, struct carving *ret)
{
    if (bytes < ZONE_BIN_LARGE) {
        *ret = (struct carving){&pool->small, &pool->small_rules, SMALL_SEGMENT};
        return pool->cuts_small;
    }
    size_t segment = bytes;
    if (bytes < LARGE_SHARED) {
        /* A whole number of units, so that every block in it starts at one. */
        size_t unit = (size_t)1 << LARGE_UNIT_BITS;
        segment = zone_options_bytes(pool->process->options->large_segment_size_mb);
        segment = (segment + unit - 1) / unit * unit;
    }
    *ret = (struct carving){&pool->large, &pool->large_rules, segment};
    return pool->cuts_large && segment >= bytes;
}

/* PyTorch's segments are the program's wish; ours end where memory does: a nearly full device
 * (below 15 %), or limit, has better uses for it than the rest of a segment. */
static bool carve_may_grow(const struct zone_pool *pool, const struct carving *how, size_t bytes)
{
    size_t guess = atomic_load_explicit(&pool->free_guess, memory_order_relaxed);
    size_t limit = zone_limit_bytes(pool->device);
    return how->segment == bytes || (bytes < ZONE_BIN_LARGE && pool->process->options->zero_fill) ||
           (guess > pool->total / 100 * 15 &&
            (limit >= pool->total || zone_limit_has_room(pool->device, limit / 100 * 15)));
}

size_t zone_pool_segment_size(struct zone_pool *pool, size_t bytes)
{
    struct carving how;
    return carve_how(pool, bytes, &how) && carve_may_grow(pool, &how, bytes) ? how.segment : 0;
}

bool zone_pool_add_segment(struct zone_pool *pool, zone_addr_t *addr, size_t segment_bytes,
                           size_t bytes, size_t req_bytes, uint64_t ns)
{
    struct carving how;
    carve_how(pool, bytes, &how);
    struct zone_block *block =
        zone_arena_add(how.arena, pool, *addr, segment_bytes, bytes, how.rules);
    struct zone_bin *bin = block ? zone_bins_make(&pool->bins, block->bytes) : NULL;
    if (!block) {
        return false;
    }
    zone_ledger_grow(&pool->ledger, segment_bytes);
    if (bin) {
        zone_bin_missed(bin, req_bytes, ns);
    }
    *addr = block->addr;
    zone_pool_hand_out(pool, block, req_bytes);
    return true;
}

/* Ready blocks of a bin become runs until one of them is large enough. */
static bool absorb_bin(struct zone_pool *pool, struct zone_bin *bin, struct zone_arena *arena,
                       size_t enough)
{
    struct zone_block *block;
    while ((block = zone_bin_take_cut(bin, zone_fence_ready(&pool->fence))) != NULL) {
        uint8_t freed = ZONE_BLOCK_FREED;
        /* Not FREED: its memory is somebody else's by now, see zone_ptrmap_set. */
        if (atomic_load_explicit(&block->state, memory_order_relaxed) == freed &&
            zone_arena_put(arena, block) >= enough) {
            return true;
        }
    }
    return false;
}

static bool absorb_small(struct zone_pool *pool, size_t enough)
{
    struct zone_arena *arena = &pool->small;
    unsigned start = atomic_load_explicit(&arena->cursor, memory_order_relaxed);
    for (unsigned i = 0; i < ZONE_BIN_SMALL_COUNT; i++) {
        unsigned index = (start + i) % ZONE_BIN_SMALL_COUNT;
        if (absorb_bin(pool, &pool->bins.small[index], arena, enough)) {
            /* Goes on here next time: each bin gets its turn, none is searched twice. */
            atomic_store_explicit(&arena->cursor, index, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static bool absorb_large(struct zone_pool *pool, size_t enough)
{
    struct zone_bin *bin = atomic_load_explicit(&pool->bins.newest, memory_order_acquire);
    for (; bin; bin = bin->older) {
        if (bin->bytes >= ZONE_BIN_LARGE && absorb_bin(pool, bin, &pool->large, enough)) {
            return true;
        }
    }
    return false;
}

static struct zone_block *carve_take(struct zone_pool *pool, size_t bytes)
{
    struct carving how;
    if (!carve_how(pool, bytes, &how)) {
        return NULL;
    }
    struct zone_block *block = zone_arena_take(how.arena, bytes, how.rules);
    while (!block) {
        bool more =
            how.arena == &pool->small ? absorb_small(pool, bytes) : absorb_large(pool, bytes);
        block = zone_arena_take(how.arena, bytes, how.rules);
        if (!more) {
            break;
        }
    }
    return block;
}

bool zone_pool_carve(struct zone_pool *pool, size_t bytes, size_t req_bytes, zone_addr_t *ret_addr)
{
    struct zone_block *block = carve_take(pool, bytes);
    if (!block) {
        return false;
    }
    struct zone_bin *bin = zone_bins_make(&pool->bins, block->bytes);
    if (bin) {
        zone_bin_hit(bin, req_bytes);
    }
    *ret_addr = block->addr;
    zone_pool_hand_out(pool, block, req_bytes);
    return true;
}

void zone_pool_absorb(struct zone_pool *pool, struct zone_block *block)
{
    zone_arena_put(carve_arena(pool, block->bytes), block);
}

/* Gives one segment back; false if there is none or the driver does not take it. */
static bool release_one(struct zone_pool *pool, struct zone_arena *arena, size_t bytes,
                        uint64_t until, size_t *given, int *ret_rc)
{
    struct zone_block *first = zone_arena_leave(arena, bytes, until);
    if (!first) {
        return false;
    }
    size_t size = first->segment->bytes;
    *ret_rc = zone_pool_driver_free(pool, first->addr);
    if (*ret_rc != ZONE_GPU_OK) {
        zone_arena_kept(arena, first);
        return false;
    }
    *given += size;
    zone_pool_gave_back(pool, size);
    zone_count_add(&pool->counts.trimmed_bytes, size);
    zone_arena_gone(first);
    return true;
}

int zone_pool_release(struct zone_pool *pool, size_t bytes, uint64_t until, size_t *given)
{
    int rc = ZONE_GPU_OK;
    struct zone_arena *arenas[] = {&pool->large, &pool->small};
    for (unsigned i = 0; i < 2; i++) {
        while (*given < bytes && rc == ZONE_GPU_OK &&
               release_one(pool, arenas[i], bytes == SIZE_MAX ? bytes : bytes - *given, until,
                           given, &rc)) {
        }
    }
    return rc;
}

int zone_pool_free_cut(struct zone_block *block, enum zone_free_by by)
{
    struct zone_pool *pool = block->pool;
    const struct zone_gpu *gpu = pool->process->gpu;
    int rc = atomic_load_explicit(&pool->fault, memory_order_relaxed);
    bool tainted = atomic_load_explicit(&block->tainted, memory_order_relaxed);
    if (rc == ZONE_GPU_OK && by == ZONE_FREE_BY_FREE) {
        /* The driver decides whether a free is allowed now, and waits as a free does. */
        rc = gpu->free_nothing(pool->ctx);
    }
    if (rc != ZONE_GPU_OK) {
        zone_block_unclaim(block);
        zone_pool_note(pool, rc);
        return rc;
    }
    zone_pool_count_back(pool, block);
    zone_pool_out_of_stream(pool, block);
    if (tainted) {
        zone_arena_retire(carve_arena(pool, block->bytes), block);
        return ZONE_GPU_OK;
    }
    struct zone_bin *bin = zone_bins_find(&pool->bins, block->bytes);
    atomic_store_explicit(&pool->open_frees, true, memory_order_relaxed);
    block->stamp = zone_fence_stamp(&pool->fence);
    zone_pool_put(pool, bin, block);
    return ZONE_GPU_OK;
}

size_t zone_pool_available(struct zone_pool *pool)
{
    size_t cut = atomic_load(&pool->small.bytes) + atomic_load(&pool->large.bytes);
    size_t reserved = zone_level_now(&pool->ledger.reserved);
    size_t live = atomic_load_explicit(&pool->whole_live, memory_order_relaxed);
    size_t whole = reserved > cut + live ? reserved - cut - live : 0;
    return cut == 0 ? whole : whole + zone_arena_idle(&pool->small) + zone_arena_idle(&pool->large);
}
