/* SPDX-License-Identifier: Apache-2.0
 *
 * per_process_memory_fraction and max_reserved_mb: what they refuse, and that what fits natively
 * within them fits here, whatever is cached. After each test nothing may be left counted.
 */
#include "pool_fixture.h"

#include <pthread.h>
#include <sched.h>

#define BLOCK (16 * ZONE_MIB)
enum { ROOM = 4 }; /* blocks within the limit */

static zone_addr_t held[ROOM];

/* A device of 64 GiB of which the program may have four blocks. */
static void setup(void)
{
    pool_setup();
    pool_reopen(64 * ZONE_GIB, "max_reserved_mb:64,oom_wait_ms:100");
}

static void fill(void)
{
    for (unsigned i = 0; i < ROOM; i++) {
        held[i] = take(BLOCK);
    }
}

static void refused(struct zone_pool *by, size_t bytes)
{
    zone_addr_t addr = 3;
    unsigned asked = model_count(MODEL_ALLOC);
    uint64_t start = model_now();
    struct zone_pool *before = pool;
    pool = by;
    ck_assert_int_eq(try_take(bytes, &addr), ZONE_GPU_OUT_OF_MEMORY);
    pool = before;
    ck_assert_uint_eq(addr, 3);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), asked);
    ck_assert_uint_eq(model_now(), start);
}

START_TEST(refuses_without_asking_the_driver)
{
    ck_assert_uint_eq(zone_limit_bytes(0), ROOM * BLOCK);
    fill();
    ck_assert_uint_eq(zone_limit_used(0), ROOM * BLOCK);
    ck_assert(!zone_limit_has_room(0, 512));
    refused(pool, BLOCK);
    refused(pool, 512);
    ck_assert_uint_eq(counts().ooms, 2);
    ck_assert_uint_eq(counts().oom_rejections, 2);
    ck_assert_uint_eq(counts().driver_alloc_calls, ROOM);
    give(held[2]);
    ck_assert_uint_eq(take(BLOCK), held[2]);
}
END_TEST

START_TEST(no_limit)
{
    pool_reopen(64 * ZONE_GIB, "per_process_memory_fraction:1.0");
    ck_assert_uint_eq(zone_limit_bytes(0), SIZE_MAX);
    ck_assert(!zone_limit_is_given(pool_process.options));
    ck_assert(zone_limit_has_room(0, SIZE_MAX));
    ck_assert_uint_eq(zone_limit_bytes(-1), SIZE_MAX);
    ck_assert_uint_eq(zone_limit_bytes(ZONE_OPTIONS_DEVICES), SIZE_MAX);
    ck_assert(zone_limit_reserve(-1, ZONE_GIB));
    zone_limit_count(-1, ZONE_GIB);
    zone_limit_return(-1, ZONE_GIB);
    ck_assert_uint_eq(zone_limit_used(-1), 0);
    take(BLOCK);
    ck_assert_uint_eq(zone_limit_used(0), BLOCK); /* counted all the same */
    zone_addr_t addr;
    ck_assert_int_eq(try_take(64 * ZONE_GIB, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(counts().oom_rejections, 0); /* the driver's refusal */
    pool_reopen(64 * ZONE_GIB, "backend:off,max_reserved_mb:0");
    ck_assert_uint_eq(zone_limit_bytes(0), SIZE_MAX);
    ck_assert(!zone_limit_is_given(pool_process.options));
}
END_TEST

START_TEST(smaller_one_counts)
{
    pool_reopen(8 * ZONE_GIB, "per_process_memory_fraction:0.25");
    ck_assert_uint_eq(zone_limit_bytes(0), 2 * ZONE_GIB);
    ck_assert(zone_limit_is_given(pool_process.options));
    pool_reopen(8 * ZONE_GIB, "per_process_memory_fraction:0.25,max_reserved_mb:100");
    ck_assert_uint_eq(zone_limit_bytes(0), 100 * ZONE_MIB);
    pool_reopen(8 * ZONE_GIB, "per_process_memory_fraction:0.25,max_reserved_mb:5000");
    ck_assert_uint_eq(zone_limit_bytes(0), 2 * ZONE_GIB);
    /* Larger than any product of two 32-bit numbers. */
    pool_reopen(8 * ZONE_GIB, "per_process_memory_fraction:0.5");
    zone_limit_set(pool_process.options, 5, (size_t)1 << 60);
    ck_assert_uint_eq(zone_limit_bytes(5), (size_t)1 << 59);
    zone_limit_set(pool_process.options, 5, 1001);
    ck_assert_uint_eq(zone_limit_bytes(5), 500);
}
END_TEST

START_TEST(nothing_at_all)
{
    static const char *const confs[] = {"max_reserved_mb:0", "per_process_memory_fraction:0"};
    pool_reopen(64 * ZONE_GIB, confs[_i]);
    refused(pool, 512);
    refused(pool, BLOCK);
    refused(pool, 65 * ZONE_GIB); /* more than the device */
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 0);
}
END_TEST

/* Refused at once: the cache, which could not help, stays. */
START_TEST(smaller_than_the_request)
{
    give(take(BLOCK));
    refused(pool, 5 * BLOCK);
    ck_assert_uint_eq(model_used(), BLOCK);
    zone_addr_t live = take(2 * BLOCK);
    refused(pool, 3 * BLOCK); /* with what is live */
    ck_assert_uint_eq(model_used(), 3 * BLOCK);
    ck_assert_uint_eq(counts().trims, 0);
    give(live);
    ck_assert(model_is_held(take(4 * BLOCK)));
}
END_TEST

/* Cached memory of other sizes is no reason to refuse. */
START_TEST(other_classes_go_back)
{
    fill();
    for (unsigned i = 0; i < ROOM; i++) {
        work_on(held[i], 1, MS);
        give(held[i]);
    }
    zone_addr_t large = take(ROOM * BLOCK);
    ck_assert(model_is_held(large));
    ck_assert_uint_eq(model_used(), ROOM * BLOCK);
    give(large);
    zone_addr_t small = take(512);
    ck_assert(small != 0);
    ck_assert_uint_le(model_used(), 2 * ZONE_MIB);
    ck_assert_uint_eq(counts().ooms, 0);
}
END_TEST

START_TEST(pending_memory_is_waited_for)
{
    fill();
    work_on(held[0], 1, 20 * MS);
    work_on(held[1], 2, 30 * MS);
    give(held[0]);
    give(held[1]);
    uint64_t start = model_now();
    ck_assert_uint_eq(take(BLOCK), held[0]); /* of its class */
    ck_assert_uint_ge(model_now() - start, 20 * MS);
    take(BLOCK / 2); /* of another */
    ck_assert_uint_ge(model_now() - start, 30 * MS);
    ck_assert(!model_is_held(held[1]));
    ck_assert_uint_le(model_now() - start, 35 * MS);
}
END_TEST

START_TEST(waits_no_longer_than_oom_wait_ms)
{
    zone_addr_t addr;
    fill();
    work_on(held[0], 1, MODEL_FOREVER);
    give(held[0]);
    uint64_t start = model_now();
    ck_assert_int_eq(try_take(BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_ge(model_now() - start, 100 * MS);
    ck_assert_uint_le(model_now() - start, 102 * MS);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), ROOM);
}
END_TEST

/* When all is given back and it does not fit yet, the driver has nothing to clear that would help.
 */
START_TEST(does_not_wait_for_the_driver_to_clear)
{
    zone_addr_t parts[30];
    pool_reopen(64 * ZONE_GIB, "max_reserved_mb:40,oom_wait_ms:10000");
    for (unsigned i = 0; i < 30; i++) {
        parts[i] = take(700 * ZONE_KIB);
    }
    give(take(BLOCK / 4));
    for (unsigned i = 1; i < 30; i += 2) {
        give(parts[i]); /* each segment keeps a live half */
    }
    uint64_t start = model_now();
    zone_addr_t addr;
    ck_assert_int_eq(try_take(BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_le(model_now() - start, 20 * MS);
    ck_assert_uint_eq(counts().oom_rejections, 1);
}
END_TEST

/* All contexts of a device share its limit, and their caches help each other. */
START_TEST(contexts_share)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    zone_addr_t cached = take_from(second, 3 * BLOCK);
    take(BLOCK);
    refused(pool, BLOCK);
    refused(second, BLOCK);
    give(cached);
    zone_addr_t mine = take(2 * BLOCK);
    ck_assert(!model_is_held(cached));
    ck_assert(model_is_held(mine));
    ck_assert_uint_eq(zone_limit_used(0), 3 * BLOCK);
}
END_TEST

START_TEST(devices_have_their_own)
{
    pool_reopen(64 * ZONE_GIB, "max_reserved_mb:[0:32,1:64]");
    struct zone_pool *second = pool_of(MODEL_CTX2, 1);
    ck_assert_uint_eq(zone_limit_bytes(0), 2 * BLOCK);
    ck_assert_uint_eq(zone_limit_bytes(1), 4 * BLOCK);
    take(2 * BLOCK);
    refused(pool, BLOCK);
    take_from(second, 3 * BLOCK);
    refused(second, 2 * BLOCK);
    take_from(second, BLOCK);
    ck_assert_uint_eq(zone_limit_used(0), 2 * BLOCK);
    ck_assert_uint_eq(zone_limit_used(1), 4 * BLOCK);
    ck_assert_uint_eq(zone_limit_bytes(2), SIZE_MAX);
}
END_TEST

/* Where a segment passes the limit the block itself may fit. */
START_TEST(block_instead_of_a_segment)
{
    pool_reopen(64 * ZONE_GIB, "max_reserved_mb:3");
    zone_addr_t first = take(900 * ZONE_KIB);
    ck_assert_ptr_nonnull(block_at(first)->segment);
    ck_assert_ptr_nonnull(block_at(take(900 * ZONE_KIB))->segment);
    zone_addr_t whole = take(900 * ZONE_KIB);
    ck_assert_ptr_null(block_at(whole)->segment);
    ck_assert_uint_eq(zone_limit_used(0), 2 * ZONE_MIB + 900 * ZONE_KIB);
    refused(pool, 900 * ZONE_KIB);
    /* Nor is a segment made where little is left, as on a device. */
    pool_reopen(64 * ZONE_GIB, "max_reserved_mb:100");
    take(87 * ZONE_MIB);
    ck_assert_ptr_null(block_at(take(4096))->segment);
}
END_TEST

/* The driver's refusal gives back what was counted ahead. */
START_TEST(refused_by_the_driver)
{
    static const int codes[] = {ZONE_GPU_OUT_OF_MEMORY, 700};
    zone_addr_t addr;
    model_fail(MODEL_ALLOC, 0, 100, codes[_i]);
    ck_assert_int_eq(try_take(BLOCK, &addr), codes[_i]);
    ck_assert_int_eq(try_take(4096, &addr), codes[_i]);
    ck_assert_uint_eq(zone_limit_used(0), 0);
    ck_assert_uint_eq(counts().oom_rejections, 0);
}
END_TEST

/* Every way out of the pool ends what is counted. */
START_TEST(given_back_in_every_way)
{
    fill();
    zone_pool_taint(block_at(held[0]));
    give(held[0]);
    ck_assert_uint_eq(zone_limit_used(0), 3 * BLOCK);
    ck_assert(zone_block_claim(block_at(held[1])));
    ck_assert_int_eq(zone_pool_free_for_real(block_at(held[1])), 0);
    ck_assert_uint_eq(zone_limit_used(0), 2 * BLOCK);
    give(held[2]);
    give(take(4096));
    uint64_t deadline = 0;
    zone_pool_rescue(pool, &deadline);
    ck_assert_uint_eq(zone_limit_used(0), BLOCK);
    ck_assert_uint_eq(model_used(), BLOCK);
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    ck_assert_uint_eq(zone_limit_used(0), 0);
    pool = pool_of(MODEL_CTX, 0);
    fill();
}
END_TEST

/* A thread that was giving back when the context died, and one that was taking. */
START_TEST(late_threads)
{
    zone_addr_t addr = take(BLOCK);
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    take_from(second, BLOCK);
    zone_registry_drop(pool);
    ck_assert_uint_eq(zone_limit_used(0), BLOCK);
    zone_pool_gave_back(pool, BLOCK);
    ck_assert_uint_eq(zone_limit_used(0), BLOCK);
    model_destroy(MODEL_CTX);
    ck_assert(zone_limit_reserve(0, BLOCK));
    ck_assert(zone_pool_adopt(pool, addr, BLOCK, BLOCK, 0));
    ck_assert_uint_eq(zone_limit_used(0), 2 * BLOCK);
    pool = pool_of(MODEL_CTX, 0);
    ck_assert_uint_eq(zone_limit_used(0), BLOCK);
}
END_TEST

/* What passes the pool is under the limit too. */
START_TEST(past_the_pool)
{
    zone_addr_t addrs[ROOM];
    zone_addr_t none;
    ck_assert_int_eq(zone_pool_alloc_captured(pool, BLOCK, &addrs[0]), 0);
    ck_assert_int_eq(zone_pool_alloc_past(pool, BLOCK - 5, &addrs[1]), 0);
    ck_assert_uint_eq(block_at(addrs[1])->req_bytes, BLOCK - 5);
    pool->fault = 700; /* as was believed; the driver allocates after all */
    ck_assert_int_eq(zone_pool_alloc(pool, BLOCK, &addrs[2]), 0);
    ck_assert_int_eq(pool->fault, 0);
    pool->fault = 700;
    ck_assert_int_eq(zone_pool_alloc_captured(pool, BLOCK, &addrs[3]), 0);
    ck_assert_uint_eq(zone_limit_used(0), ROOM * BLOCK);
    unsigned asked = model_count(MODEL_ALLOC);
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 512, &none), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_int_eq(zone_pool_alloc_past(pool, 512, &none), ZONE_GPU_OUT_OF_MEMORY);
    pool->fault = 700;
    ck_assert_int_eq(zone_pool_alloc(pool, 512, &none), 700);
    pool->fault = 0;
    ck_assert_uint_eq(model_count(MODEL_ALLOC), asked);
    for (unsigned i = 0; i < ROOM; i++) {
        give(addrs[i]);
    }
    ck_assert_uint_eq(zone_limit_used(0), 2 * BLOCK); /* of captures: back at once */
    /* What is known to be ready is in nobody's way. */
    int fault = 0;
    zone_fence_ask(&pool->fence, model_gpu(), zone_fence_stamp(&pool->fence) - 1, &fault);
    ck_assert_int_eq(zone_pool_alloc_past(pool, 4 * BLOCK, &none), 0);
    ck_assert_uint_eq(model_used(), 4 * BLOCK);
}
END_TEST

static unsigned second_rc;

/* Another thread's malloc while the driver is being asked. */
static void second_malloc(void *arg)
{
    zone_addr_t addr;
    model_leave_malloc();
    second_rc = (unsigned)zone_pool_alloc(pool, *(const size_t *)arg, &addr);
    model_enter_malloc();
}

START_TEST(two_threads_do_not_pass_it_together)
{
    size_t half = 3 * BLOCK;
    model_hook(MODEL_ALLOC, 0, MODEL_BEFORE, second_malloc, &half);
    take(2 * BLOCK);
    ck_assert_uint_eq(second_rc, ZONE_GPU_OUT_OF_MEMORY);
    size_t rest = 2 * BLOCK;
    give(take(BLOCK));
    model_hook(MODEL_ALLOC, 0, MODEL_BEFORE, second_malloc, &rest);
    take(512);
    ck_assert_uint_le(model_used(), ROOM * BLOCK);
    ck_assert_uint_eq(zone_limit_used(0), model_used());
}
END_TEST

enum { ROUNDS = 200000, SHARE = 60, TOGETHER = 100 };
static _Atomic unsigned at_start, at_end, won;

/* Two threads ask at the same moment, as near as can be, for more than half of what is left. */
static void *race(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&at_start, 1);
        while (atomic_load(&at_start) < 2 * (i + 1)) {
            sched_yield();
        }
        bool mine = zone_limit_reserve(9, SHARE);
        atomic_fetch_add(&won, mine);
        atomic_fetch_add(&at_end, 1);
        while (atomic_load(&at_end) < 2 * (i + 1)) {
            sched_yield();
        }
        if (mine) {
            zone_limit_return(9, SHARE);
        }
    }
    return NULL;
}

START_TEST(threads_race)
{
    pthread_t threads[2];
    zone_limit_set(pool_process.options, 9, 64 * ZONE_GIB);
    size_t most = zone_limit_bytes(9);
    ck_assert(zone_limit_reserve(9, most - TOGETHER));
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, race, NULL), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    ck_assert_uint_eq(won, ROUNDS); /* one in each round */
    zone_limit_return(9, most - TOGETHER);
    ck_assert_uint_eq(zone_limit_used(9), 0);
}
END_TEST

static Suite *limits_suite(void)
{
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, pool_teardown);
    tcase_add_test(tcase, refuses_without_asking_the_driver);
    tcase_add_test(tcase, no_limit);
    tcase_add_test(tcase, smaller_one_counts);
    tcase_add_loop_test(tcase, nothing_at_all, 0, 2);
    tcase_add_test(tcase, smaller_than_the_request);
    tcase_add_test(tcase, other_classes_go_back);
    tcase_add_test(tcase, pending_memory_is_waited_for);
    tcase_add_test(tcase, waits_no_longer_than_oom_wait_ms);
    tcase_add_test(tcase, does_not_wait_for_the_driver_to_clear);
    tcase_add_test(tcase, contexts_share);
    tcase_add_test(tcase, devices_have_their_own);
    tcase_add_test(tcase, block_instead_of_a_segment);
    tcase_add_loop_test(tcase, refused_by_the_driver, 0, 2);
    tcase_add_test(tcase, given_back_in_every_way);
    tcase_add_test(tcase, late_threads);
    tcase_add_test(tcase, past_the_pool);
    tcase_add_test(tcase, two_threads_do_not_pass_it_together);
    tcase_add_test(tcase, threads_race);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(limits_suite());
}
