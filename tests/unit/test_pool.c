/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool's two fast paths: what is reused, when, in which order, and how many calls of the device
 * that costs. Every malloc here runs under the model's rule that it may not wait, record or give
 * back (model_gpu.h). test_pool_wait.c has the waits of a free, test_pool_odd.c the odd blocks.
 */
#include "pool_fixture.h"

enum { RECORD_EVERY = 16 }; /* small frees of a thread; pool.c */

START_TEST(same_class_is_reused)
{
    zone_addr_t first = take(100000);
    give(first);
    zone_addr_t other = take(2000000);
    ck_assert_uint_ne(other, first);
    give(other); /* records for the first too */
    ck_assert_uint_eq(take(100001), first);
    ck_assert_uint_eq(take(2000000), other);
    struct zone_counters now = counts();
    ck_assert_uint_eq(now.hits, 2);
    ck_assert_uint_eq(now.misses, 2);
    ck_assert_uint_eq(now.driver_alloc_calls, 2);
    ck_assert_uint_eq(now.requested_bytes.current, 2100001);
    ck_assert_uint_eq(now.allocated_bytes.current, 100352 + 2000384);
    ck_assert_uint_eq(now.reserved_bytes.current, model_used());
}
END_TEST

/* Classes are multiples of 512 bytes: the driver's own step. */
START_TEST(classes)
{
    static const size_t sizes[][2] = {{1, 512},           {512, 512},
                                      {513, 1024},        {1048575, 1048576},
                                      {1048577, 1049088}, {3000000001, 3000000512}};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        zone_addr_t addr = take(sizes[i][0]);
        ck_assert_uint_eq(block_at(addr)->bytes, sizes[i][1]);
        give(addr);
    }
}
END_TEST

START_TEST(rounded_classes_share_blocks)
{
    pool_reopen(8 * ZONE_GIB, "roundup_power2_divisions:4");
    zone_addr_t addr = take(65 * ZONE_MIB);
    ck_assert_uint_eq(block_at(addr)->bytes, 80 * ZONE_MIB);
    give(addr);
    ck_assert_uint_eq(take(79 * ZONE_MIB), addr);
    ck_assert_uint_eq(counts().requested_bytes.current, 79 * ZONE_MIB);
    ck_assert_uint_eq(counts().allocated_bytes.current, 80 * ZONE_MIB);
}
END_TEST

/* Sizes that no class holds are the driver's matter, with the program's own number. */
START_TEST(impossible_sizes_are_the_drivers)
{
    zone_addr_t addr = 5;
    ck_assert_int_eq(try_take(0, &addr), ZONE_GPU_INVALID_VALUE);
    ck_assert_int_eq(try_take(SIZE_MAX, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_int_eq(try_take(SIZE_MAX - 100, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_int_eq(try_take(65 * ZONE_GIB, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_uint_eq(addr, 5);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 4);
    ck_assert_uint_eq(model_count(MODEL_SLEEP), 0);
}
END_TEST

/* A malloc that finds only pending blocks grows. */
START_TEST(malloc_grows_rather_than_waits)
{
    zone_addr_t first = take(4 * ZONE_MIB);
    work_on(first, 1, MODEL_FOREVER);
    give(first);
    unsigned before = calls();
    zone_addr_t second = take(4 * ZONE_MIB);
    ck_assert_uint_ne(second, first);
    ck_assert_uint_eq(model_count(MODEL_QUERY), 1);
    ck_assert_uint_eq(calls() - before, 2); /* the question and the allocation */
}
END_TEST

/* Nor does it give back what other classes hold, as long as the device has memory. */
START_TEST(malloc_keeps_other_classes)
{
    zone_addr_t first = take(4 * ZONE_MIB);
    zone_addr_t second = take(4 * ZONE_MIB);
    give(first);
    give(second);
    ck_assert_uint_eq(take(4 * ZONE_MIB), first); /* the second is known to be ready */
    take(16 * ZONE_MIB);
    ck_assert(model_is_held(second));
    ck_assert_uint_eq(model_count(MODEL_FREE), 0);
}
END_TEST

/* A small block freed without a record is not ready before somebody records and that completes. */
START_TEST(small_blocks_wait_for_a_record)
{
    zone_addr_t small = take(4096);
    unsigned work = work_on(small, 1, MODEL_FOREVER);
    give(small);
    ck_assert_uint_eq(model_count(MODEL_RECORD), 0);
    zone_addr_t second = take(4096);
    ck_assert_uint_ne(second, small);
    ck_assert_uint_eq(model_count(MODEL_QUERY), 0); /* nothing published */
    give(take(2 * ZONE_MIB));
    ck_assert_uint_ne(take(4096), small);
    model_finish(work);
    ck_assert_uint_eq(take(4096), small);
}
END_TEST

START_TEST(small_frees_share_a_record)
{
    zone_addr_t addrs[4 * RECORD_EVERY];
    for (unsigned i = 0; i < 4 * RECORD_EVERY; i++) {
        addrs[i] = take(512);
    }
    for (unsigned i = 0; i < 4 * RECORD_EVERY; i++) {
        ck_assert_uint_eq(model_count(MODEL_RECORD), i / RECORD_EVERY);
        give(addrs[i]);
    }
    ck_assert_uint_eq(model_count(MODEL_RECORD), 4);
    ck_assert_uint_eq(counts().pending_bytes.current, 4 * RECORD_EVERY * 512);
}
END_TEST

/* Bytes make a record due too, so that few frees cannot hold much back. */
START_TEST(small_frees_of_many_bytes_record)
{
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_uint_eq(model_count(MODEL_RECORD), 0);
        give(take(ZONE_MIB - 512));
    }
    give(take(ZONE_MIB - 512));
    ck_assert_uint_eq(model_count(MODEL_RECORD), 1);
}
END_TEST

/* The block freed first is ready first. */
START_TEST(first_freed_first_reused)
{
    zone_addr_t addrs[8];
    for (unsigned i = 0; i < 8; i++) {
        addrs[i] = take(ZONE_MIB);
    }
    for (unsigned i = 0; i < 8; i++) {
        work_on(addrs[i], 1, MS);
        give(addrs[i]);
    }
    model_advance(4 * MS);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(take(ZONE_MIB), addrs[i]);
    }
    zone_addr_t grown = take(ZONE_MIB);
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_uint_ne(grown, addrs[i]);
    }
}
END_TEST

START_TEST(hit_calls_nothing)
{
    zone_addr_t addrs[RECORD_EVERY];
    for (unsigned i = 0; i < RECORD_EVERY; i++) {
        addrs[i] = take(4096);
    }
    for (unsigned i = 0; i < RECORD_EVERY; i++) {
        give(addrs[i]);
    }
    ck_assert_uint_eq(take(4096), addrs[0]); /* asks, and settles all */
    unsigned before = calls();
    for (unsigned i = 1; i < RECORD_EVERY; i++) {
        ck_assert_uint_eq(take(4096), addrs[i]);
        give(addrs[i - 1]);
    }
    ck_assert_uint_eq(calls(), before);
}
END_TEST

/* The calls of so many pairs on an idle device after some to warm up. */
static void pairs(size_t bytes, unsigned count, unsigned *ret_records, unsigned *ret_queries)
{
    for (unsigned i = 0; i < 64; i++) {
        give(take(bytes));
    }
    unsigned all = calls();
    unsigned records = model_count(MODEL_RECORD);
    unsigned queries = model_count(MODEL_QUERY);
    for (unsigned i = 0; i < count; i++) {
        zone_addr_t addr = take(bytes);
        work_on(addr, 1, 0);
        give(addr);
    }
    *ret_records = model_count(MODEL_RECORD) - records;
    *ret_queries = model_count(MODEL_QUERY) - queries;
    ck_assert_uint_eq(calls() - all, *ret_records + *ret_queries);
}

START_TEST(small_pairs)
{
    unsigned records, queries;
    pairs(4096, 100 * RECORD_EVERY, &records, &queries);
    ck_assert_uint_le(records, 100);
    ck_assert_uint_le(queries, 100);
    ck_assert_uint_le(model_used(), 2 * ZONE_MIB);
}
END_TEST

START_TEST(large_pairs)
{
    unsigned records, queries;
    pairs(16 * ZONE_MIB, 1000, &records, &queries);
    ck_assert_uint_le(records, 1000);
    ck_assert_uint_le(queries, 1000);
    ck_assert_uint_le(model_used(), 2 * 16 * ZONE_MIB);
}
END_TEST

/* A busy device costs a malloc at most two questions, and soon one. */
START_TEST(busy_pairs)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:1024");
    zone_addr_t addr = take(8 * ZONE_MIB);
    work_on(addr, 1, MODEL_FOREVER);
    give(addr);
    for (unsigned i = 0; i < 8; i++) {
        unsigned queries = model_count(MODEL_QUERY);
        give(take(8 * ZONE_MIB));
        ck_assert_uint_le(model_count(MODEL_QUERY) - queries, 2);
    }
    ck_assert_uint_le(model_count(MODEL_QUERY), 9);
}
END_TEST

/* One thread that frees small blocks of two contexts in turn must not forget either. */
START_TEST(small_frees_in_two_contexts)
{
    struct zone_pool *second = pool_of(MODEL_CTX2, 1);
    for (unsigned i = 0; i < 50 * RECORD_EVERY; i++) {
        zone_addr_t a = take(4096);
        zone_addr_t b = take_from(second, 8192);
        give(a);
        give(b);
    }
    /* A segment each. */
    ck_assert_uint_le(model_used(), 4 * ZONE_MIB);
}
END_TEST

/* cudaFreeAsync of pool memory natively waits for nothing, however much is pending. */
START_TEST(free_in_stream_never_waits)
{
    static const char *const confs[] = {"max_pending_mb:0", "free_order:sync", "max_cached_mb:0",
                                        "min_free_mb:1024", ""};
    for (unsigned i = 0; i < sizeof(confs) / sizeof(confs[0]); i++) {
        pool_reopen(2 * ZONE_GIB, confs[i]);
        model_set_neighbour(ZONE_GIB + 512 * ZONE_MIB);
        zone_addr_t addr = take(256 * ZONE_MIB);
        unsigned work = work_on(addr, 1, MODEL_FOREVER);
        give_in_stream(addr);
        ck_assert_uint_eq(model_count(MODEL_RECORD), 1);
        ck_assert_uint_ne(take(64 * ZONE_MIB), addr);
        model_finish(work);
        ck_assert_uint_eq(take(256 * ZONE_MIB), addr);
        ck_assert_uint_eq(model_stalls(), 0);
    }
}
END_TEST

START_TEST(buffer_ids_are_new_every_time)
{
    enum { BLOCKS = 8, ROUNDS = 40 };
    static uint64_t ids[BLOCKS * ROUNDS];
    unsigned count = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        zone_addr_t addrs[BLOCKS];
        for (unsigned i = 0; i < BLOCKS; i++) {
            addrs[i] = take(ZONE_MIB);
            struct zone_block *block = block_at(addrs[i]);
            ck_assert(block->fresh == (block->bytes > 0 && (round == 0 || round == ROUNDS / 2)));
            if (!block->fresh) {
                uint64_t id = zone_block_buffer_id(block);
                ck_assert(id >> 63); /* never one of the driver's */
                ck_assert_uint_eq(zone_block_buffer_id(block), id);
                ids[count++] = id;
            }
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            give(addrs[i]);
        }
        if (round == ROUNDS / 2 - 1) {
            /* The records serve other memory from here on. */
            int fault = 0;
            ck_assert(zone_fence_poll(&pool->fence, model_gpu(), zone_fence_stamp(&pool->fence) - 1,
                                      0, &fault));
            ck_assert_uint_eq(zone_pool_give_back(pool, SIZE_MAX), BLOCKS * ZONE_MIB);
        }
    }
    ck_assert_uint_eq(count, BLOCKS * (ROUNDS - 2));
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < i; j++) {
            ck_assert_uint_ne(ids[i], ids[j]);
        }
    }
}
END_TEST

static Suite *pool_suite(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase = tcase_create("pool");
    tcase_set_timeout(tcase, 30); /* under checkers */
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_test(tcase, same_class_is_reused);
    tcase_add_test(tcase, classes);
    tcase_add_test(tcase, rounded_classes_share_blocks);
    tcase_add_test(tcase, impossible_sizes_are_the_drivers);
    tcase_add_test(tcase, malloc_grows_rather_than_waits);
    tcase_add_test(tcase, malloc_keeps_other_classes);
    tcase_add_test(tcase, small_blocks_wait_for_a_record);
    tcase_add_test(tcase, small_frees_share_a_record);
    tcase_add_test(tcase, small_frees_of_many_bytes_record);
    tcase_add_test(tcase, first_freed_first_reused);
    tcase_add_test(tcase, hit_calls_nothing);
    tcase_add_test(tcase, small_pairs);
    tcase_add_test(tcase, large_pairs);
    tcase_add_test(tcase, busy_pairs);
    tcase_add_test(tcase, small_frees_in_two_contexts);
    tcase_add_test(tcase, free_in_stream_never_waits);
    tcase_add_test(tcase, buffer_ids_are_new_every_time);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(pool_suite());
}
