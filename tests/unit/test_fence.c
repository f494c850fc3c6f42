/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence, rule by rule (pool/fence.h): numbers, records, questions. test_fence_wait.c has the
 * waits; fence_interleave.c tries all orders of two threads.
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

/* What is submitted and freed after the event's record is not covered by it. */
START_TEST(number_before_record)
{
    struct other other = {0};
    model_hook(MODEL_RECORD, 0, MODEL_AFTER, other_works_and_stamps, &other);
    struct zone_ticket ticket = fence_close(1);
    ck_assert_uint_gt(other.stamp, ticket.epoch);
    ck_assert(fence_ask(ticket.epoch));
    ck_assert(!fence_ask(other.stamp));
    ck_assert(!model_is_complete(other.work));
}
END_TEST

START_TEST(stamp_is_the_open_epoch)
{
    uint64_t stamp = zone_fence_stamp(&fence);
    unsigned work = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    ck_assert_uint_eq(zone_fence_stamp(&fence), stamp);
    struct zone_ticket first = fence_close(1);
    ck_assert_uint_eq(first.epoch, stamp);
    uint64_t later = zone_fence_stamp(&fence);
    ck_assert_uint_eq(later, stamp + 1);
    ck_assert(!fence_ask(stamp));
    model_finish(work);
    ck_assert(fence_ask(stamp));
    ck_assert(!fence_ask(later)); /* nobody recorded it yet */
    fence_close(1);
    ck_assert(fence_ask(later));
}
END_TEST

START_TEST(nothing_recorded_nothing_asked)
{
    ck_assert(!fence_ask(zone_fence_stamp(&fence)));
    fence_close(1);
    ck_assert(!fence_ask(zone_fence_stamp(&fence)));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 0);
}
END_TEST

static void other_asks(void *arg)
{
    struct other *other = arg;
    other->ready = fence_ask(other->stamp);
}

/* A number that was taken is not a mark yet: neither before nor after the device has recorded. */
START_TEST(only_published_epochs_are_asked)
{
    struct other other = {.stamp = zone_fence_stamp(&fence), .ready = true};
    struct other later = {.stamp = zone_fence_stamp(&fence), .ready = true};
    model_hook(MODEL_RECORD, 0, MODEL_BEFORE, other_asks, &other);
    model_hook(MODEL_RECORD, 0, MODEL_AFTER, other_asks, &later);
    fence_close(1);
    ck_assert(!other.ready);
    ck_assert(!later.ready);
    ck_assert_uint_eq(model_count(MODEL_QUERY), 0);
}
END_TEST

struct failing {
    enum model_call call;
    int rc;
};

static const struct failing failing[] = {
    {MODEL_RECORD, 700},
    {MODEL_RECORD, ZONE_GPU_REFUSED},
    {MODEL_EVENT_CREATE, 2},
    {MODEL_RECORD, 900},
};

/* The epoch stays open: its blocks become ready only with a later one, and their bytes with it. */
START_TEST(failed_record_leaves_the_epoch_open)
{
    const struct failing *how = &failing[_i];
    struct zone_ticket failed;
    unsigned work = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    model_fail(how->call, 0, 1, how->rc);
    ck_assert_int_eq(zone_fence_close(&fence, model_gpu(), MODEL_CTX, 100, true, &failed), how->rc);
    ck_assert(!failed.published);
    ck_assert_uint_gt(failed.epoch, 0);
    ck_assert_uint_eq(fence.counts.record_failures, 1);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert(!fence_ask(failed.epoch));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 0);

    struct zone_ticket next = fence_close(10);
    ck_assert_uint_gt(next.epoch, failed.epoch);
    ck_assert_uint_eq(zone_fence_pending(&fence), 110);
    ck_assert(!fence_ask(failed.epoch));
    model_finish(work);
    ck_assert(fence_ask(failed.epoch));
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert_uint_eq(fence.counts.records, 1);
}
END_TEST

START_TEST(event_in_a_question_is_not_recorded)
{
    struct other other = {.rounds = 5};
    fence_two_marks();
    model_hook(MODEL_QUERY, 0, MODEL_BEFORE, fence_other_settles_and_closes, &other);
    ck_assert(fence_ask(1));
}
END_TEST

/* On an idle device one question settles everything. */
START_TEST(newest_settles_all)
{
    for (unsigned i = 0; i < 100; i++) {
        fence_close(1);
    }
    ck_assert(fence_ask(1));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 1);
    ck_assert_uint_eq(zone_fence_ready(&fence), 100);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert_uint_eq(model_count(MODEL_EVENT_CREATE), 100);
    for (unsigned i = 0; i < 100; i++) {
        fence_close(1);
    }
    ck_assert_uint_eq(model_count(MODEL_EVENT_CREATE), 100);
}
END_TEST

/* On a busy one a malloc asks at most twice, and soon only once. */
START_TEST(busy_device_is_asked_once)
{
    unsigned first = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    fence_close(1);
    unsigned second = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    fence_close(1);
    ck_assert(!fence_ask(1));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 2);
    ck_assert(!fence_ask(1));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 3);
    model_finish(first);
    ck_assert(fence_ask(1));
    ck_assert(!fence_ask(2));
    model_finish(second);
    ck_assert(fence_ask(2));
    ck_assert_uint_eq(model_count(MODEL_QUERY), 6);
    ck_assert(fence.ask_newest);
}
END_TEST

/* With all marks pending a free records nothing; its blocks wait for the next record. */
START_TEST(full_ring_refuses)
{
    struct zone_ticket ticket;
    unsigned work = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    fill_ring(10);
    ck_assert_int_eq(zone_fence_close(&fence, model_gpu(), MODEL_CTX, 7, true, &ticket),
                     ZONE_GPU_REFUSED);
    ck_assert(!ticket.published);
    ck_assert_uint_eq(ticket.epoch, zone_fence_stamp(&fence));
    ck_assert_uint_eq(model_count(MODEL_RECORD), ZONE_FENCE_MARKS);
    ck_assert_uint_eq(zone_fence_pending(&fence), 10 * ZONE_FENCE_MARKS);
    model_finish(work);
    ck_assert(fence_ask(1));
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert(!fence_ask(ticket.epoch));
    fill_ring(10);
    ck_assert_uint_eq(zone_fence_pending(&fence), 10 * ZONE_FENCE_MARKS + 7);
    ck_assert(fence_ask(ticket.epoch));
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert_uint_eq(model_count(MODEL_EVENT_CREATE), ZONE_FENCE_MARKS);
}
END_TEST

START_TEST(a_lost_context_is_told)
{
    int fault = 0;
    uint64_t waited = 0;
    struct zone_ticket ticket = fence_close(1);
    model_set_fault(719);
    ck_assert(!zone_fence_ask(&fence, model_gpu(), 1, &fault));
    ck_assert_int_eq(fault, 719);
    ck_assert_int_eq(zone_fence_settle_to(&fence, model_gpu(), &ticket, 0, &waited), 719);
    ck_assert_int_eq(zone_fence_wait_own(&fence, model_gpu(), &ticket, &waited), 719);
    ck_assert_uint_eq(model_count(MODEL_WAIT), 0);
}
END_TEST

/* Codes that leave the context as it was are not faults. */
START_TEST(codes_that_are_no_faults)
{
    static const int harmless[] = {ZONE_GPU_OK,
                                   ZONE_GPU_INVALID_VALUE,
                                   ZONE_GPU_OUT_OF_MEMORY,
                                   ZONE_GPU_NOT_READY,
                                   ZONE_GPU_REFUSED,
                                   900,
                                   901,
                                   909};
    for (unsigned i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
        ck_assert(!zone_gpu_is_fault(harmless[i]));
    }
    ck_assert(zone_gpu_is_fault(700));
    ck_assert(zone_gpu_is_fault(719));
    ck_assert(zone_gpu_is_fault(999));
    ck_assert(zone_gpu_is_fault(4));
}
END_TEST

static void other_closes(void *arg)
{
    struct other *other = arg;
    other->ticket = fence_close(100);
}

/* Two frees overlap: the later number may be published first. */
START_TEST(marks_out_of_order)
{
    struct other other = {0};
    unsigned work = model_launch(MODEL_CTX, 1, 0, MODEL_FOREVER);
    model_hook(MODEL_RECORD, 0, MODEL_BEFORE, other_closes, &other);
    struct zone_ticket ticket = fence_close(10);
    ck_assert_uint_lt(ticket.epoch, other.ticket.epoch);
    ck_assert_uint_gt(ticket.index, other.ticket.index);
    ck_assert(!fence_ask(ticket.epoch));
    ck_assert(!fence_ask(other.ticket.epoch));
    model_finish(work);
    ck_assert(fence_ask(other.ticket.epoch));
    ck_assert(fence_ask(ticket.epoch));
    uint64_t waited = 0;
    ck_assert_int_eq(zone_fence_settle_to(&fence, model_gpu(), &ticket, 0, &waited), 0);
    ck_assert_uint_eq(zone_fence_pending(&fence), 0);
    ck_assert(zone_fence_is_quiet(&fence));
}
END_TEST

static Suite *fence_suite(void)
{
    Suite *suite = suite_create("fence");
    TCase *tcase = tcase_create("fence");
    tcase_set_timeout(tcase, 30); /* under checkers */
    tcase_add_checked_fixture(tcase, fence_setup, NULL);
    tcase_add_test(tcase, number_before_record);
    tcase_add_test(tcase, stamp_is_the_open_epoch);
    tcase_add_test(tcase, nothing_recorded_nothing_asked);
    tcase_add_test(tcase, only_published_epochs_are_asked);
    tcase_add_loop_test(tcase, failed_record_leaves_the_epoch_open, 0,
                        sizeof(failing) / sizeof(failing[0]));
    tcase_add_test(tcase, event_in_a_question_is_not_recorded);
    tcase_add_test(tcase, newest_settles_all);
    tcase_add_test(tcase, busy_device_is_asked_once);
    tcase_add_test(tcase, full_ring_refuses);
    tcase_add_test(tcase, a_lost_context_is_told);
    tcase_add_test(tcase, codes_that_are_no_faults);
    tcase_add_test(tcase, marks_out_of_order);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(fence_suite());
}
