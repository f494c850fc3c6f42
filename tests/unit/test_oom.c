/* SPDX-License-Identifier: Apache-2.0
 *
 * Why an allocation failed: the verdict for each kind of facts, its words, and how often it is
 * said.
 */
#include "oom.h"
#include "report.h"
#include "unit_main.h"

#include <stdlib.h>
#include <string.h>

#define MB ZONE_MIB
#define S  UINT64_C(1000000000)

/* A device of 1000 MiB of which 100 are free; parts of the rest are the row's. */
static const struct {
    enum zone_oom_verdict verdict;
    const char *word;
    const char *try; /* a part of it */
    struct zone_oom oom;
} rows[] = {
    {ZONE_OOM_SHORTAGE,
     "shortage",
     "a smaller problem",
     {.bytes = 200 * MB, .allocated = 850 * MB}},
    {ZONE_OOM_SHORTAGE,
     "shortage",
     "a smaller problem",
     {.bytes = 900 * MB, .allocated = 800 * MB}},
    /* Nobody else holds enough, and what this process holds past the pool is little. */
    {ZONE_OOM_SHORTAGE,
     "shortage",
     "a smaller problem",
     {.bytes = 301 * MB,
      .allocated = 680 * MB,
      .cached = 100 * MB,
      .others_known = true,
      .others = 1,
      .others_bytes = 100 * MB}},
    {ZONE_OOM_NEIGHBOURS,
     "neighbours",
     "min_free_mb",
     {.bytes = 300 * MB,
      .allocated = 680 * MB,
      .cached = 100 * MB,
      .others_known = true,
      .others = 1,
      .others_bytes = 100 * MB}},
    {ZONE_OOM_ELSEWHERE, "elsewhere", "nvidia-smi", {.bytes = 300 * MB, .allocated = 600 * MB}},
    {ZONE_OOM_ELSEWHERE,
     "elsewhere",
     "give it back earlier",
     {.bytes = 300 * MB, .allocated = 600 * MB, .others_known = true}},
    /* Some of it would do, but it is what every process holds. */
    {ZONE_OOM_SHORTAGE, "shortage", "", {.bytes = 101 * MB, .allocated = 800 * MB}},
    {ZONE_OOM_FRAGMENTATION,
     "fragmentation",
     "max_cached_mb:0",
     {.bytes = 200 * MB, .allocated = 600 * MB, .cached = 100 * MB}},
    {ZONE_OOM_FRAGMENTATION,
     "fragmentation",
     "max_split_size_mb",
     {.bytes = 200 * MB, .allocated = 600 * MB, .cached = 100 * MB, .cuts_large = true}},
    /* What is exported would not be missed. */
    {ZONE_OOM_FRAGMENTATION,
     "fragmentation",
     "",
     {.bytes = 150 * MB, .allocated = 600 * MB, .cached = 100 * MB, .shared = 50 * MB}},
    {ZONE_OOM_SHARED,
     "shared",
     "max_cached_mb:0",
     {.bytes = 151 * MB, .allocated = 600 * MB, .cached = 100 * MB, .shared = 50 * MB}},
    {ZONE_OOM_PENDING,
     "pending",
     "oom_wait_ms",
     {.bytes = 200 * MB, .pending = 100 * MB, .reclaimable = 100 * MB, .shared = 0}},
    {ZONE_OOM_PENDING,
     "pending",
     "max_pending_mb",
     {.bytes = 200 * MB, .cached = 100 * MB, .reclaimable = 100 * MB}},
    {ZONE_OOM_FRAGMENTATION,
     "fragmentation",
     "",
     {.bytes = 200 * MB, .pending = 100 * MB, .reclaimable = 99 * MB}},
    /* What this process could do itself comes before what others could. */
    {ZONE_OOM_PENDING,
     "pending",
     "oom_wait_ms",
     {.bytes = 200 * MB,
      .pending = 100 * MB,
      .reclaimable = 100 * MB,
      .others_known = true,
      .others = 2,
      .others_bytes = 700 * MB}},
    {ZONE_OOM_FRAGMENTATION,
     "fragmentation",
     "",
     {.bytes = 200 * MB,
      .cached = 100 * MB,
      .others_known = true,
      .others = 2,
      .others_bytes = 700 * MB}},
    {ZONE_OOM_REFUSED, "refused", "oom_wait_ms", {.bytes = 100 * MB}},
    {ZONE_OOM_TOO_LARGE, "too large", "more memory", {.bytes = 1001 * MB}},
    {ZONE_OOM_TOO_LARGE, "too large", "more memory", {.bytes = SIZE_MAX}},
    {ZONE_OOM_LIMIT,
     "limit",
     "a higher limit",
     {.bytes = 50 * MB, .refuser = "max_reserved_mb", .limit = 30 * MB, .limit_used = 20 * MB}},
    {ZONE_OOM_LIMIT, "limit", "a higher limit", {.bytes = 2000 * MB, .refuser = "max_reserved_mb"}},
};

START_TEST(verdicts)
{
    char text[ZONE_OOM_LINE];
    struct zone_oom oom = rows[_i].oom;
    oom.total = 1000 * MB;
    oom.free = 100 * MB;
    ck_assert_int_eq(zone_oom_verdict(&oom), rows[_i].verdict);
    ck_assert_str_eq(zone_oom_word(&oom), rows[_i].word);
    ck_assert_ptr_nonnull(strstr(zone_oom_try(&oom), rows[_i].try));
    zone_oom_meaning(&oom, text, sizeof(text));
    ck_assert_int_eq(strncmp(text, "out of memory: ", 15), 0);
    ck_assert_ptr_nonnull(strstr(text, zone_oom_why(&oom)));
    ck_assert_ptr_nonnull(strstr(text, zone_oom_try(&oom))); /* nothing is cut */
}
END_TEST

START_TEST(golden)
{
    char text[ZONE_OOM_LINE];
    struct zone_oom oom = {.requested = 2 * ZONE_GIB,
                           .bytes = 2 * ZONE_GIB,
                           .total = 140 * ZONE_GIB,
                           .free = ZONE_GIB,
                           .allocated = 100 * ZONE_GIB};
    zone_oom_numbers(&oom, text, sizeof(text));
    ck_assert_str_eq(text,
                     "out of memory: tried to allocate 2.00 GiB on device 0. Of 140 GiB: free "
                     "1.00 GiB, allocated 100 GiB, pending 0 B, cached 0 B, rest 39.0 GiB "
                     "(other processes: unknown)");
    oom.device = 3;
    oom.pending = 3 * ZONE_GIB;
    oom.cached = 20 * ZONE_GIB;
    oom.largest = ZONE_GIB / 2;
    oom.others_known = true;
    oom.others = 1;
    oom.others_bytes = 12 * ZONE_GIB;
    oom.refuser = "max_reserved_mb";
    oom.limit = 124 * ZONE_GIB;
    oom.limit_used = 123 * ZONE_GIB;
    zone_oom_numbers(&oom, text, sizeof(text));
    ck_assert_str_eq(text,
                     "out of memory: tried to allocate 2.00 GiB on device 3. Of 140 GiB: free "
                     "1.00 GiB, allocated 100 GiB, pending 3.00 GiB, cached 20.0 GiB (largest "
                     "piece 512 MiB), 1 other process 12.0 GiB, rest 4.00 GiB; limit 124 GiB "
                     "(max_reserved_mb), used 123 GiB");
    zone_oom_meaning(&oom, text, sizeof(text));
    ck_assert_str_eq(text, "out of memory: limit: the limit that was set for this process is "
                           "reached; try a higher limit, or a smaller problem");
}
END_TEST

/* What was read beside other threads need not add up; and the lines hold the largest numbers. */
START_TEST(odd_numbers)
{
    char text[ZONE_OOM_LINE];
    struct zone_oom oom;
    struct zone_oom more = {.total = 10, .free = 6, .allocated = 6};
    ck_assert_uint_eq(zone_oom_rest(&more), 0);
    memset(&oom, 0xff, sizeof(oom));
    oom.refuser = "per_process_memory_fraction";
    oom.device = 31;
    oom.others_known = true;
    oom.cuts_large = true;
    zone_oom_numbers(&oom, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "used 16.0 EiB"));
}
END_TEST

/* The report's advice has room for each verdict's. */
START_TEST(advice)
{
    static struct zone_report report;
    char text[ZONE_REPORT_LINE];
    struct zone_oom oom = rows[_i].oom;
    oom.total = 1000 * MB;
    oom.free = 100 * MB;
    zone_report_init(&report);
    report.oom = &oom;
    zone_report_advice(&report, text, sizeof(text));
    ck_assert_int_eq(strncmp(text, "nothing", 7), 0);
    report.process.ooms = 1; /* also of a program that got no memory at all */
    zone_report_advice(&report, text, sizeof(text));
    ck_assert_int_eq(strncmp(text, zone_oom_try(&oom), strlen(zone_oom_try(&oom))), 0);
    ck_assert_ptr_nonnull(strstr(text, zone_oom_why(&oom)));
}
END_TEST

START_TEST(gate)
{
    struct zone_oom_gate one = {0};
    uint64_t now = 5 * S;
    uint64_t pause = S;
    ck_assert(zone_oom_due(&one, now));
    for (unsigned i = 0; i < 40; i++) {
        ck_assert(!zone_oom_due(&one, now));
        ck_assert(!zone_oom_due(&one, now + pause - 1));
        now += pause;
        ck_assert(zone_oom_due(&one, now));
        pause *= i < 30 ? 2 : 1;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oom");
    TCase *tcase = tcase_create("oom");
    tcase_add_loop_test(tcase, verdicts, 0, sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(tcase, golden);
    tcase_add_test(tcase, odd_numbers);
    tcase_add_loop_test(tcase, advice, 0, sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(tcase, gate);
    suite_add_tcase(suite, tcase);
    return unit_main(suite);
}
