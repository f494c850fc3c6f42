/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and their contexts: made, found, dropped, used again; what they sum up to.
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)

static struct zone_counters summed(int device)
{
    struct zone_counters ret;
    zone_registry_count(device, &ret);
    ck_assert_ptr_null(zone_counters_check(&ret));
    return ret;
}

START_TEST(one_pool_a_context)
{
    ck_assert_ptr_eq(zone_registry_find(MODEL_CTX), pool);
    ck_assert_ptr_null(zone_registry_find(MODEL_CTX2));
    ck_assert_ptr_null(zone_registry_find(NULL));
    struct zone_pool *second = pool_of(MODEL_CTX2, 1);
    ck_assert_ptr_ne(second, pool);
    ck_assert_ptr_eq(pool_of(MODEL_CTX2, 1), second);
    ck_assert_ptr_eq(zone_registry_find(MODEL_CTX2), second);
    ck_assert_int_eq(second->device, 1);
    zone_addr_t first = take(BLOCK);
    give(first);
    zone_addr_t other = take_from(second, BLOCK);
    ck_assert_uint_ne(other, first); /* contexts share no memory */
}
END_TEST

START_TEST(options_and_device_decide)
{
    pool_reopen(64 * ZONE_GIB, "");
    ck_assert_uint_eq(pool->budget, ZONE_POOL_BUDGET_AUTO);
    ck_assert_uint_eq(pool->budget_cap, ZONE_POOL_BUDGET_MAX);
    ck_assert_uint_eq(pool->max_cached, SIZE_MAX);
    ck_assert_uint_eq(pool->min_free, 256 * ZONE_MIB);
    ck_assert_int_eq(pool->order, ZONE_FREE_ORDER_AUTO);
    pool_reopen(ZONE_GIB, "max_pending_mb:7,max_cached_mb:9,min_free_mb:11,free_order:event");
    ck_assert_uint_eq(pool->budget, 7 * ZONE_MIB);
    ck_assert_uint_eq(pool->max_cached, 9 * ZONE_MIB);
    ck_assert_uint_eq(pool->min_free, 11 * ZONE_MIB);
    ck_assert_uint_eq(pool->total, ZONE_GIB);
    ck_assert_int_eq(pool->order, ZONE_FREE_ORDER_EVENT);
}
END_TEST

START_TEST(no_pool_without_an_answer)
{
    struct zone_context_facts facts = {.ctx = MODEL_CTX2, .device = 0};
    model_fail(MODEL_MEM_INFO, 0, 1, 700);
    ck_assert_ptr_null(zone_registry_make(&pool_process, &facts));
    ck_assert_ptr_null(zone_registry_find(MODEL_CTX2));
    ck_assert_ptr_nonnull(zone_registry_make(&pool_process, &facts));
}
END_TEST

static void count_pools(struct zone_pool *one, void *arg)
{
    (void)one;
    ++*(unsigned *)arg;
}

/* More contexts than there is room for: those beyond get no pool, and nothing breaks. */
START_TEST(many_contexts)
{
    static char handles[300];
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof(handles); i++) {
        struct zone_context_facts facts = {.ctx = &handles[i], .device = 0};
        struct zone_pool *made = zone_registry_make(&pool_process, &facts);
        ck_assert_ptr_eq(zone_registry_find(&handles[i]), made);
    }
    zone_registry_each(count_pools, &count);
    ck_assert_uint_eq(count, 256);
}
END_TEST

/* The context takes its memory with it: nothing is given back, asked or waited for. */
START_TEST(dropped_with_its_context)
{
    zone_addr_t live = take(BLOCK);
    zone_addr_t cached = take(2 * BLOCK);
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    zone_addr_t other = take_from(second, BLOCK);
    work_on(cached, 1, MODEL_FOREVER);
    give(cached);
    unsigned before = calls();
    zone_registry_drop(pool);
    ck_assert_uint_eq(calls(), before);
    model_destroy(MODEL_CTX);
    ck_assert_ptr_null(zone_registry_find(MODEL_CTX));
    ck_assert_ptr_null(zone_ptrmap_get(live));
    ck_assert_ptr_null(zone_ptrmap_get(cached));
    ck_assert_ptr_nonnull(zone_ptrmap_get(other));
    ck_assert_uint_eq(zone_registry_cached(0), 0);
    zone_registry_drop(pool); /* twice does nothing */
    struct zone_counters now = summed(0);
    ck_assert_uint_eq(now.misses, 3);
    ck_assert_uint_eq(now.records, 1);
    ck_assert_uint_eq(now.allocated_bytes.current, BLOCK);
    ck_assert_uint_eq(now.reserved_bytes.current, BLOCK);
    ck_assert_uint_eq(now.segment.current, 1);
    ck_assert_uint_ge(now.reserved_bytes.peak, 4 * BLOCK);
}
END_TEST

/* Contexts one after another, as device resets make them, never held more than one of them did. */
START_TEST(peaks_of_contexts_in_turn)
{
    for (int round = 0; round < 5; round++) {
        zone_addr_t first = take(BLOCK);
        take(2 * BLOCK);
        give(first);
        zone_registry_drop(pool);
        model_destroy(MODEL_CTX);
        struct zone_counters now = summed(0);
        ck_assert_uint_eq(now.allocated_bytes.peak, 3 * BLOCK);
        ck_assert_uint_eq(now.reserved_bytes.peak, 3 * BLOCK);
        ck_assert_uint_eq(now.allocation.peak, 2);
        ck_assert_uint_eq(now.allocation.allocated, 2 * (round + 1));
        pool = pool_of(MODEL_CTX, 0);
    }
    /* Beside each other they may have. */
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    take(4 * BLOCK);
    take_from(second, 2 * BLOCK);
    ck_assert_uint_eq(summed(0).allocated_bytes.peak, 6 * BLOCK);
    zone_registry_drop(second);
    ck_assert_uint_eq(summed(0).allocated_bytes.peak, 6 * BLOCK);
}
END_TEST

/* The same handle again is another context: nothing of the old one is left. */
START_TEST(a_new_context_starts_anew)
{
    struct zone_pool *old = pool;
    zone_addr_t cached = take(BLOCK);
    give(cached);
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    pool = pool_of(MODEL_CTX, 0);
    ck_assert_ptr_eq(pool, old); /* the room is used again */
    ck_assert_uint_eq(counts().misses, 0);
    zone_addr_t addr = take(BLOCK);
    ck_assert(model_is_held(addr));
    give(addr); /* records with an event of the new context */
    ck_assert_uint_eq(take(BLOCK), addr);
    struct zone_counters now = summed(0);
    ck_assert_uint_eq(now.misses, 2);
    ck_assert_uint_eq(now.hits, 1);
    ck_assert_uint_eq(now.records, 2);
}
END_TEST

static void other_thread_drops(void *arg)
{
    struct zone_pool **made = arg;
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    *made = pool_of(MODEL_CTX2, 0);
}

/* While a thread is between a question and its answer its pool is nobody else's. */
START_TEST(a_pool_in_use_is_not_used_again)
{
    struct zone_pool *made = NULL;
    int fault = 0;
    give(take(BLOCK));
    model_hook(MODEL_QUERY, 0, MODEL_AFTER, other_thread_drops, &made);
    zone_fence_ask(&pool->fence, model_gpu(), 1, &fault);
    ck_assert_ptr_nonnull(made);
    ck_assert_ptr_ne(made, pool);
    ck_assert_ptr_eq(pool_of(MODEL_CTX, 0), pool); /* now it may be */
}
END_TEST

/* Nor does a thread that came too late to give back leave a wrong number behind: the next context's
 * end would no longer wait for such a thread. */
START_TEST(givers_are_counted_across_contexts)
{
    atomic_fetch_add(&pool->giving, 1);
    zone_registry_drop(pool);
    ck_assert_ptr_eq(pool_of(MODEL_CTX, 0), pool);
    atomic_fetch_sub(&pool->giving, 1);
    ck_assert_int_eq(atomic_load(&pool->giving), 0);
}
END_TEST

/* Managed blocks of a dead context are no longer watched. */
START_TEST(watched_blocks_are_dropped)
{
    struct zone_block *block = block_at(take(BLOCK));
    block->kind = ZONE_BLOCK_MANAGED;
    atomic_store(&pool_process.host_watched, 1);
    zone_registry_drop(pool);
    ck_assert_int_eq(pool_process.host_watched, 0);
}
END_TEST

START_TEST(sums_by_device)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 1);
    give(take(BLOCK));
    give(take_from(second, 2 * BLOCK));
    zone_addr_t held = take_from(second, 3 * BLOCK);
    ck_assert_uint_eq(zone_registry_cached(0), BLOCK);
    ck_assert_uint_eq(zone_registry_cached(1), 2 * BLOCK);
    ck_assert_uint_eq(zone_registry_cached(2), 0);
    ck_assert_uint_ge(zone_registry_cached_at_most(0), BLOCK);
    ck_assert_uint_ge(zone_registry_cached_at_most(-1), 3 * BLOCK);
    ck_assert_uint_eq(summed(0).misses, 1);
    ck_assert_uint_eq(summed(1).misses, 2);
    ck_assert_uint_eq(summed(1).allocated_bytes.current, 3 * BLOCK);
    ck_assert_uint_eq(summed(5).misses, 0);
    ck_assert_uint_eq(summed(-1).misses, 0);
    ck_assert_uint_eq(zone_registry_rescue(-1, second), BLOCK);
    ck_assert_uint_eq(zone_registry_rescue(-1, NULL), 2 * BLOCK);
    ck_assert(model_is_held(held));
}
END_TEST

/* Of the pools that live, that are about to go and that are gone; of one device alone. */
START_TEST(reset_peaks_of_a_device)
{
    struct zone_pool *other = pool_of(MODEL_CTX2, 1);
    struct zone_counters now;
    give(take(4 * BLOCK));
    give(take_from(other, 2 * BLOCK));
    zone_registry_drop(pool);
    model_destroy(MODEL_CTX);
    pool = pool_of(MODEL_CTX, 0);
    take(BLOCK);
    give(take(2 * BLOCK));
    ck_assert_uint_eq(summed(0).allocated_bytes.peak, 4 * BLOCK);
    zone_registry_hide(pool);
    zone_registry_reset_peaks(0);
    zone_registry_show(pool);
    zone_registry_look(0, &now);
    ck_assert_uint_eq(now.allocated_bytes.current, BLOCK);
    ck_assert_uint_eq(now.allocated_bytes.peak, BLOCK);
    ck_assert_uint_eq(now.requested_bytes.peak, BLOCK);
    ck_assert_uint_eq(now.allocation.peak, 1);
    ck_assert_uint_eq(now.allocation.allocated, 3); /* sums are not peaks */
    ck_assert_uint_eq(now.reserved_bytes.peak, 3 * BLOCK);
    ck_assert_uint_eq(summed(1).allocated_bytes.peak, 2 * BLOCK);
    take(BLOCK);
    ck_assert_uint_eq(summed(0).allocated_bytes.peak, 2 * BLOCK);
    zone_registry_reset_peaks(-1);
    zone_registry_reset_peaks(99);
}
END_TEST

/* For pools that are there, about to go, and to come. */
START_TEST(adjusted_for_all_pools)
{
    struct zone_options options = *pool_process.options;
    struct zone_options wanted = options;
    struct zone_pool *leaving = pool_of(MODEL_CTX2, 1);
    uint64_t keys;
    pool_process.options = &options;
    zone_registry_hide(leaving);
    ck_assert_int_eq(zone_options_adjust(&wanted, "x",
                                         "max_cached_mb:9,min_free_mb:11,max_pending_mb:7", NULL,
                                         NULL, &keys),
                     0);
    zone_registry_adjust(&options, &wanted, keys);
    zone_registry_show(leaving);
    struct zone_pool *pools[] = {pool, leaving, pool_of(&model_contexts[2], 0)};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(pools[i]->max_cached, 9 * ZONE_MIB);
        ck_assert_uint_eq(pools[i]->min_free, 11 * ZONE_MIB);
        ck_assert_uint_eq(pools[i]->budget, 7 * ZONE_MIB);
    }
    zone_options_adjust(&wanted, "x", "max_pending_mb:auto", NULL, NULL, &keys);
    zone_registry_adjust(&options, &wanted, keys);
    ck_assert_uint_eq(pool->budget, ZONE_POOL_BUDGET_AUTO);
    ck_assert_uint_eq(pool->max_cached, 9 * ZONE_MIB);
    ck_assert_uint_eq(options.max_cached_mb, 9);
}
END_TEST

static Suite *registry_suite(void)
{
    Suite *suite = suite_create("registry");
    TCase *tcase = tcase_create("registry");
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_test(tcase, one_pool_a_context);
    tcase_add_test(tcase, options_and_device_decide);
    tcase_add_test(tcase, no_pool_without_an_answer);
    tcase_add_test(tcase, many_contexts);
    tcase_add_test(tcase, dropped_with_its_context);
    tcase_add_test(tcase, a_new_context_starts_anew);
    tcase_add_test(tcase, a_pool_in_use_is_not_used_again);
    tcase_add_test(tcase, givers_are_counted_across_contexts);
    tcase_add_test(tcase, watched_blocks_are_dropped);
    tcase_add_test(tcase, peaks_of_contexts_in_turn);
    tcase_add_test(tcase, sums_by_device);
    tcase_add_test(tcase, reset_peaks_of_a_device);
    tcase_add_test(tcase, adjusted_for_all_pools);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(registry_suite());
}
