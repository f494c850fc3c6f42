/* SPDX-License-Identifier: Apache-2.0
 *
 * What a malloc does when the device has no memory left. The model ends the test when it does more
 * than poll, or gives back beside running work.
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)
enum { ROOM = 8 }; /* blocks that fit on the device */

static zone_addr_t held[ROOM];

/* A small device that the program has filled. */
static void setup(void)
{
    pool_setup();
    pool_reopen(ROOM * BLOCK, "min_free_mb:0,max_pending_mb:1048576,oom_wait_ms:100");
    for (unsigned i = 0; i < ROOM; i++) {
        held[i] = take(BLOCK);
    }
}

static uint64_t since;
static void start_clock(void)
{
    since = model_now();
}
static uint64_t elapsed(void)
{
    return model_now() - since;
}

/* Rung 3: the freed block is the only one that can serve, and its work ends soon. */
START_TEST(waits_for_a_block_of_the_class)
{
    work_on(held[0], 1, 20 * MS);
    give(held[0]);
    start_clock();
    ck_assert_uint_eq(take(BLOCK), held[0]);
    ck_assert_uint_ge(elapsed(), 20 * MS);
    ck_assert_uint_le(elapsed(), 22 * MS);
    ck_assert_uint_eq(counts().oom_rung, 1);
    ck_assert_uint_ge(counts().oom_wait_ns, 20 * MS);
    ck_assert_uint_eq(counts().ooms, 0);
    ck_assert_uint_eq(model_count(MODEL_FREE), 0);
}
END_TEST

/* Work submitted after the free is not what its block waits for, even at the last rung. */
START_TEST(does_not_wait_for_later_work)
{
    work_on(held[0], 1, 2 * MS);
    give(held[0]);
    unsigned later = work_on(held[1], 2, MODEL_FOREVER);
    ck_assert_uint_eq(take(BLOCK), held[0]);
    ck_assert(!model_is_complete(later));
}
END_TEST

START_TEST(gives_up_after_oom_wait_ms)
{
    zone_addr_t addr = 3;
    work_on(held[0], 1, MODEL_FOREVER);
    give(held[0]);
    start_clock();
    ck_assert_int_eq(try_take(BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_ge(elapsed(), 100 * MS);
    ck_assert_uint_le(elapsed(), 102 * MS);
    ck_assert_uint_eq(addr, 3);
    ck_assert_uint_eq(counts().ooms, 1);
    ck_assert_int_eq(pool->fault, 0);
}
END_TEST

START_TEST(oom_wait_ms_0_does_not_wait)
{
    zone_addr_t addr;
    pool_reopen(BLOCK, "min_free_mb:0,oom_wait_ms:0");
    zone_addr_t only = take(BLOCK);
    work_on(only, 1, MODEL_FOREVER);
    give(only);
    start_clock();
    ck_assert_int_eq(try_take(BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(elapsed(), 0);
}
END_TEST

/* A program that looks for the limit by trying neither waits nor loses what is cached. */
START_TEST(hopeless_request_fails_at_once)
{
    zone_addr_t addr;
    work_on(held[0], 1, MODEL_FOREVER);
    give(held[0]);
    start_clock();
    ck_assert_int_eq(try_take(2 * BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(elapsed(), 0);
    ck_assert_uint_eq(model_used(), ROOM * BLOCK);
    ck_assert_uint_eq(counts().ooms, 1);
    ck_assert_uint_eq(counts().oom_rung, 0);
}
END_TEST

/* Rung 4: other classes go back, those freed first, and no more than needed. */
START_TEST(gives_back_other_classes)
{
    for (unsigned i = 0; i < 6; i++) {
        work_on(held[i], 1, MS);
        give(held[i]);
    }
    zone_addr_t large = take(3 * BLOCK);
    ck_assert_uint_eq(block_at(large)->bytes, 3 * BLOCK);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_int_eq(model_is_held(held[i]), i >= 3);
    }
    ck_assert_uint_eq(counts().trims, 1);
    ck_assert_uint_eq(counts().trimmed_bytes, 3 * BLOCK);
    ck_assert_uint_eq(counts().ooms, 0);
}
END_TEST

/* The driver's memory may be in pieces: then everything ready goes back. */
START_TEST(gives_everything_back_to_a_fragmented_driver)
{
    for (unsigned i = 0; i < 6; i++) {
        give(held[i]);
    }
    model_fail(MODEL_ALLOC, 1, 1, ZONE_GPU_OUT_OF_MEMORY); /* the second try of this malloc */
    zone_addr_t large = take(2 * BLOCK);
    ck_assert(model_is_held(large));
    ck_assert_uint_eq(model_used(), 4 * BLOCK);
    ck_assert_uint_eq(counts().trims, 2);
}
END_TEST

/* The driver clears what it got back before it has it to give: then a little later. */
START_TEST(waits_while_the_driver_clears)
{
    pool_reopen(ROOM * BLOCK, "min_free_mb:0,oom_wait_ms:10000");
    zone_addr_t addrs[3];
    for (unsigned i = 0; i < 3; i++) {
        addrs[i] = take(2 * BLOCK);
    }
    for (unsigned i = 0; i < 3; i++) {
        give(addrs[i]);
    }
    model_fail(MODEL_ALLOC, 0, 30, ZONE_GPU_OUT_OF_MEMORY);
    start_clock();
    zone_addr_t large = take(6 * BLOCK);
    ck_assert(model_is_held(large));
    ck_assert_uint_le(elapsed(), 100 * MS);
    ck_assert_uint_eq(counts().oom_rung, 1);
}
END_TEST

/* But not for long: it may be a neighbour that has it. */
START_TEST(does_not_wait_for_a_neighbour)
{
    zone_addr_t addr;
    pool_reopen(ROOM * BLOCK, "min_free_mb:0,oom_wait_ms:10000");
    give(take(2 * BLOCK));
    model_fail(MODEL_ALLOC, 0, 1000000, ZONE_GPU_OUT_OF_MEMORY);
    start_clock();
    ck_assert_int_eq(try_take(BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_le(elapsed(), 1100 * MS);
    ck_assert_uint_eq(counts().ooms, 1);
}
END_TEST

/* Nor for the rest of a segment in which a block lives: nothing moves there. */
START_TEST(does_not_wait_for_holes)
{
    enum { CAPACITY_MB = 2048 };
    zone_addr_t addr;
    pool_reopen(CAPACITY_MB * ZONE_MIB, "min_free_mb:0,oom_wait_ms:10000");
    take(4096); /* before the pool knows how full the device is */
    take(4096);
    take((CAPACITY_MB - 8) * ZONE_MIB);
    size_t left = CAPACITY_MB * ZONE_MIB - model_used();
    start_clock();
    ck_assert_int_eq(try_take(left + ZONE_MIB, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(counts().oom_rung, 1); /* not hopeless by the sums */
    ck_assert_uint_le(elapsed(), 20 * MS);
}
END_TEST

/* Memory that work may still use never goes back, nor does any beside running work: the driver
 * would wait for it. */
START_TEST(keeps_what_is_not_ready)
{
    zone_addr_t addr;
    give(held[1]);
    give(held[2]);
    ck_assert_uint_eq(take(BLOCK), held[1]); /* the other one is known to be ready, too */
    work_on(held[0], 1, MODEL_FOREVER);
    give(held[0]);
    ck_assert_int_eq(try_take(2 * BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert(model_is_held(held[0]));
    ck_assert(model_is_held(held[2]));
    ck_assert_uint_ge(counts().oom_rung, 1);
}
END_TEST

/* Small blocks whose frees recorded nothing get their turn: the rung closes their epoch. */
START_TEST(closes_the_open_epoch)
{
    pool_reopen(BLOCK, "min_free_mb:0");
    zone_addr_t small[10];
    for (unsigned i = 0; i < 10; i++) {
        small[i] = take(64 * ZONE_KIB);
    }
    for (unsigned i = 0; i < 10; i++) {
        work_on(small[i], 1, MS);
        give(small[i]);
    }
    ck_assert_uint_eq(model_count(MODEL_RECORD), 0);
    zone_addr_t all = take(BLOCK);
    ck_assert_uint_eq(model_used(), BLOCK);
    give(all);
}
END_TEST

/* A neighbour may have taken what we gave back. */
static void neighbour_takes(void *arg)
{
    (void)arg;
    model_set_neighbour(ROOM * BLOCK - model_used());
}

START_TEST(neighbour_takes_what_was_given_back)
{
    zone_addr_t addr;
    for (unsigned i = 0; i < 4; i++) {
        give(held[i]);
    }
    model_hook(MODEL_ALLOC, 1, MODEL_BEFORE, neighbour_takes, NULL);
    model_hook(MODEL_ALLOC, 2, MODEL_BEFORE, neighbour_takes, NULL);
    ck_assert_int_eq(try_take(2 * BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(model_used(), 4 * BLOCK);
    ck_assert_uint_eq(counts().ooms, 1);
}
END_TEST

/* Another context of the device holds cached memory. */
START_TEST(rescues_what_other_contexts_hold)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    for (unsigned i = 0; i < 4; i++) {
        give(held[i]);
    }
    zone_addr_t addr = take_from(second, 3 * BLOCK);
    ck_assert(model_is_held(addr));
    ck_assert_uint_eq(model_used(), 7 * BLOCK);
    ck_assert_uint_eq(zone_registry_cached(0), 0);
}
END_TEST

/* All contexts together are waited for no longer than oom_wait_ms. */
START_TEST(waits_once_for_all_contexts)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    zone_addr_t none = 0;
    give(held[0]);
    zone_addr_t addr = take_from(second, BLOCK); /* rescued from the first context */
    model_launch(MODEL_CTX2, 1, addr, MODEL_FOREVER);
    give(addr);
    work_on(held[1], 1, MODEL_FOREVER);
    give(held[1]);
    start_clock();
    ck_assert_int_eq(try_take(2 * BLOCK, &none), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_ge(elapsed(), 100 * MS);
    ck_assert_uint_le(elapsed(), 103 * MS);
}
END_TEST

/* Codes other than out of memory pass as they are, without a rung. */
START_TEST(other_codes_pass)
{
    zone_addr_t addr;
    give(held[0]);
    model_fail(MODEL_ALLOC, 0, 1, 3);
    ck_assert_int_eq(try_take(BLOCK / 2, &addr), 3);
    ck_assert_uint_eq(counts().oom_rung, 0);
    ck_assert_uint_eq(counts().ooms, 0);
}
END_TEST

START_TEST(fault_while_polling)
{
    zone_addr_t addr;
    work_on(held[0], 1, MODEL_FOREVER);
    give(held[0]);
    model_fail(MODEL_QUERY, 4, 1, 700);
    start_clock();
    ck_assert_int_eq(try_take(BLOCK, &addr), 700);
    ck_assert_uint_lt(elapsed(), 50 * MS);
    ck_assert_uint_eq(counts().fault_code, 700);
}
END_TEST

/* The same when the record of the rung meets it. */
START_TEST(fault_in_the_rungs_record)
{
    zone_addr_t addr;
    give(held[0]);
    model_fail(MODEL_RECORD, 0, 1, 700);
    ck_assert_int_eq(try_take(BLOCK / 2, &addr), 700);
    ck_assert_uint_eq(counts().fault_code, 700);
}
END_TEST

/* For other calls of the program: everything ready goes back once the context is at rest. */
START_TEST(rescue)
{
    uint64_t deadline = 0;
    ck_assert_uint_eq(zone_pool_rescue(pool, &deadline), 0); /* nothing cached: calls nothing */
    ck_assert_uint_eq(model_count(MODEL_RECORD), 0);
    work_on(held[0], 1, 5 * MS);
    give(held[0]);
    give(held[1]);
    start_clock();
    ck_assert_uint_eq(zone_pool_rescue(pool, &deadline), 2 * BLOCK);
    ck_assert_uint_ge(elapsed(), 5 * MS);
    ck_assert_uint_le(elapsed(), 7 * MS);
    ck_assert_uint_eq(deadline, since + 100 * MS);
    ck_assert_uint_eq(zone_registry_rescue(0, NULL), 0);
    work_on(held[2], 1, MODEL_FOREVER);
    give(held[2]);
    start_clock();
    ck_assert_uint_eq(zone_registry_rescue(0, NULL), 0);
    ck_assert_uint_ge(elapsed(), 100 * MS);
    ck_assert_uint_le(elapsed(), 102 * MS);
    ck_assert_uint_eq(zone_registry_rescue(1, NULL), 0); /* another device */
    ck_assert_uint_le(elapsed(), 102 * MS);
}
END_TEST

static Suite *ladder_suite(void)
{
    Suite *suite = suite_create("ladder");
    TCase *tcase = tcase_create("ladder");
    tcase_add_checked_fixture(tcase, setup, pool_teardown);
    tcase_add_test(tcase, waits_for_a_block_of_the_class);
    tcase_add_test(tcase, does_not_wait_for_later_work);
    tcase_add_test(tcase, gives_up_after_oom_wait_ms);
    tcase_add_test(tcase, oom_wait_ms_0_does_not_wait);
    tcase_add_test(tcase, hopeless_request_fails_at_once);
    tcase_add_test(tcase, gives_back_other_classes);
    tcase_add_test(tcase, gives_everything_back_to_a_fragmented_driver);
    tcase_add_test(tcase, waits_while_the_driver_clears);
    tcase_add_test(tcase, does_not_wait_for_a_neighbour);
    tcase_add_test(tcase, does_not_wait_for_holes);
    tcase_add_test(tcase, keeps_what_is_not_ready);
    tcase_add_test(tcase, closes_the_open_epoch);
    tcase_add_test(tcase, neighbour_takes_what_was_given_back);
    tcase_add_test(tcase, rescues_what_other_contexts_hold);
    tcase_add_test(tcase, waits_once_for_all_contexts);
    tcase_add_test(tcase, other_codes_pass);
    tcase_add_test(tcase, fault_while_polling);
    tcase_add_test(tcase, fault_in_the_rungs_record);
    tcase_add_test(tcase, rescue);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(ladder_suite());
}
