/* SPDX-License-Identifier: Apache-2.0
 *
 * When a free waits: the throttle with its budget and hysteresis, free_order, drivers without
 * context events. The model ends the test when something waits for work that never ends.
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)

/* Frees a block of so many bytes behind 1 ms of work of its own. */
static void free_behind_work(size_t bytes)
{
    zone_addr_t addr = take(bytes);
    work_on(addr, 1, MS);
    give(addr);
}

struct budget {
    size_t capacity;
    size_t peak; /* what the program held once */
    const char *conf;
    size_t budget;
};

static const struct budget budgets[] = {
    {64 * ZONE_GIB, BLOCK, "", 64 * ZONE_MIB},
    {64 * ZONE_GIB, 512 * ZONE_MIB, "", 512 * ZONE_MIB},
    {64 * ZONE_GIB, 3 * ZONE_GIB, "", 3 * ZONE_GIB},
    {64 * ZONE_GIB, 20 * ZONE_GIB, "", 4 * ZONE_GIB},
    {4 * ZONE_GIB, 2 * ZONE_GIB, "", 512 * ZONE_MIB},
    {512 * ZONE_MIB, 64 * ZONE_MIB, "min_free_mb:0", 64 * ZONE_MIB},
    {64 * ZONE_GIB, 20 * ZONE_GIB, "max_pending_mb:32", 32 * ZONE_MIB},
    {64 * ZONE_GIB, BLOCK, "max_pending_mb:128", 128 * ZONE_MIB},
    {64 * ZONE_GIB, BLOCK, "max_pending_mb:0", 0},
};

/* Peaks that are reset are statistics: the budget stays what the program has earned. */
START_TEST(budget_outlives_a_reset)
{
    pool_reopen(64 * ZONE_GIB, "");
    give(take(512 * ZONE_MIB));
    zone_ledger_reset_peaks(&pool->ledger);
    unsigned stalls = model_stalls();
    for (size_t pending = 0; pending < 512 * ZONE_MIB; pending += BLOCK) {
        free_behind_work(BLOCK);
    }
    ck_assert_uint_eq(model_stalls(), stalls);
}
END_TEST

/* A free waits as soon as more than the budget is pending, and not before. */
START_TEST(budget)
{
    const struct budget *row = &budgets[_i];
    pool_reopen(row->capacity, row->conf);
    give(take(row->peak));
    zone_addr_t ready = take(row->peak);
    give(ready);
    ck_assert_uint_eq(take(row->peak), ready);
    give(ready);
    int fault = 0;
    uint64_t newest = zone_fence_newest_wait(&pool->fence);
    ck_assert(newest == 0 || zone_fence_ask(&pool->fence, model_gpu(), newest, &fault));
    ck_assert_uint_eq(zone_fence_pending(&pool->fence), 0);

    size_t pending = 0;
    unsigned stalls = model_stalls();
    while (pending + ZONE_MIB <= row->budget) {
        size_t bytes = row->budget - pending < BLOCK ? row->budget - pending : BLOCK;
        free_behind_work(bytes);
        pending += bytes;
        ck_assert_uint_eq(model_stalls(), stalls);
    }
    ck_assert_uint_eq(zone_fence_pending(&pool->fence), row->budget);
    free_behind_work(ZONE_MIB);
    ck_assert_uint_eq(model_stalls(), stalls + 1);
    ck_assert_uint_le(zone_fence_pending(&pool->fence), row->budget / 4 * 3);
    ck_assert_uint_eq(counts().throttle_waits, 1);
}
END_TEST

/* One wait settles a quarter of the budget, so that waits are rare. */
START_TEST(one_wait_settles_many_frees)
{
    enum { FREES = 400 };
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:640");
    size_t least = SIZE_MAX;
    for (unsigned i = 0; i < FREES; i++) {
        free_behind_work(BLOCK);
        size_t pending = zone_fence_pending(&pool->fence);
        ck_assert_uint_le(pending, 640 * ZONE_MIB);
        least = i > 60 && pending < least ? pending : least;
    }
    struct zone_counters now = counts();
    ck_assert_uint_le(now.throttle_waits, FREES / 10 + 1); /* 10 blocks are a quarter */
    ck_assert_uint_ge(now.throttle_waits, 1);
    ck_assert_uint_gt(now.throttle_wait_ns, 0);
    ck_assert_uint_ge(least, 640 * ZONE_MIB / 4 * 3 - BLOCK); /* and no more than that */
}
END_TEST

static void other_never_ends(void *arg)
{
    zone_addr_t *addr = arg;
    work_on(*addr, 2, MODEL_FOREVER);
    give_in_stream(*addr);
}

/* Another thread's work and free beside this free's record: not natively waited for. */
START_TEST(throttle_spares_later_work)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:0");
    zone_addr_t others = take(BLOCK);
    zone_addr_t addr = take(BLOCK);
    work_on(addr, 1, MS);
    model_hook(MODEL_RECORD, 0, MODEL_AFTER, other_never_ends, &others);
    give(addr);
    ck_assert_uint_eq(counts().throttle_waits, 1);
    ck_assert_uint_le(block_at(addr)->stamp, zone_fence_ready(&pool->fence));
    ck_assert_uint_gt(block_at(others)->stamp, zone_fence_ready(&pool->fence));
}
END_TEST

/* Waits are counted with their time; a wait that was not needed is none. */
START_TEST(throttle_is_counted)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:0");
    free_behind_work(BLOCK);
    ck_assert_uint_eq(counts().throttle_wait_ns, MS);
    give(take(BLOCK));
    ck_assert_uint_eq(counts().throttle_waits, 1);
    ck_assert_uint_eq(counts().sync_waits, 0);
}
END_TEST

static void fill_ring(void)
{
    for (unsigned i = 0; i < ZONE_FENCE_MARKS; i++) {
        free_behind_work(ZONE_MIB);
    }
    ck_assert_uint_eq(model_stalls(), 0);
}

/* With every mark pending a free records nothing, but settles some. */
START_TEST(full_ring_settles)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:1048576");
    fill_ring();
    zone_addr_t last = take(ZONE_MIB);
    work_on(last, 1, MS);
    give(last);
    ck_assert_uint_eq(model_stalls(), 1);
    ck_assert_uint_le(zone_fence_pending(&pool->fence), ZONE_FENCE_MARKS * ZONE_MIB / 4 * 3);
    for (unsigned i = 0; i < 200; i++) {
        free_behind_work(ZONE_MIB);
    }
    ck_assert_uint_eq(model_stalls(), 1);
    model_advance(2000 * MS);
    give(take(2 * ZONE_MIB));
    unsigned grown = model_count(MODEL_ALLOC);
    for (unsigned i = 0; i < ZONE_FENCE_MARKS + 1; i++) {
        take(ZONE_MIB);
    }
    ck_assert_uint_eq(model_count(MODEL_ALLOC), grown); /* the last one's bytes were not lost */
}
END_TEST

START_TEST(order_sync_waits_in_every_free)
{
    pool_reopen(64 * ZONE_GIB, "free_order:sync");
    for (unsigned i = 1; i <= 8; i++) {
        zone_addr_t addr = take(i % 2 ? 512 : BLOCK);
        unsigned work = work_on(addr, i, MS);
        give(addr);
        ck_assert(model_is_complete(work));
        ck_assert_uint_eq(counts().sync_waits, i);
        ck_assert_uint_eq(counts().sync_wait_ns, i * MS);
        ck_assert_uint_eq(take(i % 2 ? 512 : BLOCK), addr);
        give(addr);
    }
    ck_assert_uint_eq(counts().throttle_waits, 0);
}
END_TEST

/* Only the free's own mark: later work of others is not waited for. */
START_TEST(order_sync_spares_later_work)
{
    pool_reopen(64 * ZONE_GIB, "free_order:sync");
    zone_addr_t others = take(BLOCK);
    zone_addr_t addr = take(BLOCK);
    work_on(addr, 1, MS);
    model_hook(MODEL_RECORD, 0, MODEL_AFTER, other_never_ends, &others);
    give(addr);
    ck_assert_uint_eq(model_stalls(), 1);
}
END_TEST

START_TEST(order_unsafe_reuses_at_once)
{
    pool_reopen(64 * ZONE_GIB, "free_order:unsafe");
    zone_addr_t addr = take(BLOCK);
    give(addr);
    unsigned before = calls();
    for (unsigned i = 0; i < 40; i++) {
        ck_assert_uint_eq(take(BLOCK), addr);
        give(addr);
    }
    ck_assert_uint_eq(calls(), before);
}
END_TEST

static const struct {
    const char *conf;
    bool watched, waits;
} watching[] = {
    {"", false, false},
    {"", true, true},
    {"free_order:auto", true, true},
    {"free_order:event", true, false},
};

/* While the host can see memory that kernels write, the native wait can be seen missing. */
START_TEST(order_auto_waits_while_the_host_watches)
{
    pool_reopen(64 * ZONE_GIB, watching[_i].conf);
    atomic_store(&pool_process.host_watched, watching[_i].watched);
    zone_addr_t small = take(512);
    zone_addr_t large = take(BLOCK);
    unsigned work = work_on(small, 1, MS);
    give(small);
    ck_assert_int_eq(model_is_complete(work), watching[_i].waits);
    work = work_on(large, 1, MS);
    give(large);
    ck_assert_int_eq(model_is_complete(work), watching[_i].waits);
    ck_assert_uint_eq(counts().sync_waits, watching[_i].waits ? 2 : 0);
    atomic_store(&pool_process.host_watched, 0);
    zone_addr_t last = take(2 * ZONE_MIB);
    work = work_on(last, 1, MS);
    give(last);
    ck_assert(!model_is_complete(work));
}
END_TEST

/* A record that failed leaves no event to wait for: then the context itself. */
START_TEST(order_sync_without_an_event)
{
    pool_reopen(64 * ZONE_GIB, "free_order:sync");
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, MS);
    model_fail(MODEL_EVENT_CREATE, 0, 1, ZONE_GPU_OUT_OF_MEMORY);
    give(addr);
    ck_assert(model_is_complete(work));
    ck_assert_uint_eq(model_count(MODEL_SYNCHRONIZE), 1);
}
END_TEST

/* Drivers before 12.5: the free waits, natively it did too. Small frees share the wait. */
START_TEST(old_driver_waits_in_the_free)
{
    pool_reopen_without_events(64 * ZONE_GIB, "");
    zone_addr_t large = take(BLOCK);
    unsigned work = work_on(large, 1, MS);
    give(large);
    ck_assert(model_is_complete(work));
    ck_assert_uint_eq(take(BLOCK), large);
    for (unsigned i = 0; i < 32; i++) {
        zone_addr_t small = take(512);
        work_on(small, 1, MS);
        give(small);
    }
    ck_assert_uint_eq(model_count(MODEL_SYNCHRONIZE), 3);
    ck_assert_uint_le(model_used(), BLOCK + 2 * ZONE_MIB);
}
END_TEST

/* Nor can a stream-ordered free wait there: its block waits for the next free that may. */
START_TEST(old_driver_does_not_wait_in_stream_order)
{
    pool_reopen_without_events(64 * ZONE_GIB, "");
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, MODEL_FOREVER);
    give_in_stream(addr);
    ck_assert_uint_eq(model_count(MODEL_SYNCHRONIZE), 0);
    ck_assert_uint_ne(take(BLOCK), addr);
    model_finish(work);
    give(take(2 * BLOCK));
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

static Suite *pool_wait_suite(void)
{
    Suite *suite = suite_create("pool wait");
    TCase *tcase = tcase_create("pool wait");
    tcase_set_timeout(tcase, 30); /* under checkers */
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_loop_test(tcase, budget, 0, sizeof(budgets) / sizeof(budgets[0]));
    tcase_add_test(tcase, budget_outlives_a_reset);
    tcase_add_test(tcase, one_wait_settles_many_frees);
    tcase_add_test(tcase, throttle_spares_later_work);
    tcase_add_test(tcase, throttle_is_counted);
    tcase_add_test(tcase, full_ring_settles);
    tcase_add_test(tcase, order_sync_waits_in_every_free);
    tcase_add_test(tcase, order_sync_spares_later_work);
    tcase_add_test(tcase, order_unsafe_reuses_at_once);
    tcase_add_loop_test(tcase, order_auto_waits_while_the_host_watches, 0,
                        sizeof(watching) / sizeof(watching[0]));
    tcase_add_test(tcase, order_sync_without_an_event);
    tcase_add_test(tcase, old_driver_waits_in_the_free);
    tcase_add_test(tcase, old_driver_does_not_wait_in_stream_order);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(pool_wait_suite());
}
