/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes back to the driver: only what is ready, those freed first, inside frees when the device
 * is nearly full or max_cached_mb says so. Also what is waited for at exit (zone_pool_settle).
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)

/* Asks until all recorded epochs are ready. */
static void learn_what_is_ready(void)
{
    int fault = 0;
    zone_fence_ask(&pool->fence, model_gpu(), zone_fence_stamp(&pool->fence) - 1, &fault);
}

START_TEST(only_ready_blocks_go_back)
{
    zone_addr_t ready = take(BLOCK);
    zone_addr_t busy = take(BLOCK);
    zone_addr_t live = take(BLOCK);
    give(ready);
    work_on(busy, 1, MS);
    give(busy);
    int fault = 0;
    ck_assert(zone_fence_ask(&pool->fence, model_gpu(), block_at(ready)->stamp, &fault));
    ck_assert_uint_eq(zone_fence_ready(&pool->fence), block_at(ready)->stamp);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), BLOCK);
    ck_assert(!model_is_held(ready));
    ck_assert(model_is_held(busy));
    ck_assert(model_is_held(live));
    ck_assert_ptr_null(zone_ptrmap_get(ready));
    struct zone_counters now = counts();
    ck_assert_uint_eq(now.trims, 1);
    ck_assert_uint_eq(now.trimmed_bytes, BLOCK);
    ck_assert_uint_eq(now.driver_free_calls, 1);
    ck_assert_uint_eq(now.reserved_bytes.current, 2 * BLOCK);
    ck_assert_uint_eq(now.segment.current, 2);
}
END_TEST

START_TEST(those_freed_first_go_first)
{
    enum { BLOCKS = 32 };
    zone_addr_t addrs[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        addrs[i] = take((1 + i * 7 % 4) * ZONE_MIB);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        give(addrs[i]);
    }
    learn_what_is_ready();
    ck_assert_uint_ge(zone_pool_give_back(pool, 20 * ZONE_MIB), 20 * ZONE_MIB);
    ck_assert_uint_le(counts().trimmed_bytes, 24 * ZONE_MIB);
    /* By age, an eighth of the epochs at a time. */
    for (unsigned i = 0; i < BLOCKS; i++) {
        ck_assert(i > 4 || !model_is_held(addrs[i]));
        ck_assert(i < 16 || model_is_held(addrs[i]));
    }
    ck_assert_uint_eq(zone_pool_give_back(pool, 0), 0);
    size_t left = zone_ledger_cached(&pool->ledger);
    ck_assert_uint_eq(zone_pool_give_back(pool, ZONE_GIB), left);
    ck_assert_uint_eq(model_used(), 0);
}
END_TEST

START_TEST(refused_by_the_driver)
{
    zone_addr_t first = take(BLOCK);
    zone_addr_t second = take(BLOCK);
    give(first);
    give(second);
    learn_what_is_ready();
    model_fail(MODEL_FREE, 0, 1, ZONE_GPU_INVALID_VALUE);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 0);
    ck_assert_uint_eq(counts().cached_bytes.current, 2 * BLOCK);
    ck_assert_uint_eq(counts().trims, 0);
    ck_assert_int_eq(pool->fault, 0);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 2 * BLOCK);
    give(take(BLOCK));
    learn_what_is_ready();
    model_fail(MODEL_FREE, 0, 1, 700);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 0);
    ck_assert_uint_eq(counts().fault_code, 700);
}
END_TEST

/* The driver gave a freed block's memory to somebody else: it must not be freed under them. */
START_TEST(superseded_blocks_do_not_go_back)
{
    zone_addr_t addr = take(BLOCK);
    give(addr);
    learn_what_is_ready();
    ck_assert(zone_limit_reserve(0, BLOCK));
    ck_assert(zone_pool_adopt(pool, addr, BLOCK, BLOCK, 0));
    ck_assert_int_eq(block_at(addr)->state, ZONE_BLOCK_LIVE);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 0);
    ck_assert(model_is_held(addr));
    ck_assert_uint_ne(take(BLOCK), addr);
}
END_TEST

/* A device with room for so many blocks above min_free. */
static void small_device(unsigned blocks, const char *conf)
{
    pool_reopen(2 * ZONE_GIB, conf);
    model_set_neighbour(2 * ZONE_GIB - 64 * ZONE_MIB - blocks * BLOCK);
    model_advance(200 * MS); /* long enough for another look at the device */
}

/* Below min_free frees behave as natively: they wait and give back until it is free again. */
START_TEST(tight_device)
{
    zone_addr_t addrs[8];
    small_device(6, "min_free_mb:64");
    for (unsigned i = 0; i < 8; i++) {
        addrs[i] = take(BLOCK);
    }
    ck_assert(pool->tight);
    unsigned work = work_on(addrs[0], 1, MS);
    work_on(addrs[1], 1, MS);
    give(addrs[0]);
    ck_assert(model_is_complete(work));
    ck_assert(!model_is_held(addrs[0]));
    ck_assert_uint_eq(model_used(), 7 * BLOCK);
    ck_assert(pool->tight);
    give(addrs[1]);
    ck_assert_uint_eq(model_used(), 6 * BLOCK);
    /* min_free is free, but a quarter more is wanted before frees are fast again. */
    ck_assert(pool->tight);
    give(addrs[2]);
    ck_assert_uint_eq(model_used(), 6 * BLOCK);
    ck_assert_uint_eq(take(BLOCK), addrs[2]);
    ck_assert_uint_eq(counts().trimmed_bytes, 2 * BLOCK);
    model_set_neighbour(0);
    give(addrs[2]);
    ck_assert(!pool->tight);
    unsigned stalls = model_stalls();
    work_on(addrs[3], 1, MODEL_FOREVER);
    give(addrs[3]);
    ck_assert_uint_eq(model_stalls(), stalls);
}
END_TEST

/* Small frees too. */
START_TEST(tight_device_small_frees)
{
    small_device(0, "min_free_mb:256");
    zone_addr_t small = take(4096);
    ck_assert(pool->tight);
    unsigned work = work_on(small, 1, MS);
    give(small);
    ck_assert(model_is_complete(work));
    ck_assert_uint_eq(model_used(), 0);
}
END_TEST

/* A small device is not all headroom. */
START_TEST(small_device_keeps_a_share)
{
    pool_reopen(ZONE_GIB, "min_free_mb:1048576");
    ck_assert_uint_eq(pool->min_free, ZONE_GIB / 16);
    take(512 * ZONE_MIB);
    ck_assert(!pool->tight);
}
END_TEST

/* Driver memory is looked at when much was taken, or after a while, not at every growth. */
START_TEST(looks_seldom)
{
    for (unsigned i = 0; i < 100; i++) {
        take(ZONE_MIB);
    }
    ck_assert_uint_eq(model_count(MODEL_MEM_INFO), 1); /* the pool's first */
    model_advance(200 * MS);
    take(ZONE_MIB);
    ck_assert_uint_eq(model_count(MODEL_MEM_INFO), 2);
    take(ZONE_MIB);
    ck_assert_uint_eq(model_count(MODEL_MEM_INFO), 2);
    take(63 * ZONE_GIB);
    ck_assert_uint_eq(model_count(MODEL_MEM_INFO), 3);
    ck_assert(!pool->tight);
    take(700 * ZONE_MIB);
    ck_assert(pool->tight);
}
END_TEST

/* Neighbours' memory is seen at the next look. */
START_TEST(sees_neighbours)
{
    take(ZONE_MIB);
    model_set_neighbour(64 * ZONE_GIB - 100 * ZONE_MIB);
    take(ZONE_MIB);
    ck_assert(!pool->tight);
    model_advance(100 * MS);
    take(ZONE_MIB);
    ck_assert(pool->tight);
    model_set_neighbour(0);
    model_advance(100 * MS);
    take(ZONE_MIB);
    ck_assert(!pool->tight);
}
END_TEST

START_TEST(max_cached_bounds_the_cache)
{
    pool_reopen(64 * ZONE_GIB, "max_cached_mb:48");
    zone_addr_t addrs[8];
    for (unsigned i = 0; i < 8; i++) {
        addrs[i] = take(BLOCK);
    }
    for (unsigned i = 0; i < 8; i++) {
        work_on(addrs[i], 1, MS);
        give(addrs[i]);
        ck_assert_uint_le(zone_ledger_cached(&pool->ledger), 3 * BLOCK);
    }
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_int_eq(model_is_held(addrs[i]), i >= 5);
    }
    ck_assert_uint_eq(counts().trimmed_bytes, 5 * BLOCK);
}
END_TEST

START_TEST(max_cached_0_keeps_nothing)
{
    pool_reopen(64 * ZONE_GIB, "max_cached_mb:0");
    for (unsigned i = 0; i < 4; i++) {
        zone_addr_t addr = take(BLOCK);
        work_on(addr, 1, MS);
        give(addr);
        ck_assert_uint_eq(model_used(), 0);
    }
    for (unsigned i = 0; i < 64; i++) {
        give(take(512));
        ck_assert_uint_le(model_used(), 16 * 512);
    }
}
END_TEST

/* What a fault leaves: nothing more is tried. */
START_TEST(max_cached_after_a_fault)
{
    pool_reopen(64 * ZONE_GIB, "max_cached_mb:0");
    zone_addr_t addr = take(BLOCK);
    work_on(addr, 1, MS);
    model_fail(MODEL_WAIT, 0, 1, 700);
    ck_assert_int_eq(try_give(addr), 700);
    ck_assert_uint_eq(model_count(MODEL_FREE), 0);
}
END_TEST

/* At exit: what the program's frees would natively have waited for, nothing later. */
START_TEST(settle_waits_for_frees)
{
    ck_assert(!zone_pool_settle(pool));
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, 5 * MS);
    give(addr);
    zone_addr_t second = take(BLOCK);
    work_on(second, 2, MODEL_FOREVER);
    give_in_stream(second);
    uint64_t start = model_now();
    ck_assert(zone_pool_settle(pool));
    ck_assert(model_is_complete(work));
    ck_assert_uint_le(model_now() - start, 7 * MS);
    ck_assert(!zone_pool_settle(pool));
    give(take(BLOCK));
    model_set_fault(700);
    zone_pool_settle(pool);
    ck_assert_uint_eq(counts().fault_code, 700);
    unsigned before = calls();
    ck_assert(!zone_pool_settle(pool));
    ck_assert_uint_eq(calls(), before);
}
END_TEST

/* Nor for as long as another thread captures, during which nothing may be asked. */
START_TEST(settle_waits_beside_a_capture)
{
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, 5 * MS);
    give(addr);
    model_set_capture(true);
    uint64_t start = model_now();
    ck_assert(zone_pool_settle(pool));
    model_set_capture(false);
    ck_assert(model_is_complete(work));
    ck_assert_uint_le(model_now() - start, 7 * MS);
    ck_assert_uint_eq(counts().fault_code, 0);
}
END_TEST

/* zone_empty_cache: all that was freed by now goes back after one wait, for work of before alone.
 */
START_TEST(drained_blocks_go_back)
{
    zone_addr_t live = take(BLOCK);
    zone_addr_t small = take(4096);
    zone_addr_t large = take(BLOCK);
    unsigned work = work_on(large, 1, 5 * MS);
    give(large);
    give(small); /* records nothing */
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 0);
    uint64_t start = model_now();
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert(model_is_complete(work));
    ck_assert_uint_le(model_now() - start, 7 * MS);
    zone_pool_give_back(pool, SIZE_MAX);
    ck_assert(!model_is_held(large));
    ck_assert(model_is_held(live));
    ck_assert_uint_eq(zone_ledger_cached(&pool->ledger), 0);
    ck_assert_int_eq(pool->giving, 0);
}
END_TEST

static void other_thread_submits(void *arg)
{
    (void)arg;
    work_on(0, 2, MODEL_FOREVER);
    ck_assert_int_eq(pool->giving, 1); /* whoever destroys the context waits */
}

START_TEST(drain_waits_for_earlier_work_only)
{
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, 5 * MS);
    give(addr);
    model_hook(MODEL_WAIT, 0, MODEL_BEFORE, other_thread_submits, NULL);
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert(model_is_complete(work));
}
END_TEST

/* Nothing that could go back: the driver is not called. */
START_TEST(drain_of_nothing)
{
    zone_addr_t addr = take(BLOCK);
    unsigned before = calls();
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert_uint_eq(calls(), before);
    give(addr);
    model_set_capture(true);
    ck_assert_int_eq(zone_pool_drain(pool), ZONE_GPU_REFUSED);
    model_set_capture(false);
    model_set_fault(700);
    ck_assert_int_eq(zone_pool_drain(pool), 700);
    ck_assert_uint_eq(counts().fault_code, 700);
    before = calls();
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert_uint_eq(calls(), before);
    zone_registry_drop(pool);
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert_uint_eq(calls(), before);
}
END_TEST

/* As many records are kept as can be: the next one has to wait for one of them. */
START_TEST(drain_with_a_full_ring)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:1048576");
    static zone_addr_t addrs[ZONE_FENCE_MARKS + 8];
    for (unsigned i = 0; i < ZONE_FENCE_MARKS + 8; i++) {
        addrs[i] = take(2 * ZONE_MIB);
    }
    for (unsigned i = 0; i < ZONE_FENCE_MARKS; i++) {
        work_on(addrs[i], 1, MS);
        give(addrs[i]);
    }
    for (unsigned i = ZONE_FENCE_MARKS; i < ZONE_FENCE_MARKS + 8; i++) {
        work_on(addrs[i], 1, MS);
        give_in_stream(addrs[i]); /* waits for nothing, so that it records nothing */
    }
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    zone_pool_give_back(pool, SIZE_MAX);
    ck_assert_uint_eq(zone_ledger_cached(&pool->ledger), 0);
}
END_TEST

static Suite *trim_suite(void)
{
    Suite *suite = suite_create("trim");
    TCase *tcase = tcase_create("trim");
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_test(tcase, only_ready_blocks_go_back);
    tcase_add_test(tcase, those_freed_first_go_first);
    tcase_add_test(tcase, refused_by_the_driver);
    tcase_add_test(tcase, superseded_blocks_do_not_go_back);
    tcase_add_test(tcase, tight_device);
    tcase_add_test(tcase, tight_device_small_frees);
    tcase_add_test(tcase, small_device_keeps_a_share);
    tcase_add_test(tcase, looks_seldom);
    tcase_add_test(tcase, sees_neighbours);
    tcase_add_test(tcase, max_cached_bounds_the_cache);
    tcase_add_test(tcase, max_cached_0_keeps_nothing);
    tcase_add_test(tcase, max_cached_after_a_fault);
    tcase_add_test(tcase, settle_waits_for_frees);
    tcase_add_test(tcase, settle_waits_beside_a_capture);
    tcase_add_test(tcase, drained_blocks_go_back);
    tcase_add_test(tcase, drain_waits_for_earlier_work_only);
    tcase_add_test(tcase, drain_of_nothing);
    tcase_add_test(tcase, drain_with_a_full_ring);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(trim_suite());
}
