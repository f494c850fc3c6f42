/* SPDX-License-Identifier: Apache-2.0
 *
 * garbage_collection_threshold: which cached memory goes, and when; initial_pool_size_mb: what is
 * held from the start, and until when.
 */
#include "initial.h"
#include "pool_fixture.h"

#include <stdio.h>

#define BLOCK (16 * ZONE_MIB)
enum { SIZES = 8 };

static zone_addr_t held[SIZES];
static char said[ZONE_OPTIONS_LINE];
static unsigned times_said;

static void say(const char *line)
{
    times_said++;
    snprintf(said, sizeof(said), "%s", line);
}

static void setup(void)
{
    pool_setup();
    pool_process.say = say;
    times_said = 0;
}

static void open_pool(const char *conf)
{
    pool_reopen(4 * ZONE_GIB, conf);
}

/* Blocks of as many sizes, 16 MiB and a little, freed one after another: an epoch each. */
static void freed_in_turn(void)
{
    for (unsigned i = 0; i < SIZES; i++) {
        held[i] = take(BLOCK + i * ZONE_MIB);
    }
    for (unsigned i = 0; i < SIZES; i++) {
        give(held[i]);
    }
}

/* 156 MiB cached, and growth beyond the 160 MiB of the threshold: of those at least as old as the
 * average so many go with the next free that the threshold is met. */
START_TEST(old_blocks_go)
{
    open_pool("max_reserved_mb:320,garbage_collection_threshold:0.5");
    freed_in_turn();
    ck_assert_uint_eq(model_used(), 156 * ZONE_MIB);
    zone_addr_t grown = take(40 * ZONE_MIB);
    ck_assert_uint_eq(model_count(MODEL_FREE), 0); /* not in the malloc */
    give(grown);
    ck_assert(model_is_held(grown)); /* not its own block, which is the youngest */
    for (unsigned i = 0; i < SIZES; i++) {
        ck_assert(i < 4 || model_is_held(held[i])); /* younger than the average */
    }
    ck_assert_uint_le(model_used(), 160 * ZONE_MIB);
    ck_assert_uint_gt(model_used(), 140 * ZONE_MIB);
    ck_assert_uint_eq(counts().trims, 1);
    ck_assert_uint_eq(counts().trimmed_bytes, 196 * ZONE_MIB - model_used());
    unsigned frees = model_count(MODEL_FREE);
    /* Once: without growth frees give nothing back. */
    give(take(40 * ZONE_MIB));
    give(take(BLOCK + 7 * ZONE_MIB));
    ck_assert_uint_eq(model_count(MODEL_FREE), frees);
}
END_TEST

/* When the old half, 70 MiB, was not enough, it is the turn of the older half of the rest. */
START_TEST(in_rounds)
{
    open_pool("max_reserved_mb:400,garbage_collection_threshold:0.25");
    freed_in_turn();
    give(take(40 * ZONE_MIB));
    ck_assert_uint_eq(model_used(), 85 * ZONE_MIB);
    for (unsigned i = 0; i < SIZES; i++) {
        ck_assert_int_eq(model_is_held(held[i]), i >= 6);
    }
}
END_TEST

START_TEST(without_a_limit_of_the_device)
{
    open_pool("garbage_collection_threshold:0.5");
    ck_assert_uint_eq(pool->collect_above, 2 * ZONE_GIB);
    zone_addr_t old = take(ZONE_GIB);
    give(old);
    give(take(ZONE_GIB / 2));
    ck_assert(model_is_held(old));
    give(take(ZONE_GIB - ZONE_MIB));
    ck_assert(!model_is_held(old));
    open_pool("");
    ck_assert_uint_eq(pool->collect_above, SIZE_MAX);
}
END_TEST

/* cuMemFree would block other threads' launches for as long as it waits. */
static void at_rest(void *arg)
{
    ck_assert(model_is_complete(*(const unsigned *)arg));
}

/* What running work uses stays, and the free waits for no more than its own mark. */
START_TEST(only_ready_blocks)
{
    open_pool("max_reserved_mb:100,garbage_collection_threshold:0.5");
    zone_addr_t busy = take(3 * BLOCK);
    unsigned work = work_on(busy, 1, 5 * MS);
    give(busy);
    zone_addr_t grown = take(BLOCK);
    unsigned later = work_on(grown, 2, 20 * MS);
    give_in_stream(grown);
    ck_assert(model_is_held(busy)); /* never waits */
    ck_assert(!model_is_complete(work));
    model_hook(MODEL_FREE, 0, MODEL_BEFORE, at_rest, &later);
    give(take(2 * ZONE_MIB));
    ck_assert(model_is_complete(work) && model_is_complete(later));
    ck_assert(!model_is_held(busy));
}
END_TEST

/* A segment goes when nothing of it is in use, as old as its youngest part. */
START_TEST(segments)
{
    enum { PARTS = 4 };
    zone_addr_t parts[PARTS];
    open_pool("max_reserved_mb:64,garbage_collection_threshold:0.5");
    zone_addr_t keeps = take(900 * ZONE_KIB);
    for (unsigned i = 0; i < PARTS; i++) {
        parts[i] = take(900 * ZONE_KIB);
    }
    for (unsigned i = 0; i < PARTS; i++) {
        give(parts[i]);
    }
    give(take(8 * ZONE_MIB)); /* records for all of them */
    size_t before = model_used();
    take(30 * ZONE_MIB);
    give(take(4 * ZONE_MIB));
    ck_assert(model_is_held(block_at(keeps)->segment->first->addr));
    ck_assert_uint_le(model_used(), before + 34 * ZONE_MIB - 2 * 2 * ZONE_MIB);
}
END_TEST

/* Above the threshold with nothing cached: no waits, and the pool serves. */
START_TEST(all_in_use)
{
    open_pool("max_reserved_mb:64,garbage_collection_threshold:0.1");
    take(2 * BLOCK);
    zone_addr_t addr = take(BLOCK);
    for (unsigned i = 0; i < 10; i++) {
        work_on(addr, 1, MS);
        give(addr);
        ck_assert_uint_eq(model_count(MODEL_FREE), 0);
        model_advance(2 * MS);
        addr = take(BLOCK);
    }
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 2);
    ck_assert_uint_eq(counts().throttle_waits, 0);
}
END_TEST

/* The first allocation on the device takes it, and blocks are cut from it. */
START_TEST(initial_pool)
{
    open_pool("initial_pool_size_mb:63");
    zone_addr_t first = take(BLOCK);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 1);
    ck_assert_uint_eq(model_used(), 64 * ZONE_MIB);
    ck_assert_ptr_nonnull(block_at(first)->segment);
    take(2 * BLOCK);
    zone_addr_t third = take(BLOCK - ZONE_MIB);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 1);
    take(BLOCK); /* no room */
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 2);
    take(4096); /* of a segment of its own */
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 3);
    give(third);
    ck_assert_uint_eq(counts().reserved_bytes.current, 82 * ZONE_MIB);
    /* Once a device. */
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    take_from(second, BLOCK);
    ck_assert_uint_eq(model_used(), 98 * ZONE_MIB);
    struct zone_pool *other = pool_of(&model_contexts[2], 1);
    take_from(other, BLOCK);
    ck_assert_uint_eq(zone_limit_used(1), 64 * ZONE_MIB);
    ck_assert_uint_eq(times_said, 0);
}
END_TEST

START_TEST(initial_pool_after_a_reset)
{
    open_pool("initial_pool_size_mb:64");
    take(BLOCK);
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    pool = pool_of(MODEL_CTX, 0);
    take(BLOCK);
    ck_assert_uint_eq(model_used(), 64 * ZONE_MIB);
}
END_TEST

/* Said once; the program runs. */
START_TEST(initial_pool_refused)
{
    static const char *const confs[] = {"initial_pool_size_mb:5000",
                                        "initial_pool_size_mb:100,max_reserved_mb:64"};
    open_pool(confs[_i]);
    take(BLOCK);
    take(2 * BLOCK);
    ck_assert_uint_eq(times_said, 1);
    ck_assert_ptr_nonnull(strstr(said, "initial_pool_size_mb"));
    ck_assert_int_eq(strstr(said, "limit") != NULL, _i == 1);
    ck_assert_uint_ge(model_used(), 3 * BLOCK);
    ck_assert_uint_le(model_count(MODEL_ALLOC), 3);
    zone_initial_unclaim(0);
}
END_TEST

/* A fault is not its fault. */
START_TEST(initial_pool_fault)
{
    zone_addr_t addr;
    open_pool("initial_pool_size_mb:64");
    model_set_fault(700);
    ck_assert_int_eq(try_take(BLOCK, &addr), 700);
    ck_assert_uint_eq(times_said, 0);
    model_set_fault(0);
    pool->fault = 0;
    take(BLOCK);
    ck_assert_uint_eq(model_used(), 64 * ZONE_MIB);
}
END_TEST

/* Before anything is refused it goes back, if nothing of it is in use; and to max_cached_mb. */
START_TEST(initial_pool_goes_back)
{
    open_pool("initial_pool_size_mb:1024,max_reserved_mb:2048");
    zone_addr_t first = take(BLOCK);
    zone_addr_t addr;
    ck_assert_int_eq(try_take(1536 * ZONE_MIB, &addr), ZONE_GPU_OUT_OF_MEMORY);
    give(first);
    take(1536 * ZONE_MIB);
    ck_assert_uint_eq(model_used(), 1536 * ZONE_MIB);
    open_pool("initial_pool_size_mb:64,max_cached_mb:100");
    give(take(BLOCK));
    ck_assert_uint_eq(model_used(), 64 * ZONE_MIB);
    open_pool("initial_pool_size_mb:64,max_cached_mb:10");
    give(take(BLOCK));
    ck_assert_uint_eq(model_used(), 0);
}
END_TEST

/* The collection leaves it alone. */
START_TEST(initial_pool_is_not_old)
{
    open_pool("initial_pool_size_mb:128,max_reserved_mb:420,garbage_collection_threshold:0.1");
    give(take(ZONE_MIB));
    zone_addr_t other = take(140 * ZONE_MIB);
    take(130 * ZONE_MIB);
    give(other);
    ck_assert_uint_eq(model_count(MODEL_FREE), 0);
    ck_assert_uint_eq(model_used(), 398 * ZONE_MIB);
}
END_TEST

static Suite *collect_suite(void)
{
    Suite *suite = suite_create("collect");
    TCase *tcase = tcase_create("collect");
    tcase_add_checked_fixture(tcase, setup, pool_teardown);
    tcase_add_test(tcase, old_blocks_go);
    tcase_add_test(tcase, in_rounds);
    tcase_add_test(tcase, without_a_limit_of_the_device);
    tcase_add_test(tcase, only_ready_blocks);
    tcase_add_test(tcase, segments);
    tcase_add_test(tcase, all_in_use);
    tcase_add_test(tcase, initial_pool);
    tcase_add_test(tcase, initial_pool_after_a_reset);
    tcase_add_loop_test(tcase, initial_pool_refused, 0, 2);
    tcase_add_test(tcase, initial_pool_fault);
    tcase_add_test(tcase, initial_pool_goes_back);
    tcase_add_test(tcase, initial_pool_is_not_old);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(collect_suite());
}
