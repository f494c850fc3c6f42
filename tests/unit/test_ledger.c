/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: numbers that change together, with the highest values that really occurred.
 */
#include "ledger.h"
#include "unit_main.h"

static struct zone_ledger ledger;

static size_t peak(const struct zone_level *level)
{
    return atomic_load(&level->peak);
}

START_TEST(levels_and_peaks)
{
    zone_ledger_grow(&ledger, 1024);
    zone_ledger_hand_out(&ledger, 1024, 1000);
    zone_ledger_grow(&ledger, 512);
    zone_ledger_hand_out(&ledger, 512, 1);
    ck_assert_uint_eq(zone_ledger_cached(&ledger), 0);
    zone_ledger_take_back(&ledger, 1024, 1000);
    ck_assert_uint_eq(zone_ledger_allocated(&ledger), 512);
    ck_assert_uint_eq(zone_level_now(&ledger.requested), 1);
    ck_assert_uint_eq(zone_ledger_live(&ledger), 1);
    ck_assert_uint_eq(zone_level_now(&ledger.reserved), 1536);
    ck_assert_uint_eq(zone_level_now(&ledger.segments), 2);
    ck_assert_uint_eq(zone_ledger_cached(&ledger), 1024);
    zone_ledger_hand_out(&ledger, 1024, 700);
    ck_assert_uint_eq(ledger.allocated_peak, 1536);
    ck_assert_uint_eq(peak(&ledger.requested), 1001);
    ck_assert_uint_eq(ledger.live_peak, 2);
    zone_ledger_take_back(&ledger, 1024, 700);
    zone_ledger_shrink(&ledger, 1024);
    ck_assert_uint_eq(zone_level_now(&ledger.reserved), 512);
    ck_assert_uint_eq(peak(&ledger.reserved), 1536);
    ck_assert_uint_eq(peak(&ledger.segments), 2);
    ck_assert_uint_eq(zone_ledger_cached(&ledger), 0);
}
END_TEST

/* A peak is one moment's value, not the sum of the parts' peaks. */
START_TEST(peaks_of_one_moment)
{
    for (unsigned i = 0; i < 100; i++) {
        zone_ledger_hand_out(&ledger, 512, 512 - i);
        zone_ledger_take_back(&ledger, 512, 512 - i);
    }
    ck_assert_uint_eq(ledger.allocated_peak, 512);
    ck_assert_uint_eq(peak(&ledger.requested), 512);
    ck_assert_uint_eq(ledger.live_peak, 1);
}
END_TEST

/* Bytes and number share a word: neither may run into the other. */
START_TEST(many_and_huge)
{
    static const size_t huge = (size_t)8 << 40;
    enum { MANY = 1000000 };
    zone_ledger_hand_out(&ledger, huge, huge);
    zone_ledger_hand_out(&ledger, huge, huge);
    for (unsigned i = 0; i < MANY; i++) {
        zone_ledger_hand_out(&ledger, 512, 1);
    }
    ck_assert_uint_eq(zone_ledger_live(&ledger), MANY + 2);
    ck_assert_uint_eq(zone_ledger_allocated(&ledger), 2 * huge + (size_t)MANY * 512);
    zone_ledger_take_back(&ledger, huge, huge);
    for (unsigned i = 0; i < MANY; i++) {
        zone_ledger_take_back(&ledger, 512, 1);
    }
    ck_assert_uint_eq(zone_ledger_live(&ledger), 1);
    ck_assert_uint_eq(zone_ledger_allocated(&ledger), huge);
    ck_assert_uint_eq(zone_level_now(&ledger.requested), huge);
}
END_TEST

/* A reader may see one number ahead of another: never a huge difference. */
START_TEST(cached_is_never_negative)
{
    zone_ledger_hand_out(&ledger, 512, 512);
    ck_assert_uint_eq(zone_ledger_cached(&ledger), 0);
}
END_TEST

START_TEST(clear_keeps_the_peaks)
{
    zone_ledger_grow(&ledger, 512);
    zone_ledger_hand_out(&ledger, 512, 500);
    zone_ledger_clear(&ledger);
    ck_assert_uint_eq(zone_ledger_allocated(&ledger), 0);
    ck_assert_uint_eq(zone_level_now(&ledger.requested), 0);
    ck_assert_uint_eq(zone_ledger_live(&ledger), 0);
    ck_assert_uint_eq(zone_level_now(&ledger.reserved), 0);
    ck_assert_uint_eq(zone_level_now(&ledger.segments), 0);
    ck_assert_uint_eq(peak(&ledger.reserved), 512);
    ck_assert_uint_eq(ledger.allocated_peak, 512);
    ck_assert_uint_eq(peak(&ledger.requested), 500);
}
END_TEST

START_TEST(reset_peaks_keep_the_values)
{
    zone_ledger_grow(&ledger, 4096);
    zone_ledger_hand_out(&ledger, 1024, 1000);
    zone_ledger_hand_out(&ledger, 512, 500);
    zone_ledger_take_back(&ledger, 1024, 1000);
    zone_ledger_grow(&ledger, 512);
    zone_ledger_shrink(&ledger, 4096);
    zone_ledger_reset_peaks(&ledger);
    ck_assert_uint_eq(zone_ledger_allocated(&ledger), 512);
    ck_assert_uint_eq(ledger.allocated_peak, 512);
    ck_assert_uint_eq(ledger.live_peak, 1);
    ck_assert_uint_eq(peak(&ledger.requested), 500);
    ck_assert_uint_eq(peak(&ledger.reserved), 512);
    ck_assert_uint_eq(peak(&ledger.segments), 1);
    ck_assert_uint_eq(zone_ledger_allocated_ever(&ledger), 1536);
    zone_ledger_hand_out(&ledger, 512, 1);
    ck_assert_uint_eq(ledger.allocated_peak, 1024);
    zone_ledger_reset_peaks(&ledger);
    ck_assert_uint_eq(zone_ledger_allocated_ever(&ledger), 1536);
}
END_TEST

static void setup(void)
{
    ledger = (struct zone_ledger){0};
}

static Suite *ledger_suite(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, levels_and_peaks);
    tcase_add_test(tcase, peaks_of_one_moment);
    tcase_add_test(tcase, many_and_huge);
    tcase_add_test(tcase, cached_is_never_negative);
    tcase_add_test(tcase, clear_keeps_the_peaks);
    tcase_add_test(tcase, reset_peaks_keep_the_values);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(ledger_suite());
}
