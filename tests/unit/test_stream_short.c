/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory when memory is short: another stream's block with a wait on the device,
 * blocks of other sizes, giving back, limits.
 */
#include "pool_fixture.h"

enum { A = 1, B = 2, C = 3 };

#define BLOCK (64 * ZONE_MIB)

static bool allowed;

static bool may_depend(int device)
{
    return device == 0 && allowed;
}

static void open(size_t capacity, const char *conf)
{
    pool_reopen(capacity, conf);
    allowed = true;
    pool_process.may_depend = may_depend;
}

static void teardown(void)
{
    pool_process.may_depend = NULL;
    pool_teardown();
}

/* The driver has no more: the stream waits on the device for the one that freed, nobody on the
 * host. */
START_TEST(another_streams_block)
{
    open(100 * ZONE_MIB, "min_free_mb:0");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    unsigned sleeps = model_count(MODEL_SLEEP);
    ck_assert_uint_eq(take_on(B, BLOCK), addr);
    ck_assert_uint_eq(model_count(MODEL_SLEEP), sleeps);
    ck_assert_uint_eq(counts().stream_waits, 1);
    /* And on from there: what waits for B has waited for A. */
    give_on(B, addr);
    ck_assert_uint_eq(take_on(C, BLOCK), addr);
}
END_TEST

/* The pool's attribute forbids it. */
START_TEST(dependencies_forbidden)
{
    open(100 * ZONE_MIB, "min_free_mb:0,oom_wait_ms:1");
    allowed = false;
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    zone_addr_t none = 0;
    ck_assert_int_eq(try_take_on(B, BLOCK, &none), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(counts().stream_waits, 0);
    ck_assert_uint_eq(take_on(A, BLOCK), addr);
}
END_TEST

/* cudaMalloc has no stream that could wait. */
START_TEST(plain_malloc_does_not_wait)
{
    open(100 * ZONE_MIB, "min_free_mb:0,oom_wait_ms:1");
    zone_addr_t addr = take_on(A, BLOCK);
    unsigned work = work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    zone_addr_t none = 0;
    ck_assert_int_eq(try_take(BLOCK, &none), ZONE_GPU_OUT_OF_MEMORY);
    model_finish(work);
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

/* What was freed after the last mark is not behind it. */
START_TEST(unmarked_block_is_not_borrowed)
{
    open(16 * ZONE_GIB, "min_free_mb:0,oom_wait_ms:1"); /* a mark for 256 MiB */
    zone_addr_t first = take_on(A, 2 * ZONE_MIB);
    zone_addr_t second = take_on(A, BLOCK);
    give_on(A, first);
    work_on(second, A, MODEL_FOREVER);
    give_on(A, second);
    ck_assert_uint_eq(counts().stream_marks, 1);
    model_set_neighbour(16 * ZONE_GIB - model_used());
    zone_addr_t none = 0;
    ck_assert_int_eq(try_take_on(B, BLOCK, &none), ZONE_GPU_OUT_OF_MEMORY);
    /* That was a miss, so the next free records, and covers the second block, too. */
    give_on(A, take_on(A, 2 * ZONE_MIB));
    ck_assert_uint_eq(take_on(B, BLOCK), second);
}
END_TEST

/* The wait fails: the block stays where it was. */
START_TEST(wait_fails)
{
    open(100 * ZONE_MIB, "min_free_mb:0,oom_wait_ms:1");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    model_fail(MODEL_STREAM_WAIT, 0, 1, ZONE_GPU_OUT_OF_MEMORY);
    zone_addr_t none = 0;
    ck_assert_int_eq(try_take_on(B, BLOCK, &none), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(take_on(A, BLOCK), addr);
}
END_TEST

/* A larger block of its own, at once. */
START_TEST(own_larger_block)
{
    open(100 * ZONE_MIB, "min_free_mb:0");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(A, BLOCK - 8 * ZONE_MIB), addr);
    ck_assert_uint_eq(counts().stream_waits, 0);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(A, BLOCK), addr);
}
END_TEST

/* A large free gets its mark without a miss, so that the rung above finds one. */
START_TEST(much_freed_is_marked)
{
    open(64 * ZONE_GIB, "");
    zone_addr_t addr = take_on(A, 2 * ZONE_GIB);
    give_on(A, addr);
    ck_assert_uint_eq(counts().stream_marks, 1);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(take_on(A, 2 * ZONE_GIB), addr);
        give_on(A, addr);
    }
    ck_assert_uint_eq(counts().stream_marks, 4);
}
END_TEST

/* Another size behind work that ends: given back and allocated anew. */
START_TEST(other_size_after_the_work)
{
    open(100 * ZONE_MIB, "min_free_mb:0");
    zone_addr_t addr[4];
    for (unsigned i = 0; i < 4; i++) {
        addr[i] = take_on(A, 20 * ZONE_MIB);
        work_on(addr[i], A, MS);
    }
    for (unsigned i = 0; i < 4; i++) {
        give_on(A, addr[i]);
    }
    take_on(B, 80 * ZONE_MIB);
}
END_TEST

/* max_cached_mb holds without a wait: the driver takes the block in the stream's order. */
START_TEST(bounded)
{
    open(64 * ZONE_GIB, "max_cached_mb:128");
    zone_addr_t addr[6];
    for (unsigned i = 0; i < 6; i++) {
        addr[i] = take_on(A, BLOCK);
        work_on(addr[i], A, MODEL_FOREVER);
    }
    for (unsigned i = 0; i < 6; i++) {
        give_on(A, addr[i]);
    }
    ck_assert_uint_le(zone_ledger_cached(&pool->ledger), 128 * ZONE_MIB);
    ck_assert_uint_eq(model_count(MODEL_STREAM_FREE), 4);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), 128 * ZONE_MIB);
}
END_TEST

/* Nearly full: natively the driver has the memory back, too. */
START_TEST(tight)
{
    open(8 * ZONE_GIB, "min_free_mb:512");
    model_set_neighbour(8 * ZONE_GIB - 600 * ZONE_MIB);
    model_advance(200 * MS);
    zone_addr_t a = take_on(A, 2 * BLOCK);
    zone_addr_t b = take_on(A, 2 * BLOCK);
    unsigned work = work_on(a, A, MODEL_FOREVER);
    give_on(A, b); /* the driver would not have it before the work ends */
    ck_assert_uint_eq(model_count(MODEL_STREAM_FREE), 0);
    ck_assert_uint_eq(take_on(A, 2 * BLOCK), b);
    model_finish(work);
    give_on(A, b);
    give_on(A, a);
    ck_assert_uint_gt(model_count(MODEL_STREAM_FREE), 0);
}
END_TEST

/* What the driver got in a stream's order it does not have before that stream's work is complete:
 * an allocation that needs it asks until then. */
START_TEST(given_in_stream_is_awaited)
{
    open(100 * ZONE_MIB, "min_free_mb:0,max_cached_mb:0");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MS);
    model_set_late_frees(true);
    give_on(A, addr);
    ck_assert_uint_eq(model_count(MODEL_STREAM_FREE), 1);
    take_on(B, BLOCK);
}
END_TEST

/* Giving back, as empty_cache and a failing call do it, has what streams hold. */
START_TEST(given_back_when_done)
{
    open(64 * ZONE_GIB, "");
    zone_addr_t addr = take_on(A, BLOCK);
    unsigned work = work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), 0);
    model_finish(work);
    ck_assert_int_eq(zone_pool_drain(pool), 0);
    ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), BLOCK);
    ck_assert_uint_eq(model_used(), 0);
}
END_TEST

/* TrimTo: down to what is asked, never below, and only when that waits for nothing. */
START_TEST(trim_to)
{
    open(64 * ZONE_GIB, "");
    zone_addr_t addr[4];
    for (unsigned i = 0; i < 4; i++) {
        addr[i] = take_on(A, BLOCK);
    }
    unsigned work = work_on(addr[0], A, MODEL_FOREVER);
    for (unsigned i = 0; i < 3; i++) {
        give_on(A, addr[i]);
    }
    zone_stream_trim(pool, 0);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), 4 * BLOCK);
    model_finish(work);
    zone_stream_trim(pool, 3 * BLOCK - 1);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), 3 * BLOCK);
    zone_stream_trim(pool, 0);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), BLOCK);
    ck_assert_uint_eq(model_used(), BLOCK);
    ck_assert_uint_eq(model_stalls(), 0);
}
END_TEST

/* What another stream's work does not keep from being given back waits for it all the same. */
START_TEST(trim_beside_work)
{
    open(64 * ZONE_GIB, "");
    zone_addr_t busy = take_on(B, BLOCK);
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(busy, B, MODEL_FOREVER);
    give_on(A, addr);
    zone_stream_trim(pool, 0);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), 2 * BLOCK);
}
END_TEST

/* A limit is as the end of memory, for streams too. */
START_TEST(limited)
{
    open(64 * ZONE_GIB, "max_reserved_mb:100");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(B, BLOCK), addr);
    ck_assert_uint_eq(counts().stream_waits, 1);
}
END_TEST

/* An old driver without context events: marks do without, and nothing waits. */
START_TEST(old_driver)
{
    pool_reopen_without_events(64 * ZONE_GIB, "");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MS);
    give_on(A, addr);
    ck_assert_uint_eq(model_stalls(), 0);
    zone_addr_t other = take_on(B, BLOCK);
    ck_assert_uint_ne(other, addr);
    model_advance(MS);
    ck_assert_uint_eq(take_on(B, BLOCK), addr);
}
END_TEST

/* free_order:sync and a host that watches memory are about plain frees. */
START_TEST(sync_does_not_wait)
{
    open(64 * ZONE_GIB, "free_order:sync");
    zone_addr_t addr = take_on(A, BLOCK);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(A, BLOCK), addr);
    give(addr);
    ck_assert_uint_eq(model_stalls(), 0);
}
END_TEST

static Suite *stream_short_suite(void)
{
    Suite *suite = suite_create("stream_short");
    TCase *tcase = tcase_create("stream_short");
    tcase_add_checked_fixture(tcase, pool_setup, teardown);
    tcase_add_test(tcase, another_streams_block);
    tcase_add_test(tcase, dependencies_forbidden);
    tcase_add_test(tcase, plain_malloc_does_not_wait);
    tcase_add_test(tcase, unmarked_block_is_not_borrowed);
    tcase_add_test(tcase, wait_fails);
    tcase_add_test(tcase, own_larger_block);
    tcase_add_test(tcase, much_freed_is_marked);
    tcase_add_test(tcase, other_size_after_the_work);
    tcase_add_test(tcase, bounded);
    tcase_add_test(tcase, tight);
    tcase_add_test(tcase, given_in_stream_is_awaited);
    tcase_add_test(tcase, given_back_when_done);
    tcase_add_test(tcase, trim_to);
    tcase_add_test(tcase, trim_beside_work);
    tcase_add_test(tcase, limited);
    tcase_add_test(tcase, old_driver);
    tcase_add_test(tcase, sync_does_not_wait);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(stream_short_suite());
}
