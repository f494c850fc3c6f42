/* SPDX-License-Identifier: Apache-2.0
 *
 * Bins of freed blocks: a queue for each size class, found without a lock while the table grows.
 */
#include "bins.h"
#include "unit_main.h"

static struct zone_bins bins;

static void setup(void)
{
    zone_bins_init(&bins);
}

START_TEST(small_classes_have_bins_at_once)
{
    for (size_t bytes = ZONE_BIN_STEP; bytes < ZONE_BIN_LARGE; bytes += ZONE_BIN_STEP) {
        struct zone_bin *bin = zone_bins_find(&bins, bytes);
        ck_assert_ptr_nonnull(bin);
        ck_assert_uint_eq(bin->bytes, bytes);
        ck_assert_ptr_eq(zone_bins_make(&bins, bytes), bin);
    }
}
END_TEST

START_TEST(large_classes_are_made)
{
    enum { CLASSES = 5000 }; /* makes the table grow several times */
    static struct zone_bin *made[CLASSES];
    ck_assert_ptr_null(zone_bins_find(&bins, ZONE_BIN_LARGE));
    for (unsigned i = 0; i < CLASSES; i++) {
        size_t bytes = ZONE_BIN_LARGE + i * ZONE_BIN_STEP * (1 + i % 7 * 1000);
        ck_assert_ptr_null(i % 7 == 0 ? NULL : zone_bins_find(&bins, bytes));
        made[i] = zone_bins_make(&bins, bytes);
        ck_assert_ptr_nonnull(made[i]);
        ck_assert_uint_eq(made[i]->bytes, bytes);
        ck_assert_ptr_eq(zone_bins_find(&bins, bytes), made[i]);
    }
    for (unsigned i = 0; i < CLASSES; i++) {
        ck_assert_ptr_eq(zone_bins_find(&bins, made[i]->bytes), made[i]);
        ck_assert_ptr_eq(zone_bins_make(&bins, made[i]->bytes), made[i]);
    }
    ck_assert_ptr_null(zone_bins_find(&bins, (size_t)1 << 60));
}
END_TEST

/* Every bin that was made is in the list once. */
START_TEST(list_of_bins)
{
    unsigned count = 0;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 1; i <= 50; i++) {
            zone_bins_make(&bins, i * ZONE_BIN_STEP);
            zone_bins_make(&bins, i * ZONE_MIB);
        }
    }
    zone_bins_find(&bins, 100 * ZONE_BIN_STEP); /* found is not made */
    for (const struct zone_bin *bin = bins.newest; bin; bin = bin->older) {
        count++;
    }
    ck_assert_uint_eq(count, 100);
}
END_TEST

START_TEST(queue)
{
    enum { BLOCKS = 10 };
    static struct zone_block blocks[BLOCKS];
    struct zone_bin *bin = zone_bins_make(&bins, ZONE_MIB);
    uint64_t stamp = 99;
    ck_assert_ptr_null(zone_bin_take(bin, UINT64_MAX, &stamp));
    ck_assert_uint_eq(stamp, 0); /* empty */
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i].stamp = i + 1;
        zone_bin_push(bin, &blocks[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        ck_assert_ptr_null(zone_bin_take(bin, i, &stamp));
        ck_assert_uint_eq(stamp, i + 1); /* what to ask for */
        ck_assert_ptr_eq(i % 2 ? zone_bin_take(bin, i + 1, &stamp)
                               : zone_bin_serve(bin, UINT64_MAX, 7, &stamp),
                         &blocks[i]);
        zone_bin_push(bin, &blocks[i]);
        blocks[i].stamp = i + 1 + BLOCKS;
    }
    ck_assert_uint_eq(bin->hits, BLOCKS / 2);
    ck_assert_uint_eq(bin->requested, 7 * BLOCKS / 2);
    zone_bin_missed(bin, 5, 1000);
    ck_assert_uint_eq(bin->misses, 1);
    ck_assert_uint_eq(bin->miss_ns, 1000);
    ck_assert_uint_eq(bin->requested, 7 * BLOCKS / 2 + 5);
    for (unsigned i = 0; i < BLOCKS; i++) {
        ck_assert_ptr_eq(zone_bin_take(bin, UINT64_MAX, &stamp), &blocks[i]);
    }
    ck_assert_ptr_null(zone_bin_serve(bin, UINT64_MAX, 7, &stamp));
    ck_assert_uint_eq(bin->hits, BLOCKS / 2);
}
END_TEST

static Suite *bins_suite(void)
{
    Suite *suite = suite_create("bins");
    TCase *tcase = tcase_create("bins");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, small_classes_have_bins_at_once);
    tcase_add_test(tcase, large_classes_are_made);
    tcase_add_test(tcase, list_of_bins);
    tcase_add_test(tcase, queue);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(bins_suite());
}
