/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as ZONE_ALLOC_CONF: the parser says one line per mistake, keeps to the bounds of its
 * table, and what it has read, written back, reads the same; a key behind the text still applies.
 * The size classes that come of roundup_power2_divisions are checked over a row of sizes.
 */
#include "target.h"

#include "options.h"

#include <string.h>

struct said {
    size_t length; /* of the text */
    int problems;
};

static void hear(void *arg, const struct zone_options_message *message)
{
    struct said *said = arg;
    said->problems += message->problem;
    fuzz_check_line(message->line);
    FUZZ_CHECK(strlen(message->line) < ZONE_OPTIONS_LINE, "%s", message->line);
    FUZZ_CHECK(message->at <= said->length, "%zu of %zu: %s", message->at, said->length,
               message->line);
}

static int parse(struct zone_options *opt, const char *text)
{
    struct said said = {.length = strlen(text)};
    zone_options_init(opt);
    int problems = zone_options_parse_messages(opt, "ZONE_ALLOC_CONF", text, hear, &said);
    FUZZ_CHECK(problems == said.problems, "%d returned, %d said: %s", problems, said.problems,
               text);
    return problems;
}

static uint64_t number_at(const struct zone_options *opt, const struct zone_option_info *info)
{
    uint64_t number;
    memcpy(&number, (const char *)opt + info->offset, sizeof(number));
    return number;
}

static void check_bounds(const struct zone_options *opt, const struct zone_option_info *info)
{
    char value[ZONE_OPTIONS_LINE];
    bool plain = info->type == ZONE_OPTION_MB || info->type == ZONE_OPTION_MB_OR_AUTO ||
                 info->type == ZONE_OPTION_MB_OR_UNLIMITED || info->type == ZONE_OPTION_MS ||
                 info->type == ZONE_OPTION_POWER_OF_2 || info->type == ZONE_OPTION_FRACTION;
    zone_options_value(opt, info, value, sizeof(value));
    FUZZ_CHECK(value[0] != '\0', "%s has no text", info->key);
    if (!plain) {
        return;
    }
    uint64_t number = number_at(opt, info);
    bool word = number == ZONE_OPTIONS_AUTO || number == ZONE_OPTIONS_UNLIMITED;
    FUZZ_CHECK(number == info->default_value || word ||
                   (number >= info->min && number <= info->max),
               "%s:%s", info->key, value);
}

/* Written back, it reads the same. What is cut to fit a line cannot. */
static void check_summary(const struct zone_options *opt)
{
    static char text[32768];
    struct zone_options again;
    zone_options_summary(opt, text, sizeof(text));
    if (strstr(text, "...")) {
        return;
    }
    FUZZ_CHECK(parse(&again, text) == 0, "%s", text);
    for (unsigned i = 0; zone_options_info(i); i++) {
        char was[ZONE_OPTIONS_LINE];
        char is[ZONE_OPTIONS_LINE];
        zone_options_value(opt, zone_options_info(i), was, sizeof(was));
        zone_options_value(&again, zone_options_info(i), is, sizeof(is));
        FUZZ_CHECK(strcmp(was, is) == 0, "%s: %s, then %s", zone_options_info(i)->key, was, is);
    }
}

static void check_classes(const struct zone_options *opt)
{
    size_t before = 0;
    for (size_t bytes = 1; bytes < (size_t)1 << 40; bytes += bytes / 5 + 1) {
        size_t class = zone_options_roundup(opt, bytes);
        FUZZ_CHECK(class >= bytes && class % 512 == 0, "%zu: %zu", bytes, class);
        FUZZ_CHECK(class - bytes < bytes || class <= 512, "%zu: %zu is twice as much", bytes,
                   class);
        FUZZ_CHECK(class >= before, "%zu: %zu, less than for fewer bytes", bytes, class);
        FUZZ_CHECK(zone_options_roundup(opt, class) == class, "%zu: %zu is no class", bytes, class);
        before = class;
    }
}

/* No mistake reaches past the next ',' that stands outside brackets. */
static void check_next(const char *text)
{
    static const char next[] = ",oom_wait_ms:77";
    struct zone_options opt;
    size_t length = strlen(text);
    char *longer = malloc(length + sizeof(next));
    if (!longer || strchr(text, '[')) {
        free(longer);
        return;
    }
    memcpy(longer, text, length);
    memcpy(longer + length, next, sizeof(next));
    parse(&opt, longer);
    FUZZ_CHECK(opt.oom_wait_ms == 77, "%s", longer);
    free(longer);
}

/* While the options are in use, whatever the text says only LIVE ones change, within bounds. */
static void check_adjust(const char *text)
{
    struct zone_options before;
    struct zone_options used;
    struct zone_options wanted;
    uint64_t keys;
    zone_options_init(&before);
    used = before;
    wanted = before;
    zone_options_adjust(&wanted, "call", text, NULL, NULL, &keys);
    zone_options_take(&used, &wanted, keys);
    for (unsigned i = 0; zone_options_info(i); i++) {
        const struct zone_option_info *info = zone_options_info(i);
        char was[ZONE_OPTIONS_LINE];
        char is[ZONE_OPTIONS_LINE];
        zone_options_value(&before, info, was, sizeof(was));
        zone_options_value(&used, info, is, sizeof(is));
        FUZZ_CHECK(info->status == ZONE_OPTION_LIVE || strcmp(was, is) == 0, "%s: %s, then %s",
                   info->key, was, is);
        check_bounds(&used, info);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zone_options opt;
    char *text = fuzz_text(data, size);
    parse(&opt, text);
    for (unsigned i = 0; zone_options_info(i); i++) {
        check_bounds(&opt, zone_options_info(i));
    }
    check_summary(&opt);
    check_classes(&opt);
    check_next(text);
    check_adjust(text);
    free(text);
    return 0;
}
