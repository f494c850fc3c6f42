/* SPDX-License-Identifier: Apache-2.0
 *
 * The report: its lines, its advice, the name of its file, and counters that add up.
 */
#include "report_sample.h"
#include "text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* What a report wrote. */
struct sink {
    size_t used;
    unsigned calls;
    unsigned fail_at; /* this call fails; 0: none */
    char text[65536];
};

static struct sink sink;
static struct zone_report report;

static int write_sink(void *arg, const char *text, size_t bytes)
{
    struct sink *to = arg;
    if (++to->calls == to->fail_at) {
        return -1;
    }
    ck_assert_uint_lt(to->used + bytes, sizeof(to->text));
    memcpy(to->text + to->used, text, bytes);
    to->used += bytes;
    to->text[to->used] = '\0';
    return 0;
}

static const char *text_of(void)
{
    memset(&sink, 0, sizeof(sink));
    ck_assert_int_eq(zone_report_text(&report, write_sink, &sink), 0);
    return sink.text;
}

static void check_shape(const char *text)
{
    unsigned lines = 0;
    ck_assert_uint_eq(sink.calls, 1); /* so that reports of several processes do not mix */
    while (*text) {
        const char *end = strchr(text, '\n');
        ck_assert_ptr_nonnull(end);
        ck_assert_int_eq(strncmp(text, "zone[4711] ", 11), 0);
        ck_assert_int_lt((int)(end - text), ZONE_REPORT_LINE);
        text = end + 1;
        lines++;
    }
    ck_assert_uint_ge(lines, 2);
    ck_assert_uint_le(lines, ZONE_REPORT_LINES);
}

START_TEST(small_golden)
{
    sample_small(&report);
    ck_assert_str_eq(
        text_of(),
        "zone[4711] libzone 0.1.0: train on NVIDIA H200, memory from cuMemAlloc\n"
        "zone[4711] allocated: peak 10.0 GiB, in all 900 GiB in 100000 allocations\n"
        "zone[4711] reserved: peak 11.0 GiB, 1.10 of peak allocated; at the end 11.0 GiB = "
        "allocated 3.00 MiB + pending 1.00 MiB + cached 11.0 GiB\n"
        "zone[4711] served: 99.9 % of the allocations without the driver; 50 driver calls took "
        "2.50 ms, about 8.12 s saved\n"
        "zone[4711] waited for the GPU: 12 frees (too much pending) 3.45 ms; 1 exit (as natively)\n"
        "zone[4711] not freed: 3 allocations, 3.00 MiB\n"
        "zone[4711] try: nothing; the defaults suit this program\n");
    check_shape(sink.text);
}
END_TEST

START_TEST(full_golden)
{
    sample_full(&report);
    ck_assert_str_eq(
        text_of(),
        "zone[4711] libzone 0.1.0: tr\xc3\xa4in\xff??[31m on 8 devices, memory from cuMemAlloc\n"
        "zone[4711] fault: the GPU reported error 700 (illegal address) and lost the context\n"
        "zone[4711] allocated: peak 80.0 GiB, in all 7.03 TiB in 800000 allocations\n"
        "zone[4711] reserved: peak 88.0 GiB, 1.10 of peak allocated; at the end 88.0 GiB = "
        "allocated 24.0 MiB + pending 8.00 MiB + cached 88.0 GiB\n"
        "zone[4711] served: 99.9 % of the allocations without the driver; 400 driver calls took "
        "20.0 ms, about 65.0 s saved\n"
        "zone[4711] waited for the GPU: 96 frees (too much pending) 27.6 ms; 4 frees (as natively) "
        "999 ns; 2 allocations (memory was short) 20.0 ms; 8 exits (as natively)\n"
        "zone[4711] short of memory: 1 allocation failed; cache given back 3 times (5.00 GiB); "
        "2 other calls tried again, 1 rescued\n"
        "zone[4711] not pooled: 1 pitched, 2 managed, 3 stream-ordered, 4 pinned, 5 arrays, "
        "6 virtual memory, 7 in a capture, 9 without a context, 8 frees of others' memory, "
        "5 exported blocks, 6 double frees\n"
        "zone[4711] not freed: 24 allocations, 24.0 MiB\n"
        "zone[4711] options: max_pending_mb:512,free_order:event\n"
        "zone[4711] 10 more lines in the JSON: ZONE_REPORT=report.%p.json\n"
        "zone[4711] try: run it with ZONE_DISABLE=1 under compute-sanitizer to find the faulty "
        "kernel\n");
    check_shape(sink.text);
}
END_TEST

START_TEST(nothing_allocated)
{
    zone_report_init(&report);
    report.pid = 4711;
    report.process.bypass_no_context = 1;
    ck_assert_str_eq(
        text_of(),
        "zone[4711] libzone ?: unknown program\n"
        "zone[4711] not pooled: 1 without a context\n"
        "zone[4711] try: nothing; the program allocated no memory that the pool serves\n");
    check_shape(sink.text);
}
END_TEST

START_TEST(two_devices_have_a_line_each)
{
    sample_small(&report);
    report.device_count = 2;
    report.devices[1] = report.devices[0];
    report.devices[1].ordinal = 1;
    text_of();
    check_shape(sink.text);
    ck_assert_ptr_nonnull(strstr(sink.text, "train on 2 devices"));
    ck_assert_ptr_nonnull(
        strstr(sink.text, "zone[4711] device 1 NVIDIA H200: allocated peak 10.0 GiB, reserved "
                          "peak 11.0 GiB, 100000 allocations, 99.9 % without the driver, 3 not "
                          "freed\n"));
}
END_TEST

START_TEST(long_texts_are_cut)
{
    static char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    sample_full(&report);
    report.program = text;
    report.options = text;
    report.version = text;
    report.notes[0] = text;
    report.notes[1] = text;
    report.devices[0].name = text;
    report.devices[0].backing = text;
    report.pid = 4711;
    check_shape(text_of());
    report.devices[2].counters.fault_code = 0;
    report.devices[2].counters.trims = 0;
    report.devices[2].counters.retries = 0;
    report.devices[2].counters.ooms = 0;
    check_shape(text_of());
}
END_TEST

START_TEST(numbers_at_their_limits)
{
    zone_report_init(&report);
    report.pid = 4711;
    report.device_count = ZONE_REPORT_DEVICES;
    for (unsigned i = 0; i < ZONE_REPORT_DEVICES; i++) {
        memset(&report.devices[i].counters, 0xff, sizeof(report.devices[i].counters));
    }
    check_shape(text_of());
    memset(&sink, 0, sizeof(sink));
    ck_assert_int_eq(zone_report_json(&report, write_sink, &sink), 0);
}
END_TEST

START_TEST(write_errors)
{
    sample_full(&report);
    memset(&sink, 0, sizeof(sink));
    sink.fail_at = 1;
    ck_assert_int_eq(zone_report_text(&report, write_sink, &sink), -1);
    memset(&sink, 0, sizeof(sink));
    sink.fail_at = 2;
    ck_assert_int_eq(zone_report_json(&report, write_sink, &sink), -1);
    ck_assert_uint_eq(sink.calls, 2); /* nothing is written after the failure */
}
END_TEST

/* Each rule of the advice, in its order: what makes it fit, and how the sentence begins. */
static void advice_case(int which)
{
    struct zone_counters *c = &report.devices[0].counters;
    switch (which) {
    case 0:
        c->fault_code = 719;
        break;
    case 1:
        report.options = "backend:off";
        break;
    case 2:
        c->ooms = 1;
        break;
    case 3:
        c->allocation.allocated = 0;
        break;
    case 4:
        c->retries = 2;
        c->retries_rescued = 1;
        break;
    case 5:
        c->double_frees = 1;
        break;
    case 6:
        c->throttle_wait_ns = c->saved_ns / 10;
        break;
    case 7:
        c->sync_wait_ns = c->saved_ns / 10;
        break;
    case 8:
        c->trimmed_bytes = 3 * c->reserved_bytes.peak;
        c->misses = c->hits;
        break;
    case 9:
        c->hits = 70000;
        c->misses = 30000;
        break;
    case 10:
        c->reserved_bytes.peak = 2 * c->allocated_bytes.peak;
        break;
    default:
        break;
    }
}

START_TEST(advice)
{
    static const char *const expected[] = {
        "run it with ZONE_DISABLE=1",
        "without backend:off",
        "a smaller problem",
        "nothing; the program allocated",
        "a larger min_free_mb: 1 calls",
        "to find the second free",
        "a larger max_pending_mb: frees waited 812 ms",
        "free_order:event",
        "a larger max_cached_mb",
        "roundup_power2_divisions:8, so that similar sizes share blocks: 30.0 %",
        "max_cached_mb, if memory is short: the pool held up to 10.0 GiB",
        "nothing; the defaults",
    };
    char text[ZONE_REPORT_LINE];
    sample_small(&report);
    advice_case(_i);
    zone_report_advice(&report, text, sizeof(text));
    ck_assert_msg(strncmp(text, expected[_i], strlen(expected[_i])) == 0, "%s", text);
}
END_TEST

START_TEST(kinds)
{
    ck_assert_int_eq(zone_report_kind(NULL), ZONE_REPORT_STDERR);
    ck_assert_int_eq(zone_report_kind(""), ZONE_REPORT_STDERR);
    ck_assert_int_eq(zone_report_kind("none"), ZONE_REPORT_NONE);
    ck_assert_int_eq(zone_report_kind("none.txt"), ZONE_REPORT_TEXT);
    ck_assert_int_eq(zone_report_kind("/tmp/r.%p.json"), ZONE_REPORT_JSON);
    ck_assert_int_eq(zone_report_kind("json"), ZONE_REPORT_TEXT);
}
END_TEST

static const char *environment(void *arg, const char *variable)
{
    const char *const *pair = arg;
    for (; *pair; pair += 2) {
        if (strcmp(*pair, variable) == 0) {
            return pair[1];
        }
    }
    return NULL;
}

static char said[1024];

static void say(void *arg, const char *line)
{
    (void)arg;
    strncat(said, line, sizeof(said) - strlen(said) - 1);
}

START_TEST(paths)
{
    static const char *const variables[] = {"PMI_RANK", "3", "JOB", "a/b", "EMPTY", "", NULL};
    static const struct {
        const char *pattern;
        const char *path; /* NULL: refused */
        const char *why;
    } cases[] = {
        {"", "", ""},
        {"r.txt", "r.txt", ""},
        {"%p.%h.%r.%%.%q{JOB}", "4711.node1.3.%.a/b", ""},
        {"%q{EMPTY}x", "x", ""},
        {"a%q{HOMELESS}", NULL,
         "ZONE_REPORT: \"a%q{HOMELESS}\" at 1: the variable HOMELESS is not set"},
        {"a%", NULL, "ZONE_REPORT: \"a%\" at 1: expected %p, %h, %r, %q{VARIABLE} or %%"},
        {"%d", NULL, "ZONE_REPORT: \"%d\" at 0: expected %p, %h, %r, %q{VARIABLE} or %%"},
        {"%q", NULL, "ZONE_REPORT: \"%q\" at 0: expected %q{VARIABLE}"},
        {"%q{", NULL, "ZONE_REPORT: \"%q{\" at 0: expected %q{VARIABLE}"},
        {"%q{}", NULL, "ZONE_REPORT: \"%q{}\" at 0: expected %q{VARIABLE}"},
        {"%qJOB}", NULL, "ZONE_REPORT: \"%qJOB}\" at 0: expected %q{VARIABLE}"},
        {"0123456789012345678901234567890", "0123456789012345678901234567890", ""},
        {"01234567890123456789012345678901", NULL,
         "ZONE_REPORT: \"01234567890123456789012345678901\" at 31: the name is too long"},
        {"0123456789012345678901234567%p", NULL,
         "ZONE_REPORT: \"0123456789012345678901234567%p\" at 28: the name is too long"},
    };
    const struct zone_report_names names = {
        .pid = 4711, .host = "node1", .get = environment, .get_arg = (void *)variables};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[32];
        said[0] = '\0';
        int rc = zone_report_path(cases[i].pattern, &names, say, NULL, path, sizeof(path));
        ck_assert_int_eq(rc, cases[i].path ? 0 : -1);
        ck_assert_str_eq(path, cases[i].path ? cases[i].path : "");
        ck_assert_str_eq(said, cases[i].why);
    }
}
END_TEST

START_TEST(ranks)
{
    static const char *const launchers[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID", "MV2_COMM_WORLD_RANK"};
    char path[32];
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *variables[] = {launchers[i], "12", NULL};
        const struct zone_report_names names = {.get = environment, .get_arg = variables};
        ck_assert_int_eq(zone_report_path("%r", &names, NULL, NULL, path, sizeof(path)), 0);
        ck_assert_str_eq(path, "12");
    }
    const struct zone_report_names none = {0};
    ck_assert_int_eq(zone_report_path("%r.%h", &none, NULL, NULL, path, sizeof(path)), 0);
    ck_assert_str_eq(path, "0.unknown");
}
END_TEST

START_TEST(counters_add_up)
{
    struct zone_counters sum;
    sample_small(&report);
    const struct zone_counters *one = &report.devices[0].counters;
    ck_assert_uint_eq(one->size, sizeof(sum));
    ck_assert_ptr_null(zone_counters_check(one));
    zone_counters_init(&sum);
    zone_counters_add(&sum, one);
    zone_counters_add(&sum, one);
    ck_assert_ptr_null(zone_counters_check(&sum));
    ck_assert_uint_eq(sum.hits, 2 * one->hits);
    ck_assert_uint_eq(sum.reserved_bytes.peak, 2 * one->reserved_bytes.peak);
    sum.fault_code = 700;
    zone_counters_add(&sum, one); /* no fault there: the last one stays */
    ck_assert_uint_eq(sum.fault_code, 700);

    sum = *one;
    sum.hits++;
    ck_assert_str_eq(zone_counters_check(&sum), "hits + misses = allocation.allocated");
    sum = *one;
    sum.cached_bytes.current--;
    ck_assert_str_eq(zone_counters_check(&sum),
                     "active_bytes.current + cached_bytes.current = reserved_bytes.current");
    sum = *one;
    sum.allocation.freed--;
    ck_assert_str_eq(zone_counters_check(&sum), "allocation");
}
END_TEST

START_TEST(numbers)
{
    static const struct {
        uint64_t number;
        const char *bytes;
        const char *ns;
    } cases[] = {
        {0, "0 B", "0 ns"},
        {999, "999 B", "999 ns"},
        {1000, "0.98 KiB", "1.00 us"},
        {1536, "1.50 KiB", "1.54 us"},
        {9999, "9.76 KiB", "10.0 us"},
        {99999, "97.7 KiB", "100 us"},
        {999999, "977 KiB", "1000 us"},
        {1023 * 1024, "1.00 MiB", "1.05 ms"},
        {UINT64_C(12345678901), "11.5 GiB", "12.3 s"},
        {UINT64_MAX, "16.0 EiB", "18446744074 s"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char bytes[32] = "";
        char ns[32] = "";
        zone_text_bytes(bytes, sizeof(bytes), cases[i].number);
        zone_text_ns(ns, sizeof(ns), cases[i].number);
        ck_assert_str_eq(bytes, cases[i].bytes);
        ck_assert_str_eq(ns, cases[i].ns);
    }
    char text[64] = "";
    zone_text_percent(text, sizeof(text), 999, 1000);
    zone_text_percent(text, sizeof(text), 99999, 100000); /* not rounded up to all */
    zone_text_percent(text, sizeof(text), 5, 5);
    zone_text_percent(text, sizeof(text), 5, 0);
    ck_assert_str_eq(text, "99.9 %99.9 %100.0 %0.0 %");
    char tight[8] = "";
    zone_text_append(tight, sizeof(tight), "%d", 1234567);
    ck_assert_str_eq(tight, "1234567");
    zone_text_append(tight, sizeof(tight), "8");
    ck_assert_str_eq(tight, "1234...");
}
END_TEST

static Suite *report_suite(void)
{
    Suite *suite = suite_create("report");
    TCase *tcase = tcase_create("report");
    tcase_add_test(tcase, small_golden);
    tcase_add_test(tcase, full_golden);
    tcase_add_test(tcase, nothing_allocated);
    tcase_add_test(tcase, two_devices_have_a_line_each);
    tcase_add_test(tcase, long_texts_are_cut);
    tcase_add_test(tcase, numbers_at_their_limits);
    tcase_add_test(tcase, write_errors);
    tcase_add_loop_test(tcase, advice, 0, 12);
    tcase_add_test(tcase, kinds);
    tcase_add_test(tcase, paths);
    tcase_add_test(tcase, ranks);
    tcase_add_test(tcase, counters_add_up);
    tcase_add_test(tcase, numbers);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(report_suite());
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
