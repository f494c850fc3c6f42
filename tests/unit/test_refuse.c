/* SPDX-License-Identifier: Apache-2.0
 *
 * What an allocation that fails tells, and what that costs.
 */
#include "limit.h"
#include "pool_fixture.h"

#include <string.h>

#define BLOCK (16 * ZONE_MIB)
#define S     UINT64_C(1000000000)
enum { ROOM = 8 }; /* blocks that fit on the device */

static unsigned explained;
static struct zone_oom told;

/* Looks at everything that has a lock; a call of the device checks the other ones. */
static void explain(const struct zone_oom *oom)
{
    size_t free_bytes;
    size_t total;
    zone_pool_available(pool);
    model_gpu()->mem_info(MODEL_CTX, &free_bytes, &total);
    told = *oom;
    explained++;
}

static void start(const char *conf)
{
    pool_reopen(ROOM * BLOCK, conf);
    memset(&pool_process.oom_gate, 0, sizeof(pool_process.oom_gate));
    pool_process.explain = explain;
    explained = 0;
}

static void setup(void)
{
    pool_setup();
    start("min_free_mb:0,max_pending_mb:1048576,oom_wait_ms:100");
}

static void refused(size_t bytes)
{
    zone_addr_t addr;
    uint64_t ooms = counts().ooms;
    ck_assert_int_eq(try_take(bytes, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(counts().ooms, ooms + 1);
}

START_TEST(tells_the_facts)
{
    zone_addr_t held[5];
    for (unsigned i = 0; i < 5; i++) {
        held[i] = take((i + 1) * ZONE_MIB);
    }
    give(held[1]);
    work_on(held[2], 1, MODEL_FOREVER);
    give(held[2]);
    model_set_neighbour(5 * BLOCK);
    refused(ROOM * BLOCK - 512);
    ck_assert_uint_eq(explained, 1);
    ck_assert_int_eq(told.device, 0);
    ck_assert_uint_eq(told.requested, ROOM * BLOCK - 512);
    ck_assert_uint_eq(told.bytes, ROOM * BLOCK - 512);
    ck_assert_uint_eq(told.total, ROOM * BLOCK);
    ck_assert_uint_eq(told.allocated, 10 * ZONE_MIB);
    ck_assert_uint_eq(told.pending + told.cached, 5 * ZONE_MIB);
    ck_assert_uint_ge(told.pending, 3 * ZONE_MIB);
    ck_assert_uint_eq(told.reclaimable, 5 * ZONE_MIB);
    ck_assert_uint_eq(told.largest, 3 * ZONE_MIB);
    ck_assert_uint_eq(told.free, 3 * BLOCK - 15 * ZONE_MIB);
    ck_assert_uint_eq(zone_oom_rest(&told), 5 * BLOCK);
    ck_assert(!told.others_known && !told.refuser && !told.cuts_large);
}
END_TEST

/* Segments with a block that lives in each: their free runs, and what was exported. */
START_TEST(tells_of_segments)
{
    start("min_free_mb:0,large_segment_size_mb:16,oom_wait_ms:0");
    zone_addr_t held[4 * 3];
    for (unsigned i = 0; i < 4 * 3; i++) {
        held[i] = take(4 * ZONE_MIB);
    }
    zone_pool_taint(block_at(held[5]));
    for (unsigned i = 0; i < 4 * 3; i++) {
        if (i % 4 != 3) {
            give(held[i]);
        }
    }
    refused(100 * ZONE_MIB);
    ck_assert(told.cuts_large);
    ck_assert_uint_eq(told.allocated, 3 * 4 * ZONE_MIB);
    ck_assert_uint_eq(told.cached + told.pending, 9 * 4 * ZONE_MIB);
    ck_assert_uint_eq(told.shared, 4 * ZONE_MIB);
    ck_assert_uint_eq(told.largest, 3 * 4 * ZONE_MIB);
    ck_assert_uint_eq(told.reclaimable, 0);
    ck_assert_int_eq(zone_oom_verdict(&told), ZONE_OOM_FRAGMENTATION);
}
END_TEST

START_TEST(all_contexts_of_the_device)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 0);
    struct zone_pool *other = pool_of(&model_contexts[2], 1);
    take(BLOCK);
    take_from(second, 2 * BLOCK);
    take_from(other, BLOCK);
    refused(7 * BLOCK);
    ck_assert_uint_eq(told.allocated, 3 * BLOCK);
}
END_TEST

/* A program that looks for the limit by trying: the facts are gathered once. */
START_TEST(trying_costs_no_more)
{
    take(BLOCK);
    refused(ROOM * BLOCK);
    unsigned before = calls();
    refused(ROOM * BLOCK);
    unsigned each = calls() - before;
    for (unsigned i = 0; i < 1000; i++) {
        before = calls();
        refused(ROOM * BLOCK);
        ck_assert_uint_eq(calls() - before, each);
    }
    ck_assert_uint_eq(explained, 1);
    pool_process.explain = NULL;
    model_advance(S);
    before = calls();
    refused(ROOM * BLOCK);
    ck_assert_uint_eq(calls() - before, each);
    pool_process.explain = explain;
    before = calls();
    refused(ROOM * BLOCK);
    /* One question of the pool's, one of this test's. */
    ck_assert_uint_eq(calls() - before, each + 2);
    ck_assert_uint_eq(explained, 2);
}
END_TEST

START_TEST(what_no_device_has)
{
    zone_addr_t addr = 3;
    refused(ROOM * BLOCK + 1);
    ck_assert_int_eq(zone_oom_verdict(&told), ZONE_OOM_TOO_LARGE);
    model_advance(S);
    refused(SIZE_MAX); /* has no size class */
    ck_assert_uint_eq(explained, 2);
    ck_assert_uint_eq(told.requested, SIZE_MAX);
    ck_assert_int_eq(zone_oom_verdict(&told), ZONE_OOM_TOO_LARGE);
    /* What fails for another reason is no shortage. */
    model_set_fault(719);
    ck_assert_int_eq(try_take(BLOCK, &addr), 719);
    ck_assert_uint_eq(explained, 2);
}
END_TEST

/* The limit is named if it would have refused, by the option that sets it. */
START_TEST(names_the_limit)
{
    struct zone_options options;
    zone_options_init(&options);
    options.max_reserved_mb.mb[0] = 32;
    options.per_process_memory_fraction = ZONE_OPTIONS_ONE / 2;
    zone_limit_set(&options, 0, ROOM * BLOCK);
    const struct zone_options *before = pool_process.options;
    pool_process.options = &options;
    struct zone_oom oom = {.requested = 2 * BLOCK, .bytes = 2 * BLOCK};
    zone_refuse(&pool_process, MODEL_CTX, &oom);
    ck_assert_ptr_null(told.refuser);
    model_advance(S);
    oom = (struct zone_oom){.requested = 2 * BLOCK + 1, .bytes = 2 * BLOCK + 512};
    zone_refuse(&pool_process, MODEL_CTX, &oom);
    ck_assert_str_eq(told.refuser, "max_reserved_mb");
    ck_assert_uint_eq(told.limit, 2 * BLOCK);
    ck_assert_uint_eq(told.limit_used, 0);
    options.max_reserved_mb.mb[0] = ZONE_OPTIONS_UNLIMITED;
    zone_limit_set(&options, 0, ROOM * BLOCK);
    model_advance(2 * S);
    oom = (struct zone_oom){.requested = 5 * BLOCK, .bytes = 5 * BLOCK};
    zone_refuse(&pool_process, MODEL_CTX, &oom);
    ck_assert_str_eq(told.refuser, "per_process_memory_fraction");
    ck_assert_uint_eq(told.limit, 4 * BLOCK);
    pool_process.options = before;
    zone_limit_set(before, 0, ROOM * BLOCK);
}
END_TEST

START_TEST(while_capturing)
{
    zone_addr_t addr = 3;
    take(BLOCK);
    model_set_capture(true);
    int rc = zone_pool_alloc_captured(pool, ROOM * BLOCK, &addr);
    model_set_capture(false);
    ck_assert_int_eq(rc, ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(counts().ooms, 1);
    ck_assert_uint_eq(explained, 1);
}
END_TEST

/* Without a pool, and where the driver does not say how much is free. */
START_TEST(without_a_pool)
{
    struct zone_oom oom = {.requested = BLOCK, .bytes = BLOCK};
    take(2 * BLOCK);
    zone_refuse(&pool_process, MODEL_CTX2, &oom);
    ck_assert_uint_eq(told.total, ROOM * BLOCK);
    ck_assert_uint_eq(told.free, 6 * BLOCK);
    ck_assert_uint_eq(told.allocated, 2 * BLOCK);
    model_advance(S);
    model_fail(MODEL_MEM_INFO, 0, 1, 999);
    oom = (struct zone_oom){.requested = BLOCK, .bytes = BLOCK, .total = 4 * BLOCK};
    zone_refuse(&pool_process, MODEL_CTX2, &oom);
    ck_assert_uint_eq(told.total, 4 * BLOCK);
    ck_assert_uint_eq(told.free, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refuse");
    TCase *tcase = tcase_create("refuse");
    tcase_add_checked_fixture(tcase, setup, pool_teardown);
    tcase_add_test(tcase, tells_the_facts);
    tcase_add_test(tcase, tells_of_segments);
    tcase_add_test(tcase, all_contexts_of_the_device);
    tcase_add_test(tcase, trying_costs_no_more);
    tcase_add_test(tcase, what_no_device_has);
    tcase_add_test(tcase, names_the_limit);
    tcase_add_test(tcase, while_capturing);
    tcase_add_test(tcase, without_a_pool);
    suite_add_tcase(suite, tcase);
    return unit_main(suite);
}
