/* SPDX-License-Identifier: Apache-2.0
 *
 * zero_fill and junk_fill. The fixture expects of every block that the program gets the byte that
 * the options promise, throughout its class; the model ends a test when a fill meets memory in use.
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)

static void open_zero(void)
{
    pool_setup();
    pool_reopen(64 * ZONE_GIB, "zero_fill:True");
}

static const size_t sizes[] = {1, 700, 4096, ZONE_MIB - 1, ZONE_MIB, 3 * ZONE_MIB / 2, BLOCK};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Blocks of all sizes, over and over: the fixture looks at each. */
static void churn(void)
{
    zone_addr_t addrs[3 * SIZES];
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 3 * SIZES; i++) {
            addrs[i] = take(sizes[i % SIZES]);
            work_on(addrs[i], i % 4, round % 3 * MS);
        }
        for (unsigned i = 0; i < 3 * SIZES; i++) {
            give(addrs[(i * 5) % (3 * SIZES)]);
        }
        model_advance(MS);
    }
}

static const char *const confs[] = {
    "zero_fill:True",
    "zero_fill:True,max_cached_mb:0",
    "zero_fill:True,free_order:sync",
    "zero_fill:True,free_order:unsafe",
    "zero_fill:True,max_pending_mb:0",
    "zero_fill:True,large_segment_size_mb:20",
    "junk_fill:True",
    "junk_fill:True,max_split_size_mb:24",
    "zero_fill:True,junk_fill:True",
};

START_TEST(every_block_is_filled)
{
    pool_reopen(_i % 2 ? 512 * ZONE_MIB : 64 * ZONE_GIB, confs[_i / 2]);
    churn();
    struct zone_counters now = counts();
    ck_assert_uint_gt(now.hits, 0);
    ck_assert_uint_gt(now.fills, 0);
    ck_assert_uint_ge(now.filled_bytes, now.fills * 512);
}
END_TEST

START_TEST(old_drivers_fill_too)
{
    pool_reopen_without_events(64 * ZONE_GIB, "zero_fill:True");
    churn();
    ck_assert_uint_gt(counts().hits, 0);
}
END_TEST

START_TEST(off_by_default)
{
    pool_reopen(64 * ZONE_GIB, "");
    churn();
    ck_assert_uint_eq(counts().fills, 0);
    ck_assert_uint_eq(model_count(MODEL_FILL_OPEN), 0);
}
END_TEST

/* One fill a free, of what was freed; nothing of a driver allocation that is zero already. */
START_TEST(filled_once)
{
    zone_addr_t addr = take(BLOCK);
    ck_assert_uint_eq(counts().fills, 0);
    give(addr);
    ck_assert_uint_eq(take(BLOCK), addr);
    struct zone_counters now = counts();
    ck_assert_uint_eq(now.fills, 1);
    ck_assert_uint_eq(now.filled_bytes, BLOCK);
    ck_assert_uint_eq(now.driver_alloc_calls, 1);
}
END_TEST

START_TEST(busy_blocks_are_not_filled)
{
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, MODEL_FOREVER);
    give(addr);
    take(BLOCK);
    ck_assert_uint_eq(counts().fills, 0);
    model_finish(work);
    take(BLOCK);
    ck_assert_uint_eq(counts().fills, 1);
}
END_TEST

/* A kernel that occupies the device and waits for what comes after the allocation keeps the fill
 * from running: the allocation takes other memory. */
START_TEST(allocation_does_not_wait_for_a_fill)
{
    zone_addr_t addr = take(BLOCK);
    zone_addr_t small = take(4096);
    model_set_fill_ns(MODEL_FOREVER);
    give(small);
    give(addr);
    ck_assert_uint_ne(take(BLOCK), addr);
    ck_assert_uint_ne(take(4096), small);
    ck_assert_uint_eq(model_stalls(), 0);
    ck_assert_uint_eq(model_count(MODEL_SLEEP), 0);
    model_finish_fills();
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

/* Nor does a free. The record of the second one covers the fill of the first. */
START_TEST(frees_do_not_wait_for_fills)
{
    zone_addr_t first = take(BLOCK);
    zone_addr_t second = take(BLOCK);
    model_set_fill_ns(MODEL_FOREVER);
    give(first);
    give(second);
    ck_assert_uint_eq(counts().fills, 1);
    ck_assert_uint_eq(model_stalls(), 0);
    ck_assert_uint_eq(model_count(MODEL_SLEEP), 0);
    model_finish_fills();
}
END_TEST

START_TEST(no_fill_beside_a_capture)
{
    zone_addr_t addr = take(BLOCK);
    zone_addr_t other = take(BLOCK);
    give(other);
    take(BLOCK);
    unsigned fills = model_count(MODEL_FILL);
    model_fail(MODEL_RECORD, 0, 1, ZONE_GPU_REFUSED);
    give(addr);
    model_set_capture(true);
    zone_addr_t captured;
    ck_assert_int_eq(zone_pool_alloc_captured(pool, BLOCK, &captured), 0);
    model_expect(captured, BLOCK, 0);
    ck_assert_uint_ne(captured, addr);
    ck_assert_uint_eq(model_count(MODEL_FILL), fills);
    model_set_capture(false);
}
END_TEST

/* What the driver gives for little memory during a capture is zero as well. */
START_TEST(captured_small_memory_is_zero)
{
    zone_addr_t addr;
    model_set_capture(true);
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 512, &addr), 0);
    model_expect(addr, 512, 0);
    model_set_capture(false);
    give(addr);
    ck_assert_uint_eq(model_used(), 0);
}
END_TEST

START_TEST(failed_fills_are_made_up_for)
{
    static const enum model_call failing[] = {MODEL_FILL_OPEN, MODEL_FILL, MODEL_FILL_MARK};
    zone_registry_drop(pool);
    model_fail(failing[_i], 0, 1, ZONE_GPU_OUT_OF_MEMORY);
    pool = pool_of(MODEL_CTX, 0);
    zone_addr_t addr = take(BLOCK);
    give(addr);
    zone_addr_t first = take(BLOCK); /* starts it once more, if need be */
    zone_addr_t second = take(BLOCK);
    ck_assert(first == addr || second == addr);
}
END_TEST

START_TEST(a_fault_in_a_fill_is_the_programs)
{
    zone_addr_t addr = take(BLOCK);
    model_fail(MODEL_FILL, 0, 1, 719);
    try_give(addr);
    ck_assert_int_eq((int)counts().fault_code, 719);
}
END_TEST

/* Segments go back though a part of them was not filled when memory ran out. */
START_TEST(out_of_memory_fills_and_gives_back)
{
    pool_reopen(64 * ZONE_MIB, "zero_fill:True");
    zone_addr_t parts[3 * 7];
    for (unsigned i = 0; i < 21; i++) {
        parts[i] = take(300 * 1024);
    }
    model_set_fill_ns(MS);
    for (unsigned i = 0; i < 21; i++) {
        give(parts[i]);
    }
    zone_addr_t all = take(64 * ZONE_MIB);
    ck_assert_uint_eq(model_used(), 64 * ZONE_MIB);
    give(all);
    take(48 * ZONE_MIB);
}
END_TEST

START_TEST(the_last_rung_waits_for_a_fill)
{
    pool_reopen(16 * ZONE_MIB, "zero_fill:True,min_free_mb:0");
    zone_addr_t addr = take(BLOCK);
    model_set_fill_ns(5 * MS);
    give(addr);
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

START_TEST(a_bounded_cache_stays_bounded)
{
    pool_reopen(64 * ZONE_GIB, "zero_fill:True,max_cached_mb:0");
    model_set_fill_ns(MS);
    for (unsigned i = 0; i < 10; i++) {
        give(take(BLOCK));
        ck_assert_uint_eq(model_used(), 0);
    }
    ck_assert_uint_eq(counts().fills, 0);
}
END_TEST

/* More frees become ready one by one than there are batches. */
START_TEST(batches_run_out)
{
    enum { BLOCKS = 2 * ZONE_FILL_BATCHES };
    unsigned works[BLOCKS];
    pool_reopen(64 * ZONE_GIB, "zero_fill:True,max_pending_mb:1000");
    for (unsigned i = 0; i < BLOCKS; i++) {
        zone_addr_t addr = take(2 * ZONE_MIB);
        works[i] = work_on(addr, i, MODEL_FOREVER);
        give(addr);
    }
    model_set_fill_ns(MODEL_FOREVER);
    for (unsigned i = 0; i < BLOCKS; i++) {
        model_finish(works[i]);
        zone_fill_advance(pool);
    }
    ck_assert_uint_eq(counts().fills, ZONE_FILL_BATCHES);
    model_set_fill_ns(0);
    model_finish_fills();
    zone_fill_advance(pool);
    for (unsigned i = 0; i < BLOCKS; i++) {
        take(2 * ZONE_MIB);
    }
    ck_assert_uint_eq(counts().driver_alloc_calls, BLOCKS);
}
END_TEST

START_TEST(junk_waits_for_new_memory)
{
    pool_reopen(64 * ZONE_GIB, "junk_fill:True");
    model_allow_naps(true);
    model_set_fill_ns(MS);
    take(BLOCK);
    take(4096);
    struct zone_counters now = counts();
    ck_assert_uint_eq(now.fills, 2);
    ck_assert_uint_eq(now.filled_bytes, BLOCK + 2 * ZONE_MIB);
}
END_TEST

/* Memory that somebody else has by now is not filled. */
START_TEST(superseded_blocks_are_not_filled)
{
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, MODEL_FOREVER);
    give(addr);
    model_finish(work);
    ck_assert(zone_limit_reserve(0, BLOCK));
    ck_assert(zone_pool_adopt(pool, addr, BLOCK, BLOCK, 0));
    model_program_holds(addr, BLOCK);
    ck_assert_uint_ne(take(BLOCK), addr);
    ck_assert_uint_eq(counts().fills, 0);
}
END_TEST

START_TEST(a_dead_contexts_fills_are_forgotten)
{
    zone_addr_t addr = take(BLOCK);
    zone_addr_t busy = take(BLOCK);
    model_set_fill_ns(MODEL_FOREVER);
    work_on(busy, 1, MODEL_FOREVER);
    give(addr);
    give(busy);
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    model_set_fill_ns(0);
    pool = pool_of(MODEL_CTX, 0);
    churn();
}
END_TEST

static Suite *fill_suite(void)
{
    Suite *suite = suite_create("fill");
    TCase *tcase = tcase_create("fill");
    tcase_add_checked_fixture(tcase, open_zero, pool_teardown);
    tcase_add_loop_test(tcase, every_block_is_filled, 0, 2 * sizeof(confs) / sizeof(confs[0]));
    tcase_add_test(tcase, old_drivers_fill_too);
    tcase_add_test(tcase, off_by_default);
    tcase_add_test(tcase, filled_once);
    tcase_add_test(tcase, busy_blocks_are_not_filled);
    tcase_add_test(tcase, allocation_does_not_wait_for_a_fill);
    tcase_add_test(tcase, frees_do_not_wait_for_fills);
    tcase_add_test(tcase, no_fill_beside_a_capture);
    tcase_add_test(tcase, captured_small_memory_is_zero);
    tcase_add_loop_test(tcase, failed_fills_are_made_up_for, 0, 3);
    tcase_add_test(tcase, a_fault_in_a_fill_is_the_programs);
    tcase_add_test(tcase, out_of_memory_fills_and_gives_back);
    tcase_add_test(tcase, the_last_rung_waits_for_a_fill);
    tcase_add_test(tcase, a_bounded_cache_stays_bounded);
    tcase_add_test(tcase, batches_run_out);
    tcase_add_test(tcase, junk_waits_for_new_memory);
    tcase_add_test(tcase, superseded_blocks_are_not_filled);
    tcase_add_test(tcase, a_dead_contexts_fills_are_forgotten);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(fill_suite());
}
