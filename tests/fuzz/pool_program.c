/* SPDX-License-Identifier: Apache-2.0
 *
 * A program on the pool over the model of a GPU, driven by random choices, with a table of what the
 * program holds as oracle: work on many streams, frees in every way, clock and neighbours that
 * move, records and allocations that fail, captures, two contexts, a context that ends. The model
 * says at once when a rule is broken; after each step the counters must be the table's.
 */
#include "pool_program.h"

#include "pool_fixture.h"

#include <string.h>

enum { SLOTS = 48 };

static const char *const confs[] = {
    "",
    "max_pending_mb:0",
    "max_pending_mb:16,max_cached_mb:64",
    "free_order:sync",
    "free_order:event,min_free_mb:64",
    "oom_wait_ms:5,max_cached_mb:0",
    "roundup_power2_divisions:4,max_pending_mb:64",
    "min_free_mb:0,oom_wait_ms:0",
    "large_segment_size_mb:20",
    "max_split_size_mb:24,max_cached_mb:100",
    "large_segment_size_mb:32,max_non_split_rounding_mb:40,max_pending_mb:16",
    "zero_fill:True",
    "junk_fill:True,max_cached_mb:64",
    "zero_fill:True,max_cached_mb:0,oom_wait_ms:20",
    "zero_fill:True,large_segment_size_mb:20,free_order:sync",
    "junk_fill:True,max_split_size_mb:24,min_free_mb:64",
    "zero_fill:True,max_pending_mb:16,free_order:unsafe",
};

struct held {
    zone_addr_t addr;
    size_t bytes, class;
    void *ctx;
};

static const struct pool_choices *choices;
static struct held table[SLOTS];
static struct zone_pool *pools[2];
static void *const contexts[2] = {MODEL_CTX, MODEL_CTX2};

static unsigned random_below(unsigned n)
{
    return choices->below(choices->arg, n);
}

static size_t random_size(void)
{
    static const size_t sizes[] = {
        1,        512,          700,           4096,         65536, ZONE_MIB - 1,
        ZONE_MIB, 3 * ZONE_MIB, 16 * ZONE_MIB, 50 * ZONE_MIB};
    unsigned pick = random_below(sizeof(sizes) / sizeof(sizes[0]));
    return random_below(3) ? sizes[random_below(pick + 1)] : sizes[pick];
}

/* The oracle: what each pool must say that the program holds. */
static void check_counts(unsigned which)
{
    struct zone_counters now;
    size_t bytes = 0, requested = 0, number = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        if (table[i].addr && table[i].ctx == contexts[which]) {
            bytes += table[i].class;
            requested += table[i].bytes;
            number++;
        }
    }
    zone_counters_init(&now);
    zone_pool_count(pools[which], &now);
    const char *wrong = zone_counters_check(&now);
    ck_assert_msg(!wrong, "does not add up: %s", wrong);
    ck_assert_uint_eq(now.allocated_bytes.current, bytes);
    ck_assert_uint_eq(now.requested_bytes.current, requested);
    ck_assert_uint_eq(now.allocation.current, number);
    ck_assert_uint_ge(now.reserved_bytes.current, bytes);
}

static void check_reserved(void)
{
    size_t reserved = zone_level_now(&pools[0]->ledger.reserved);
    reserved += zone_level_now(&pools[1]->ledger.reserved);
    ck_assert_uint_eq(reserved, model_used());
}

static void step_alloc(struct held *slot)
{
    unsigned which = random_below(4) == 0;
    size_t bytes = random_size();
    zone_addr_t addr = 0;
    model_set_current(contexts[which]);
    model_enter_malloc();
    int rc = zone_pool_alloc(pools[which], bytes, &addr);
    model_leave_malloc();
    if (rc != ZONE_GPU_OK) {
        ck_assert_int_eq(rc, ZONE_GPU_OUT_OF_MEMORY);
        return;
    }
    model_handed_out(addr, bytes);
    for (unsigned i = 0; i < SLOTS; i++) {
        bool apart = addr >= table[i].addr + table[i].class || table[i].addr >= addr + bytes;
        ck_assert_msg(!table[i].addr || apart, "two owners of the same bytes");
    }
    const struct zone_block *block = block_at(addr);
    if (pools[which]->fill.on) {
        model_expect(addr, block->bytes, pools[which]->fill.with);
    }
    model_program_holds(addr, block->bytes);
    ck_assert_uint_eq(addr % (bytes >= 2 * ZONE_MIB ? 2 * ZONE_MIB : 512), 0);
    ck_assert_ptr_eq(block->pool, pools[which]);
    *slot = (struct held){addr, bytes, block->bytes, contexts[which]};
}

static void step_free(struct held *slot)
{
    struct zone_block *block = block_at(slot->addr);
    bool in_stream = random_below(4) == 0;
    if (random_below(40) == 0) {
        zone_pool_taint(block);
    }
    ck_assert(zone_block_claim(block));
    model_given_back(slot->addr, block->bytes);
    model_allow_free_in_use(true); /* of a tainted block; the pool's own gives are of ready ones */
    int rc = zone_pool_free(block, in_stream ? ZONE_FREE_BY_STREAM : ZONE_FREE_BY_FREE);
    model_allow_free_in_use(false);
    ck_assert_int_eq(rc, ZONE_GPU_OK);
    /* Twice; unless it was given back for real, and its record may be another's. */
    if (zone_ptrmap_get(slot->addr) == block) {
        ck_assert(!zone_block_claim(block));
    }
    slot->addr = 0;
}

/* The world goes on. */
static void step_world(void)
{
    switch (random_below(10)) {
    case 0:
    case 1:
        model_advance(random_below(20) * MS);
        break;
    case 2:
        model_set_neighbour(random_below(4) * 50 * ZONE_MIB);
        break;
    case 3:
        model_fail(MODEL_RECORD, random_below(5), 1, ZONE_GPU_REFUSED);
        break;
    case 4:
        model_fail(MODEL_ALLOC, random_below(5), 1, ZONE_GPU_OUT_OF_MEMORY);
        break;
    case 5:
        model_fail(MODEL_QUERY, random_below(20), 1, ZONE_GPU_REFUSED);
        break;
    case 6:
        atomic_store(&pool_process.host_watched, random_below(3) == 0);
        break;
    case 7:
        zone_registry_rescue(0, NULL);
        break;
    case 8:
        if (pools[0]->fill.on) {
            /* New memory that could not be filled is handed out as it is. */
            unsigned call = pools[0]->fill.fresh ? MODEL_FILL_DONE : MODEL_FILL + random_below(2);
            model_fail((enum model_call)call, random_below(5), 1, ZONE_GPU_REFUSED);
        }
        break;
    default:
        zone_pool_settle(pools[0]);
        break;
    }
}

/* The second context ends with all its memory, and another begins. */
static void step_reset(void)
{
    zone_registry_drop(pools[1]);
    model_destroy(MODEL_CTX2);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (table[i].addr && table[i].ctx == MODEL_CTX2) {
            ck_assert_ptr_null(zone_ptrmap_get(table[i].addr));
            table[i].addr = 0;
        }
    }
    pools[1] = pool_of(MODEL_CTX2, 0);
}

static void step(void)
{
    struct held *slot = &table[random_below(SLOTS)];
    unsigned pick = random_below(100);
    if (pick == 0) {
        step_reset();
    } else if (pick < 8) {
        step_world();
    } else if (slot->addr == 0) {
        step_alloc(slot);
    } else if (pick < 50) {
        model_launch(slot->ctx, random_below(4), slot->addr, random_below(3) * MS);
    } else {
        step_free(slot);
    }
}

void pool_program_run(const struct pool_choices *from, unsigned conf)
{
    choices = from;
    /* Small blocks are cut on the larger device only. */
    size_t capacity = conf % 2 ? ZONE_GIB : 512 * ZONE_MIB;
    pool_reopen(capacity, confs[conf % (sizeof(confs) / sizeof(confs[0]))]);
    model_set_fill_ns(MS / 2);
    model_allow_naps(pool->fill.fresh);
    pools[0] = pool;
    pools[1] = pool_of(MODEL_CTX2, 0);
    memset(table, 0, sizeof(table));
    while (choices->more(choices->arg)) {
        step();
        check_counts(0);
        check_counts(1);
        check_reserved();
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (table[i].addr) {
            step_free(&table[i]);
        }
    }
    /* Nothing is lost: all of it can be given back, once nothing fails any more. */
    model_fail_none();
    model_advance(10000 * MS);
    for (unsigned i = 0; i < 2 && model_used() > 0; i++) {
        zone_registry_rescue(0, NULL);
    }
    ck_assert_uint_eq(model_used(), 0);
}
