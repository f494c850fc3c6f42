/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence's waits (pool/fence.h): who waits for what, and what the thread is safe from meanwhile.
 */
#include "fence_fixture.h"

static void other_works_and_stamps(void *arg)
{
    struct other *other = arg;
    other->work = model_launch(MODEL_CTX, 2, 0, MODEL_FOREVER);
    other->stamp = zone_fence_stamp(&fence);
}

static void fill_ring(size_t bytes)
{
    for (unsigned i = 0; i < ZONE_FENCE_MARKS; i++) {
        fence_close(bytes);
    }
}

/* Work of others that is submitted and freed after this free took its number. */
static void other_never_ends(void *arg)
{
    struct other *other = arg;
    other->work = model_launch(MODEL_CTX, 2, 0, MODEL_FOREVER);
    other->ticket = fence_close(1000);
}

/* The model ends the test if the free waits for work that never ends. */
START_TEST(free_waits_only_for_what_was_before_it)
{
    struct other other = {0};
    model_launch(MODEL_CTX, 1, 0, MS);
    fence_close(500);
    model_hook(MODEL_RECORD, 0, MODEL_AFTER, other_never_ends, &other);
    struct zone_ticket ticket = fence_close(100);
    struct other last = {0};
    other_never_ends(&last);
    ck_assert_uint_eq(fence_settle_to(&ticket, 0), MS);
    ck_assert_uint_ge(zone_fence_ready(&fence), ticket.epoch);
    ck_assert_uint_lt(zone_fence_ready(&fence), other.ticket.epoch);
    ck_assert_uint_ge(zone_fence_pending(&fence), 2000);
    ck_assert(!model_is_complete(other.work));
    ck_assert_uint_eq(fence_settle_to(&ticket, 0), 0);
}
END_TEST

/* The mark that brings it down to the target, not an older nor a newer one. */
START_TEST(waits_for_the_mark_that_suffices)
{
    struct zone_ticket ticket = {0};
    for (unsigned i = 0; i < 8; i++) {
        model_launch(MODEL_CTX, 1, 0, MS);
        ticket = fence_close(100);
    }
    ck_assert_uint_eq(fence_settle_to(&ticket, 800), 0);
    ck_assert_uint_eq(model_count(MODEL_QUERY) + model_count(MODEL_WAIT), 0);
    ck_assert_uint_eq(fence_settle_to(&ticket, 600), 2 * MS);
    ck_assert_uint_eq(zone_fence_pending(&fence), 600);
    ck_assert_uint_eq(fence_settle_to(&ticket, 599), MS);
    ck_assert_uint_eq(zone_fence_pending(&fence), 500);
    ck_assert_uint_eq(fence_settle_to(&ticket, 0), 5 * MS);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert_uint_eq(model_count(MODEL_WAIT), 3);
}
END_TEST

/* Work that ended meanwhile needs no wait, and is not counted as one. */
START_TEST(asks_before_it_waits)
{
    model_launch(MODEL_CTX, 1, 0, MS);
    struct zone_ticket ticket = fence_close(100);
    model_advance(2 * MS);
    ck_assert_uint_eq(fence_settle_to(&ticket, 0), 0);
    ck_assert_uint_eq(model_count(MODEL_WAIT), 0);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
}
END_TEST

START_TEST(waits_for_its_own_mark)
{
    uint64_t waited = 0;
    model_launch(MODEL_CTX, 1, 0, MS);
    struct zone_ticket ticket = fence_close(100);
    model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    ck_assert_int_eq(zone_fence_wait_own(&fence, model_gpu(), &ticket, &waited), 0);
    ck_assert_uint_eq(waited, MS);
    ck_assert_uint_ge(zone_fence_ready(&fence), ticket.epoch);
    ck_assert_int_eq(zone_fence_wait_own(&fence, model_gpu(), &ticket, &waited), 0);
    ck_assert_uint_eq(waited, 0);
    struct zone_ticket none = {.epoch = 99};
    ck_assert_int_eq(zone_fence_wait_own(&fence, model_gpu(), &none, &waited), 0);
    ck_assert_uint_eq(waited, 0);
}
END_TEST

START_TEST(poll_asks_until_ready)
{
    int fault = 0;
    const struct zone_gpu *gpu = model_gpu();
    model_launch(MODEL_CTX, 1, 0, 3 * MS);
    fence_close(1);
    model_launch(MODEL_CTX, 1, 0, 3 * MS);
    struct zone_ticket mine = fence_close(1);
    model_launch(MODEL_CTX, 2, 0, MODEL_FOREVER);
    struct zone_ticket others = fence_close(1);

    uint64_t start = model_now();
    ck_assert(zone_fence_poll(&fence, gpu, mine.epoch, start + 100 * MS, &fault));
    ck_assert_uint_ge(zone_fence_ready(&fence), mine.epoch);
    ck_assert_uint_lt(zone_fence_ready(&fence), others.epoch);
    ck_assert_uint_ge(model_now() - start, 6 * MS);
    ck_assert_uint_le(model_now() - start, 8 * MS);

    start = model_now();
    ck_assert(!zone_fence_poll(&fence, gpu, others.epoch, start + 20 * MS, &fault));
    ck_assert_uint_ge(model_now() - start, 20 * MS);
    ck_assert_uint_le(model_now() - start, 22 * MS);
    ck_assert_int_eq(fault, 0);
    ck_assert_uint_eq(model_count(MODEL_WAIT), 0);

    start = model_now();
    ck_assert(!zone_fence_poll(&fence, gpu, zone_fence_stamp(&fence), UINT64_MAX, &fault));
    ck_assert_uint_eq(model_now(), start); /* not published: nothing to wait for */
    model_set_fault(700);
    ck_assert(!zone_fence_poll(&fence, gpu, others.epoch, UINT64_MAX, &fault));
    ck_assert_int_eq(fault, 700);
}
END_TEST

/* What is waited for later is what a free would natively have waited for: not the epoch of a
 * stream-ordered free, nor of an allocation at its last rung. */
START_TEST(newest_wait_is_of_a_free_that_waits)
{
    struct zone_ticket ticket;
    ck_assert_uint_eq(zone_fence_newest_wait(&fence), 0);
    model_launch(MODEL_CTX, 1, 0, MS);
    struct zone_ticket mine = fence_close(1);
    unsigned work = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    ck_assert_int_eq(zone_fence_close(&fence, model_gpu(), MODEL_CTX, 1, false, &ticket), 0);
    ck_assert_uint_eq(zone_fence_newest_wait(&fence), mine.epoch);
    model_advance(MS);
    ck_assert(fence_ask(mine.epoch));
    ck_assert_uint_eq(zone_fence_newest_wait(&fence), 0);
    ck_assert(!model_is_complete(work));
}
END_TEST

START_TEST(event_in_a_wait_is_not_recorded)
{
    struct other other = {.rounds = 5};
    fence_two_marks();
    struct zone_ticket ticket = fence_close(1);
    model_hook(MODEL_WAIT, 0, MODEL_BEFORE, fence_other_settles_and_closes, &other);
    fence_settle_to(&ticket, 2);
}
END_TEST

/* Between the question and the wait the thread is in no call at all: what keeps the event is the
 * mark's users count. */
START_TEST(event_between_question_and_wait_is_not_recorded)
{
    struct other other = {.rounds = 5};
    fence_two_marks();
    struct zone_ticket ticket = fence_close(1);
    model_hook(MODEL_QUERY, 0, MODEL_AFTER, fence_other_settles_and_closes, &other);
    fence_settle_to(&ticket, 2);
    ck_assert(zone_fence_is_quiet(&fence));
}
END_TEST

START_TEST(event_of_a_poll_is_not_recorded)
{
    struct other other = {.rounds = 5};
    int fault = 0;
    fence_two_marks();
    model_hook(MODEL_QUERY, 1, MODEL_BEFORE, fence_other_settles_and_closes, &other);
    ck_assert(zone_fence_poll(&fence, model_gpu(), 2, model_now() + 100 * MS, &fault));
    ck_assert_int_eq(fault, 0);
}
END_TEST

/* A free that found the ring full came after all marks in it and may wait for them. */
START_TEST(full_ring_can_be_settled)
{
    struct zone_ticket ticket;
    model_launch(MODEL_CTX, 1, 0, MS);
    fill_ring(10);
    ck_assert_int_eq(zone_fence_close(&fence, model_gpu(), MODEL_CTX, 7, true, &ticket),
                     ZONE_GPU_REFUSED);
    ck_assert_uint_eq(fence_settle_to(&ticket, 5 * ZONE_FENCE_MARKS), MS);
    ck_assert_uint_le(zone_fence_pending(&fence), 5 * ZONE_FENCE_MARKS);
}
END_TEST

START_TEST(old_driver_waits_inside_the_free)
{
    struct zone_ticket ticket;
    const struct zone_gpu *gpu = model_gpu_without_events();
    model_launch(MODEL_CTX, 1, 0, MS);
    uint64_t start = model_now();
    ck_assert_int_eq(zone_fence_close(&fence, gpu, MODEL_CTX, 10, true, &ticket), 0);
    ck_assert_uint_eq(model_now() - start, MS);
    ck_assert_uint_eq(zone_fence_ready(&fence), ticket.epoch);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    model_fail(MODEL_SYNCHRONIZE, 0, 1, ZONE_GPU_REFUSED);
    ck_assert_int_eq(zone_fence_close(&fence, gpu, MODEL_CTX, 10, true, &ticket), ZONE_GPU_REFUSED);
    ck_assert_uint_lt(zone_fence_ready(&fence), ticket.epoch);
    ck_assert_int_eq(zone_fence_close(&fence, gpu, MODEL_CTX, 10, true, &ticket), 0);
    ck_assert_uint_eq(zone_fence_ready(&fence), ticket.epoch);
    ck_assert_uint_eq(fence.counts.record_failures, 1);
}
END_TEST

/* The number is taken before the context is waited for: what is freed beside the wait is later. */
START_TEST(old_driver_takes_the_number_first)
{
    struct zone_ticket ticket;
    struct other other = {0};
    model_hook(MODEL_SYNCHRONIZE, 0, MODEL_AFTER, other_works_and_stamps, &other);
    ck_assert_int_eq(
        zone_fence_close(&fence, model_gpu_without_events(), MODEL_CTX, 10, true, &ticket), 0);
    ck_assert_uint_gt(other.stamp, zone_fence_ready(&fence));
}
END_TEST

static void expect_busy(void *arg)
{
    unsigned *seen = arg;
    ck_assert(!zone_fence_is_quiet(&fence));
    ++*seen;
}

/* A fence may be started anew only when no thread is in it. */
START_TEST(quiet)
{
    static const enum model_call calls[] = {MODEL_EVENT_CREATE, MODEL_RECORD, MODEL_QUERY,
                                            MODEL_WAIT};
    unsigned seen = 0;
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        model_hook(calls[i], 0, MODEL_BEFORE, expect_busy, &seen);
        model_hook(calls[i], 0, MODEL_AFTER, expect_busy, &seen);
    }
    ck_assert(zone_fence_is_quiet(&fence));
    model_launch(MODEL_CTX, 1, 0, MS);
    struct zone_ticket ticket = fence_close(1);
    fence_settle_to(&ticket, 0);
    ck_assert_uint_eq(seen, 8);
    ck_assert(zone_fence_is_quiet(&fence));
}
END_TEST

static Suite *fence_wait_suite(void)
{
    Suite *suite = suite_create("fence wait");
    TCase *tcase = tcase_create("fence wait");
    tcase_set_timeout(tcase, 30); /* under checkers */
    tcase_add_checked_fixture(tcase, fence_setup, NULL);
    tcase_add_test(tcase, free_waits_only_for_what_was_before_it);
    tcase_add_test(tcase, waits_for_the_mark_that_suffices);
    tcase_add_test(tcase, asks_before_it_waits);
    tcase_add_test(tcase, waits_for_its_own_mark);
    tcase_add_test(tcase, poll_asks_until_ready);
    tcase_add_test(tcase, newest_wait_is_of_a_free_that_waits);
    tcase_add_test(tcase, event_in_a_wait_is_not_recorded);
    tcase_add_test(tcase, event_between_question_and_wait_is_not_recorded);
    tcase_add_test(tcase, event_of_a_poll_is_not_recorded);
    tcase_add_test(tcase, full_ring_can_be_settled);
    tcase_add_test(tcase, old_driver_waits_inside_the_free);
    tcase_add_test(tcase, old_driver_takes_the_number_first);
    tcase_add_test(tcase, quiet);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(fence_wait_suite());
}
