/* SPDX-License-Identifier: Apache-2.0
 *
 * Odd blocks and odd times: double frees, tainted blocks, lost contexts, captures, codes of the
 * driver that must reach the program as they are.
 */
#include "pool_fixture.h"

#define BLOCK (16 * ZONE_MIB)
enum { FAULT = 700 };

/* Never passed on: the driver would free the block under us. */
START_TEST(double_free_is_refused)
{
    zone_addr_t addr = take(BLOCK);
    give(addr);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(try_give(addr), ZONE_GPU_INVALID_VALUE);
    }
    ck_assert_uint_eq(model_count(MODEL_FREE), 0);
    zone_addr_t first = take(BLOCK);
    zone_addr_t second = take(BLOCK);
    ck_assert_uint_eq(first, addr);
    ck_assert_uint_ne(second, addr);
    ck_assert_uint_eq(counts().allocated_bytes.current, 2 * BLOCK);
}
END_TEST

START_TEST(tainted_blocks_are_freed_for_real)
{
    zone_addr_t addr = take(BLOCK);
    zone_pool_taint(block_at(addr));
    zone_pool_taint(block_at(addr));
    ck_assert_uint_eq(counts().tainted, 1);
    unsigned work = work_on(addr, 1, MS);
    model_allow_free_in_use(true); /* the program's own free, which waits */
    give(addr);
    ck_assert(model_is_complete(work));
    ck_assert(!model_is_held(addr));
    ck_assert_ptr_null(zone_ptrmap_get(addr));
    struct zone_counters now = counts();
    ck_assert_uint_eq(now.driver_free_calls, 1);
    ck_assert_uint_eq(now.reserved_bytes.current, 0);
    ck_assert_uint_eq(now.allocated_bytes.current, 0);
    ck_assert_uint_eq(now.records, 0);
    /* The record serves another allocation, which is not tainted. */
    zone_addr_t next = take(BLOCK);
    give(next);
    ck_assert(model_is_held(next));
}
END_TEST

/* The driver's refusal is the program's: the block stays its own. */
START_TEST(failed_free_for_real_leaves_the_block)
{
    zone_addr_t addr = take(BLOCK);
    zone_pool_taint(block_at(addr));
    model_fail(MODEL_FREE, 0, 1, ZONE_GPU_INVALID_VALUE);
    ck_assert_int_eq(try_give(addr), ZONE_GPU_INVALID_VALUE);
    ck_assert_uint_eq(counts().allocated_bytes.current, BLOCK);
    ck_assert_int_eq(pool->fault, 0);
    give(addr);
    ck_assert_uint_eq(counts().reserved_bytes.current, 0);
}
END_TEST

START_TEST(fault_in_a_free)
{
    zone_addr_t addr = take(BLOCK);
    model_set_fault(FAULT);
    ck_assert_int_eq(try_give(addr), FAULT);
    ck_assert_uint_eq(counts().fault_code, FAULT);
    ck_assert_int_eq(try_give(addr), ZONE_GPU_INVALID_VALUE); /* the shim says FAULT here */
}
END_TEST

START_TEST(fault_in_a_malloc)
{
    zone_addr_t addr = take(BLOCK);
    give(addr);
    model_set_fault(FAULT);
    ck_assert_int_eq(try_take(BLOCK, &addr), FAULT);
    ck_assert_uint_eq(counts().fault_code, FAULT);
    ck_assert_uint_eq(model_count(MODEL_ALLOC), 1); /* the question said it */
}
END_TEST

START_TEST(fault_in_growth)
{
    zone_addr_t addr;
    model_set_fault(FAULT);
    ck_assert_int_eq(try_take(BLOCK, &addr), FAULT);
    ck_assert_uint_eq(counts().fault_code, FAULT);
}
END_TEST

START_TEST(fault_in_a_wait)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:0");
    zone_addr_t addr = take(BLOCK);
    work_on(addr, 1, MS);
    model_fail(MODEL_WAIT, 0, 1, FAULT);
    ck_assert_int_eq(try_give(addr), FAULT);
    ck_assert_uint_eq(counts().fault_code, FAULT);
}
END_TEST

/* Once the context is lost every call is the driver's, also those that the pool could serve. */
START_TEST(after_a_fault_calls_pass)
{
    zone_addr_t ready = take(BLOCK);
    zone_addr_t live = take(BLOCK);
    zone_addr_t small = take(512);
    zone_addr_t addr;
    give(ready);
    zone_addr_t again = take(BLOCK);
    ck_assert_uint_eq(again, ready);
    give(again);
    int fault = 0;
    ck_assert(zone_fence_ask(&pool->fence, model_gpu(), 2, &fault)); /* ready from here on */
    model_set_fault(FAULT);
    ck_assert_int_eq(try_give(small), ZONE_GPU_OK); /* calls nothing: told one call later */
    ck_assert_int_eq(try_give(live), FAULT);
    ck_assert_int_eq(try_take(BLOCK, &addr), FAULT);
    ck_assert_int_eq(try_take(512, &addr), FAULT);
    ck_assert_int_eq(try_take(0, &addr), FAULT);
    unsigned frees = model_count(MODEL_FREE);
    ck_assert_int_eq(zone_pool_free_for_real(block_at(live)), FAULT);
    ck_assert_uint_eq(model_count(MODEL_FREE), frees + 1);
}
END_TEST

START_TEST(frees_after_a_fault_pass)
{
    zone_addr_t first = take(BLOCK);
    zone_addr_t second = take(BLOCK);
    model_set_fault(FAULT);
    ck_assert_int_eq(try_give(first), FAULT);
    for (unsigned i = 1; i <= 3; i++) {
        ck_assert_int_eq(try_give(second), FAULT); /* live again each time, as natively */
        ck_assert_uint_eq(model_count(MODEL_FREE), i);
    }
    ck_assert_uint_eq(counts().allocated_bytes.current, BLOCK);
}
END_TEST

/* A free that meets a capture beside it records nothing, and its block waits for a later one. */
START_TEST(capture_refuses_the_record)
{
    zone_addr_t addr = take(BLOCK);
    unsigned work = work_on(addr, 1, MODEL_FOREVER);
    model_set_capture(true);
    give(addr);
    ck_assert_uint_eq(counts().record_failures, 1);
    ck_assert_uint_ne(take(BLOCK), addr);
    model_set_capture(false);
    give(take(ZONE_MIB));
    ck_assert_uint_ne(take(BLOCK), addr);
    model_finish(work);
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

/* During a capture: the driver first, as natively; never the fence. */
START_TEST(capture_allocates_without_the_fence)
{
    zone_addr_t addr, ready;
    pool_reopen(8 * BLOCK, "min_free_mb:0,max_pending_mb:1024");
    zone_addr_t addrs[8];
    for (unsigned i = 0; i < 7; i++) {
        addrs[i] = take(i < 4 ? BLOCK : 2 * ZONE_MIB);
    }
    for (unsigned i = 0; i < 7; i++) {
        give(addrs[i]);
    }
    ready = take(BLOCK);
    ck_assert_uint_eq(ready, addrs[0]);
    model_set_capture(true);
    unsigned asked = model_count(MODEL_QUERY) + model_count(MODEL_RECORD);
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 3 * BLOCK, &addr), 0);
    model_handed_out(addr, 3 * BLOCK);
    ck_assert_uint_eq(model_used(), 7 * BLOCK + 6 * ZONE_MIB);
    /* No room: what is ready of the class. */
    ck_assert_int_eq(zone_pool_alloc_captured(pool, BLOCK, &addr), 0);
    ck_assert_uint_eq(addr, addrs[1]);
    /* Of another class: what is ready goes back, in the capture's own mode. */
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 2 * BLOCK, &addr), 0);
    ck_assert(!model_is_held(addrs[2]));
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 2 * BLOCK, &addr), ZONE_GPU_OUT_OF_MEMORY);
    ck_assert_int_eq(zone_pool_alloc_captured(pool, 0, &addr), ZONE_GPU_INVALID_VALUE);
    ck_assert_uint_eq(model_count(MODEL_QUERY) + model_count(MODEL_RECORD), asked);
    ck_assert_uint_eq(model_count(MODEL_SYNCHRONIZE) + model_count(MODEL_WAIT), 0);
    model_set_capture(false);
}
END_TEST

/* A program that captures again and again and allocates meanwhile does not fill the device: the
 * driver was asked for that memory whatever was cached, so it is the driver's again once freed. */
START_TEST(capture_allocations_do_not_pile_up)
{
    static const size_t sizes[] = {4096, BLOCK};
    for (unsigned i = 0; i < 2; i++) {
        size_t used = model_used();
        for (unsigned round = 0; round < 20; round++) {
            zone_addr_t addr;
            model_set_capture(true);
            ck_assert_int_eq(zone_pool_alloc_captured(pool, sizes[i], &addr), 0);
            model_set_capture(false);
            give(addr);
        }
        ck_assert_uint_eq(model_used(), used);
    }
    ck_assert_uint_eq(counts().tainted, 0); /* nobody else holds it */
}
END_TEST

/* Where a capture forbids it the driver's code is the program's, and the pool none the wiser. */
START_TEST(capture_codes_are_the_programs)
{
    zone_addr_t addr = take(BLOCK);
    zone_addr_t none = 0;
    model_fail(MODEL_ALLOC, 0, 1, 900);
    ck_assert_int_eq(zone_pool_alloc_captured(pool, BLOCK, &none), 900);
    model_fail(MODEL_FREE, 0, 1, 900);
    ck_assert(zone_block_claim(block_at(addr)));
    ck_assert_int_eq(zone_pool_free_for_real(block_at(addr)), 900);
    ck_assert_int_eq(pool->fault, 0);
    ck_assert_uint_eq(none, 0);
    give(addr);
    ck_assert_uint_eq(take(BLOCK), addr);
}
END_TEST

static Suite *pool_odd_suite(void)
{
    Suite *suite = suite_create("pool odd");
    TCase *tcase = tcase_create("pool odd");
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_test(tcase, double_free_is_refused);
    tcase_add_test(tcase, tainted_blocks_are_freed_for_real);
    tcase_add_test(tcase, failed_free_for_real_leaves_the_block);
    tcase_add_test(tcase, fault_in_a_free);
    tcase_add_test(tcase, fault_in_a_malloc);
    tcase_add_test(tcase, fault_in_growth);
    tcase_add_test(tcase, fault_in_a_wait);
    tcase_add_test(tcase, after_a_fault_calls_pass);
    tcase_add_test(tcase, frees_after_a_fault_pass);
    tcase_add_test(tcase, capture_refuses_the_record);
    tcase_add_test(tcase, capture_allocates_without_the_fence);
    tcase_add_test(tcase, capture_allocations_do_not_pile_up);
    tcase_add_test(tcase, capture_codes_are_the_programs);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(pool_odd_suite());
}
