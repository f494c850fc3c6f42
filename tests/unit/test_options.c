/* SPDX-License-Identifier: Apache-2.0
 *
 * ZONE_ALLOC_CONF: PyTorch's meanings, libzone's own keys, and one clear line for every mistake.
 */
#include "options.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define LINES 64

/* What a parse said. */
struct said {
    unsigned count;
    unsigned problems;
    char lines[LINES][ZONE_OPTIONS_LINE];
};

/* ck_assert() reports to the parent each time that it holds; in long loops only a failure should.
 */
#define CHECK_FAST(condition, ...)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

static void hear(void *arg, const struct zone_options_message *message)
{
    struct said *said = arg;
    said->problems += message->problem;
    if (said->count < LINES) {
        strcpy(said->lines[said->count], message->line);
    }
    said->count++;
}

static int parse(struct zone_options *opt, struct said *said, const char *text)
{
    memset(said, 0, sizeof(*said));
    zone_options_init(opt);
    int problems = zone_options_parse_messages(opt, "ZONE_ALLOC_CONF", text, hear, said);
    CHECK_FAST(problems == (int)said->problems, "%s", text);
    return problems;
}

/* PyTorch's values. Fields left out have PyTorch's defaults. */
struct pytorch_case {
    const char *text;
    bool rejected;
    int problems;
    uint32_t backend;
    uint64_t max_split_mb; /* 0: unlimited */
    uint64_t gc;
    bool expandable;
    uint64_t slots[ZONE_OPTIONS_SLOTS];
};

static const struct pytorch_case pytorch_cases[] = {
#define ACCEPTED(string, ...) {.text = (string), ##__VA_ARGS__},
#define REJECTED(string, count, ...)                                                               \
    {.text = (string), .rejected = true, .problems = (count), ##__VA_ARGS__},
#include "data/pytorch_conf.def"
};

#define PYTORCH_CASES (sizeof(pytorch_cases) / sizeof(pytorch_cases[0]))

START_TEST(pytorch_value)
{
    const struct pytorch_case *expect = &pytorch_cases[_i];
    struct zone_options opt;
    struct said said;
    ck_assert_msg(parse(&opt, &said, expect->text) == expect->problems, "%s: %u problems: %s",
                  expect->text, said.problems, said.lines[0]);
    if (expect->rejected) {
        ck_assert_uint_gt(said.count, 0);
    }
    ck_assert_uint_eq(opt.backend, expect->backend);
    ck_assert_uint_eq(opt.max_split_size_mb,
                      expect->max_split_mb ? expect->max_split_mb : ZONE_OPTIONS_UNLIMITED);
    ck_assert_uint_eq(opt.garbage_collection_threshold, expect->gc);
    ck_assert_int_eq(opt.expandable_segments, expect->expandable);
    ck_assert_mem_eq(opt.roundup_power2_divisions.divisions, expect->slots, sizeof(expect->slots));
}
END_TEST

START_TEST(there_are_81)
{
    ck_assert_uint_eq(PYTORCH_CASES, 81);
}
END_TEST

START_TEST(other_pytorch_keys)
{
    struct zone_options opt;
    struct said said;
    parse(&opt, &said,
          "max_non_split_rounding_mb:512,large_segment_size_mb:12,per_process_memory_fraction:.7,"
          "pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
          "pinned_reserve_segment_size_mb:512,graph_capture_record_stream_reuse:True,"
          "throw_on_cudamalloc_oom:True,pinned_use_background_threads:True,"
          "release_lock_on_hipmalloc:True,pinned_free_catch_all:True,"
          "expandable_segments_reserve:40G,expandable_segments_reserve_by_class:[a:0.25,b:40G]");
    ck_assert_uint_eq(said.problems, 0);
    ck_assert_uint_eq(said.count, 10); /* each but three has no effect here, and says so */
    ck_assert_uint_eq(opt.max_non_split_rounding_mb, 512);
    ck_assert_uint_eq(opt.large_segment_size_mb, 12);
    ck_assert_uint_eq(opt.per_process_memory_fraction, 700000000);
    ck_assert(opt.pinned_use_cuda_host_register);
    ck_assert_uint_eq(opt.pinned_num_register_threads, 8);
    ck_assert_uint_eq(opt.pinned_reserve_segment_size_mb, 512);
    ck_assert(opt.graph_capture_record_stream_reuse);
    ck_assert(opt.throw_on_cudamalloc_oom);
    ck_assert(opt.pinned_use_background_threads);
    ck_assert(opt.release_lock_on_cudamalloc);
    ck_assert(opt.pinned_free_catch_all);
}
END_TEST

START_TEST(large_segment_bounds_others_from_anywhere)
{
    struct zone_options opt;
    struct said said;
    ck_assert_int_eq(parse(&opt, &said, "max_split_size_mb:16,large_segment_size_mb:12"), 0);
    ck_assert_uint_eq(opt.max_split_size_mb, 16);
    ck_assert_uint_eq(opt.max_non_split_rounding_mb, 12);
    ck_assert_int_eq(parse(&opt, &said, "max_split_size_mb:32,large_segment_size_mb:64"), 1);
    ck_assert_ptr_nonnull(strstr(said.lines[0], "now 64"));
}
END_TEST

START_TEST(own_keys)
{
    struct zone_options opt;
    struct said said;
    ck_assert_int_eq(parse(&opt, &said,
                           "backend:off,max_pending_mb:512,max_cached_mb:0,min_free_mb:100,"
                           "free_order:sync,oom_wait_ms:5,abort_conf:True,confirm_conf:True"),
                     0);
    ck_assert_uint_eq(said.count, 0); /* all served: nothing to say */
    ck_assert_uint_eq(opt.backend, ZONE_BACKEND_OFF);
    ck_assert_uint_eq(opt.max_pending_mb, 512);
    ck_assert_uint_eq(opt.max_cached_mb, 0);
    ck_assert_uint_eq(opt.min_free_mb, 100);
    ck_assert_uint_eq(opt.free_order, ZONE_FREE_ORDER_SYNC);
    ck_assert_uint_eq(opt.oom_wait_ms, 5);
    ck_assert(opt.abort_conf);
    ck_assert(opt.confirm_conf);

    ck_assert_int_eq(parse(&opt, &said, "max_reserved_mb:[1:20000,0:40000]"), 0);
    ck_assert_uint_eq(opt.max_reserved_mb.mb[0], 40000);
    ck_assert_uint_eq(opt.max_reserved_mb.mb[1], 20000);
    ck_assert_uint_eq(opt.max_reserved_mb.mb[2], ZONE_OPTIONS_UNLIMITED);
}
END_TEST

START_TEST(defaults)
{
    struct zone_options opt;
    struct said said;
    parse(&opt, &said, NULL);
    ck_assert_uint_eq(said.count, 0);
    ck_assert_uint_eq(opt.backend, ZONE_BACKEND_NATIVE);
    ck_assert_uint_eq(opt.free_order, ZONE_FREE_ORDER_AUTO);
    ck_assert_uint_eq(opt.max_pending_mb, ZONE_OPTIONS_AUTO);
    ck_assert_uint_eq(opt.max_cached_mb, ZONE_OPTIONS_UNLIMITED);
    ck_assert_uint_eq(opt.min_free_mb, 256);
    ck_assert_uint_eq(opt.oom_wait_ms, 10000);
    ck_assert(!opt.abort_conf && !opt.confirm_conf && !opt.rounds);
    ck_assert_uint_eq(zone_options_bytes(ZONE_OPTIONS_UNLIMITED), SIZE_MAX);
    ck_assert_uint_eq(zone_options_bytes(3), 3 << 20);
}
END_TEST

static const struct {
    const char *text;
    const char *line;
} line_cases[] = {
#define LINE(string, expect) {(string), (expect)},
#include "data/conf_lines.def"
};

START_TEST(first_line)
{
    struct zone_options opt;
    struct said said;
    char expect[2 * ZONE_OPTIONS_LINE] = "ZONE_ALLOC_CONF";
    parse(&opt, &said, line_cases[_i].text);
    ck_assert_uint_ge(said.count, 1);
    strcat(expect, line_cases[_i].line);
    ck_assert_str_eq(said.lines[0], expect);
}
END_TEST

START_TEST(other_settings_apply)
{
    static const char *const texts[] = {
        "max_pending_mb:64,%,min_free_mb:7",
        "max_pending_mb:64,%:1,min_free_mb:7",
        "max_pending_mb:64,oom_wait_ms:x,min_free_mb:7",
        ",max_pending_mb:64,,min_free_mb:7,",
        "max_pending_mb:64,roundup_power2_divisions:[3:4,5:6],min_free_mb:7",
        "max_pending_mb:64,roundup_power2_divisions:[1:[2:3],4],min_free_mb:7",
        "max_pending_mb:64,roundup_power2_divisions:[64:8,min_free_mb:7",
        "max_pending_mb:64,oom_wait_ms,min_free_mb:7",
        "max_pending_mb:64,]:[,min_free_mb:7,]",
        "max_pending_mb:64,oom_wait_ms:,min_free_mb:7",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct zone_options opt;
        struct said said;
        ck_assert_msg(parse(&opt, &said, texts[i]) >= 1, "%s", texts[i]);
        ck_assert_msg(opt.max_pending_mb == 64 && opt.oom_wait_ms == 10000, "%s", texts[i]);
        ck_assert_msg(!opt.rounds, "%s", texts[i]);
        bool after = strstr(texts[i], "]:[") == NULL; /* there the bracket stays open */
        ck_assert_msg(opt.min_free_mb == (after ? 7 : 256), "%s", texts[i]);
    }
}
END_TEST

START_TEST(notes)
{
    struct zone_options opt;
    struct said said;
    parse(&opt, &said, "pinned_free_catch_all:True,pinned_free_catch_all:True");
    ck_assert_uint_eq(said.count, 1); /* once a key */
    parse(&opt, &said, "expandable_segments:False,max_non_split_rounding_mb:20");
    ck_assert_uint_eq(said.count, 0); /* what was asked for is what happens */
}
END_TEST

/* The size class by PyTorch's rule, worked out step by step. */
static size_t naive_roundup(const struct zone_options *opt, size_t bytes)
{
    unsigned slot = 0;
    while (slot < ZONE_OPTIONS_SLOTS - 1 && bytes >= (size_t)2 << (20 + slot)) {
        slot++;
    }
    uint64_t divisions = opt->roundup_power2_divisions.divisions[slot];
    size_t step = 512;
    if (divisions > 1 && bytes > 512 * divisions) {
        size_t floor = 1;
        while (floor <= bytes / 2) {
            floor *= 2;
        }
        step = floor / divisions;
    }
    return (bytes + step - 1) / step * step;
}

START_TEST(roundup)
{
    struct zone_options opt;
    struct said said;
    unsigned seed = 7;
    static const char *const texts[] = {
        "",
        "roundup_power2_divisions:[]",
        "roundup_power2_divisions:1",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:[1:64,2:0,4:16]",
        "roundup_power2_divisions:1048576",
    };
    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        ck_assert_int_eq(parse(&opt, &said, texts[t]), 0);
        for (int i = 0; i < 20000; i++) {
            size_t bytes =
                ((size_t)rand_r(&seed) << 31 | (size_t)rand_r(&seed)) >> (rand_r(&seed) % 62);
            bytes &= ((size_t)1 << 42) - 1;
            bytes += bytes == 0;
            CHECK_FAST(zone_options_roundup(&opt, bytes) == naive_roundup(&opt, bytes), "%zu",
                       bytes);
        }
        for (unsigned power = 0; power < 42; power++) {
            size_t bytes = (size_t)1 << power;
            CHECK_FAST(zone_options_roundup(&opt, bytes) == naive_roundup(&opt, bytes), "%zu",
                       bytes);
            CHECK_FAST(zone_options_roundup(&opt, bytes + 1) == naive_roundup(&opt, bytes + 1),
                       "%zu", bytes + 1);
        }
        ck_assert_uint_eq(zone_options_roundup(&opt, 0), 0);
        ck_assert_uint_eq(zone_options_roundup(&opt, SIZE_MAX), 0);
        ck_assert_uint_eq(zone_options_roundup(&opt, SIZE_MAX - 510), 0);
    }
    ck_assert_int_eq(parse(&opt, &said, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"), 0);
    ck_assert_uint_eq(zone_options_roundup(&opt, 600 * ZONE_MIB), 768 * ZONE_MIB);
    ck_assert_uint_eq(zone_options_roundup(&opt, 300 * ZONE_MIB + 1), 300 * ZONE_MIB + 512);
    ck_assert_uint_eq(zone_options_roundup(&opt, SIZE_MAX - 512), 0);
}
END_TEST

/* What is written can be read again, and means the same. */
START_TEST(summary_round_trip)
{
    unsigned seed = 11;
    char summary[ZONE_OPTIONS_LINE];
    for (int i = 0; i < 3000; i++) {
        struct zone_options opt;
        struct zone_options again;
        struct said said;
        zone_options_init(&opt);
        for (unsigned slot = 0; slot < ZONE_OPTIONS_SLOTS; slot++) {
            bool same = slot > 0 && rand_r(&seed) % 2;
            uint64_t *slots = opt.roundup_power2_divisions.divisions;
            slots[slot] =
                same ? slots[slot - 1] : (UINT64_C(1) << (rand_r(&seed) % 6)) & ~UINT64_C(1);
        }
        opt.garbage_collection_threshold = 1 + (uint64_t)rand_r(&seed) % 999999999;
        opt.max_reserved_mb.mb[rand_r(&seed) % ZONE_OPTIONS_DEVICES] =
            (uint64_t)rand_r(&seed) % 99999;
        opt.max_pending_mb = (uint64_t)rand_r(&seed) % 5000;
        opt.free_order = (uint32_t)rand_r(&seed) % 4;
        opt.zero_fill = rand_r(&seed) % 2;
        opt.given = UINT64_MAX;
        zone_options_summary(&opt, summary, sizeof(summary));
        ck_assert_msg(parse(&again, &said, summary) == 0, "%s: %s", summary, said.lines[0]);
        ck_assert_mem_eq(&again.roundup_power2_divisions, &opt.roundup_power2_divisions,
                         sizeof(opt.roundup_power2_divisions));
        ck_assert_mem_eq(&again.max_reserved_mb, &opt.max_reserved_mb, sizeof(opt.max_reserved_mb));
        ck_assert_uint_eq(again.garbage_collection_threshold, opt.garbage_collection_threshold);
        ck_assert_uint_eq(again.max_pending_mb, opt.max_pending_mb);
        ck_assert_uint_eq(again.free_order, opt.free_order);
        ck_assert_int_eq(again.zero_fill, opt.zero_fill);
    }
}
END_TEST

/* Giving a key can mean something even where the value is the default: it turns cutting on. */
START_TEST(summary_has_what_was_given)
{
    struct zone_options opt;
    struct said said;
    char summary[ZONE_OPTIONS_LINE];
    ck_assert_int_eq(parse(&opt, &said, "zero_fill:False,large_segment_size_mb:20"), 0);
    zone_options_summary(&opt, summary, sizeof(summary));
    ck_assert_str_eq(summary, "large_segment_size_mb:20");
}
END_TEST

static void collect(void *arg, const char *line)
{
    char *all = arg;
    strcat(strcat(all, line), "\n");
}

START_TEST(echo)
{
    struct zone_options opt;
    struct said said;
    char all[8192] = "";
    parse(&opt, &said, "max_pending_mb:512,max_split_size_mb:64");
    zone_options_echo(&opt, collect, all);
    ck_assert_str_eq(all, "backend:native (default)\n"
                          "roundup_power2_divisions:[] (default)\n"
                          "max_pending_mb:512 (set)\n"
                          "max_cached_mb:unlimited (default)\n"
                          "min_free_mb:256 (default)\n"
                          "free_order:auto (default)\n"
                          "oom_wait_ms:10000 (default)\n"
                          "abort_conf:False (default)\n"
                          "confirm_conf:False (default)\n"
                          "per_process_memory_fraction:1 (default)\n"
                          "max_reserved_mb:unlimited (default)\n"
                          "garbage_collection_threshold:0 (default)\n"
                          "initial_pool_size_mb:0 (default)\n"
                          "large_segment_size_mb:20 (default)\n"
                          "max_split_size_mb:64 (set)\n"
                          "max_non_split_rounding_mb:20 (default)\n"
                          "zero_fill:False (default)\n"
                          "junk_fill:False (default)\n");
}
END_TEST

START_TEST(say_may_be_null)
{
    struct zone_options opt;
    zone_options_init(&opt);
    ck_assert_int_eq(zone_options_parse(&opt, "X", "a,b,c", NULL, NULL), 3);
}
END_TEST

/* Pieces of texts at random: no crash, no lost message, no line that a terminal would choke on. */
START_TEST(random_texts)
{
    static const char *const pieces[] = {
        ",",
        ":",
        "[",
        "]",
        ">",
        "=",
        ";",
        " ",
        "\t",
        "\x1b",
        "\xff",
        "'",
        "0",
        "1",
        "64",
        "-1",
        ".5",
        "1e9",
        "auto",
        "unlimited",
        "True",
        "False",
        "off",
        "99999999999999999999999",
        "\xc3\xa4",
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    };
    const unsigned count = sizeof(pieces) / sizeof(pieces[0]);
    unsigned seed = 3;
    for (int i = 0; i < 5000; i++) {
        char text[2048] = "";
        for (unsigned n = (unsigned)rand_r(&seed) % 16; n > 0; n--) {
            unsigned pick = (unsigned)rand_r(&seed) % (count + ZONE_OPTION_COUNT);
            strcat(text, pick < count ? pieces[pick] : zone_options_info(pick - count)->key);
        }
        struct zone_options opt;
        struct said said;
        parse(&opt, &said, text);
        for (unsigned k = 0; k < said.count && k < LINES; k++) {
            CHECK_FAST(strlen(said.lines[k]) < ZONE_OPTIONS_LINE, "%s", text);
            CHECK_FAST(!strpbrk(said.lines[k], "\n\t\x1b"), "%s", text);
        }
        CHECK_FAST(opt.backend <= ZONE_BACKEND_CUDA_MALLOC_ASYNC, "%s", text);
        CHECK_FAST(opt.free_order <= ZONE_FREE_ORDER_UNSAFE, "%s", text);
    }
}
END_TEST

START_TEST(table)
{
    const struct zone_option_info *info;
    struct zone_options opt;
    zone_options_init(&opt);
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        char text[ZONE_OPTIONS_LINE];
        ck_assert_int_eq(info->status != ZONE_OPTION_NO_EFFECT, info->reason[0] == '\0');
        /* zone_options_take takes no other types. */
        ck_assert(info->status != ZONE_OPTION_LIVE || info->type == ZONE_OPTION_MB ||
                  info->type == ZONE_OPTION_MB_OR_AUTO ||
                  info->type == ZONE_OPTION_MB_OR_UNLIMITED || info->type == ZONE_OPTION_MS);
        ck_assert_uint_gt(strlen(info->doc), 20);
        zone_options_expected(info, text, sizeof(text));
        ck_assert_uint_gt(strlen(text), 0);
        zone_options_value(&opt, info, text, sizeof(text));
        ck_assert_uint_gt(strlen(text), 0);
        ck_assert_uint_le(info->min, info->max);
    }
}
END_TEST

static Suite *options_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, pytorch_value, 0, (int)PYTORCH_CASES);
    tcase_add_test(tcase, there_are_81);
    tcase_add_test(tcase, other_pytorch_keys);
    tcase_add_test(tcase, large_segment_bounds_others_from_anywhere);
    tcase_add_test(tcase, own_keys);
    tcase_add_test(tcase, defaults);
    tcase_add_loop_test(tcase, first_line, 0, sizeof(line_cases) / sizeof(line_cases[0]));
    tcase_add_test(tcase, other_settings_apply);
    tcase_add_test(tcase, notes);
    tcase_add_test(tcase, roundup);
    tcase_add_test(tcase, summary_round_trip);
    tcase_add_test(tcase, summary_has_what_was_given);
    tcase_add_test(tcase, echo);
    tcase_add_test(tcase, say_may_be_null);
    tcase_add_test(tcase, random_texts);
    tcase_add_test(tcase, table);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(options_suite());
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
