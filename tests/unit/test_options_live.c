/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that change while the program runs: which may, what is said of the others, and that
 * those that are in use are written one by one.
 */
#include "options.h"
#include "unit_main.h"

#include <stdio.h>
#include <string.h>

static struct {
    unsigned count;
    char line[ZONE_OPTIONS_LINE]; /* the last one */
} said;

static struct zone_options used;
static uint64_t keys;

static void keep(void *arg, const char *line)
{
    (void)arg;
    said.count++;
    strncpy(said.line, line, sizeof(said.line) - 1);
}

/* As shim/life.c does it. Returns the number of problems. */
static int adjust(const char *text)
{
    struct zone_options wanted = used;
    said.count = 0;
    int problems = zone_options_adjust(&wanted, "call", text, keep, NULL, &keys);
    zone_options_take(&used, &wanted, keys);
    return problems;
}

START_TEST(live_keys_change)
{
    char text[ZONE_OPTIONS_LINE];
    ck_assert_int_eq(adjust("max_cached_mb:9,min_free_mb:11"), 0);
    ck_assert_int_eq(adjust("max_pending_mb:7, oom_wait_ms:5"), 0);
    ck_assert_uint_eq(said.count, 0);
    zone_options_summary(&used, text, sizeof(text));
    ck_assert_str_eq(text, "max_pending_mb:7,max_cached_mb:9,min_free_mb:11,oom_wait_ms:5");
    ck_assert_int_eq(adjust("max_pending_mb:auto"), 0);
    ck_assert_uint_eq(used.max_pending_mb, ZONE_OPTIONS_AUTO);
    ck_assert_uint_eq(used.oom_wait_ms, 5);
}
END_TEST

START_TEST(nothing_to_change)
{
    ck_assert_int_eq(adjust(NULL), 0);
    ck_assert_int_eq(adjust(""), 0);
    ck_assert_uint_eq(keys, 0);
    ck_assert_uint_eq(said.count, 0);
    ck_assert_uint_eq(used.given, 0);
}
END_TEST

/* Each other key that has an effect is refused in one line, and the rest applies. */
START_TEST(other_keys_are_refused)
{
    static const char *const texts[] = {
        "backend:off",
        "roundup_power2_divisions:4",
        "free_order:sync",
        "abort_conf:True",
        "large_segment_size_mb:40",
        "max_split_size_mb:200",
        "confirm_conf:True",
        "max_non_split_rounding_mb:30",
        "free_order:[unclosed",
        "nonsense",
        "oom_wait_ms:soon",
    };
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char text[ZONE_OPTIONS_LINE];
        char now[ZONE_OPTIONS_LINE];
        struct zone_options before = used;
        snprintf(text, sizeof(text), "min_free_mb:%u,%s", i + 1, texts[i]);
        ck_assert_msg(adjust(text) == 1, "%s", texts[i]);
        ck_assert_uint_eq(said.count, 1);
        ck_assert_msg(strncmp(said.line, "call", 4) == 0, "%s", said.line);
        ck_assert_uint_eq(used.min_free_mb, i + 1);
        used.min_free_mb = before.min_free_mb;
        used.given = before.given;
        zone_options_summary(&used, now, sizeof(now));
        ck_assert_str_eq(now, "");
    }
    adjust("oom_wait_ms:3,free_order:sync");
    ck_assert_str_eq(said.line, "call: free_order at 14: cannot be changed while the program runs; "
                                "using the default (auto)");
    ck_assert_uint_eq(used.oom_wait_ms, 3);
}
END_TEST

/* Asking for what is so anyway is no change. */
START_TEST(the_same_again)
{
    zone_options_parse(&used, "ZONE_ALLOC_CONF", "free_order:sync,large_segment_size_mb:40", NULL,
                       NULL);
    ck_assert_int_eq(adjust("free_order:sync,large_segment_size_mb:40,backend:native"), 0);
    ck_assert_int_eq(adjust("large_segment_size_mb:20"), 1);
    ck_assert_ptr_nonnull(strstr(said.line, "keeping 40"));
    ck_assert_uint_eq(used.large_segment_size_mb, 40);
}
END_TEST

static void setup(void)
{
    zone_options_init(&used);
}

static Suite *options_live_suite(void)
{
    Suite *suite = suite_create("options_live");
    TCase *tcase = tcase_create("options_live");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, live_keys_change);
    tcase_add_test(tcase, nothing_to_change);
    tcase_add_test(tcase, other_keys_are_refused);
    tcase_add_test(tcase, the_same_again);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(options_live_suite());
}
