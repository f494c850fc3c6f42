/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes settings back as text: single values, the echo for confirm_conf, the summary for the
 * report, and what a key expects. Every value is written so that reading it again gives the same.
 * Fixed buffers, no state, no locking, no driver.
 */
#include "options_parse.h"

const char *zone_options_word(enum zone_option_type type, unsigned index)
{
    static const char *const booleans[] = {"False", "True", NULL};
    static const char *const backends[] = {[ZONE_BACKEND_NATIVE] = "native",
                                           [ZONE_BACKEND_OFF] = "off",
                                           [ZONE_BACKEND_CUDA_MALLOC_ASYNC] = "cudaMallocAsync",
                                           NULL};
    static const char *const orders[] = {[ZONE_FREE_ORDER_AUTO] = "auto",
                                         [ZONE_FREE_ORDER_EVENT] = "event",
                                         [ZONE_FREE_ORDER_SYNC] = "sync",
                                         [ZONE_FREE_ORDER_UNSAFE] = "unsafe",
                                         NULL};
    const char *const *words = NULL;
    if (type == ZONE_OPTION_BOOL) {
        words = booleans;
    } else if (type == ZONE_OPTION_BACKEND) {
        words = backends;
    } else if (type == ZONE_OPTION_FREE_ORDER) {
        words = orders;
    } else {
        return NULL;
    }
    for (unsigned i = 0; i < index; i++) {
        if (words[i] == NULL) {
            return NULL;
        }
    }
    return words[index];
}

static void append_number(char *text, size_t size, uint64_t number)
{
    if (number == ZONE_OPTIONS_UNLIMITED) {
        zone_text_append(text, size, "unlimited");
    } else if (number == ZONE_OPTIONS_AUTO) {
        zone_text_append(text, size, "auto");
    } else {
        zone_text_append(text, size, "%llu", (unsigned long long)number);
    }
}

static void append_fraction(char *text, size_t size, uint64_t parts)
{
    unsigned digits = 9;
    uint64_t rest = parts % ZONE_OPTIONS_ONE;
    zone_text_append(text, size, "%llu", (unsigned long long)(parts / ZONE_OPTIONS_ONE));
    if (rest == 0) {
        return;
    }
    for (; rest % 10 == 0; digits--) {
        rest /= 10;
    }
    zone_text_append(text, size, ".%0*llu", (int)digits, (unsigned long long)rest);
}

/* One number if all slots agree, else the list that gives just these slots. */
static void append_roundup(char *text, size_t size, const uint64_t *slots)
{
    const unsigned end = ZONE_OPTIONS_SLOTS - 1;
    unsigned first = 0; /* the first entry of the list fills all slots below */
    unsigned last = end;
    while (first < end && slots[first + 1] == slots[0]) {
        first++;
    }
    if (first == end) {
        if (slots[0] == 0) {
            zone_text_append(text, size, "[]"); /* PyTorch has no other way to say it */
        } else {
            append_number(text, size, slots[0]);
        }
        return;
    }
    while (slots[last - 1] == slots[end]) {
        last--; /* the slots from here on are what `>` says */
    }
    for (unsigned i = first; i < last; i++) {
        zone_text_append(text, size, "%s%llu:%llu", i == first ? "[" : ",", 1ULL << i,
                         (unsigned long long)slots[i]);
    }
    zone_text_append(text, size, ",>:%llu]", (unsigned long long)slots[end]);
}

static void append_by_device(char *text, size_t size, const uint64_t *mb)
{
    bool same = true;
    for (unsigned i = 1; i < ZONE_OPTIONS_DEVICES; i++) {
        same &= mb[i] == mb[0];
    }
    if (same) {
        append_number(text, size, mb[0]);
        return;
    }
    const char *before = "[";
    for (unsigned i = 0; i < ZONE_OPTIONS_DEVICES; i++) {
        if (mb[i] != ZONE_OPTIONS_UNLIMITED) {
            zone_text_append(text, size, "%s%u:%llu", before, i, (unsigned long long)mb[i]);
            before = ",";
        }
    }
    zone_text_append(text, size, "]");
}

void zone_options_value(const struct zone_options *opt, const struct zone_option_info *info,
                        char *ret_text, size_t size)
{
    struct zone_option_value value;
    zone_option_load(opt, info, &value);
    ret_text[0] = '\0';
    switch (info->type) {
    case ZONE_OPTION_BOOL:
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER:
        zone_text_append(ret_text, size, "%s",
                         zone_options_word(info->type, (unsigned)value.number));
        break;
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
    case ZONE_OPTION_MS:
    case ZONE_OPTION_POWER_OF_2:
        append_number(ret_text, size, value.number);
        break;
    case ZONE_OPTION_FRACTION:
        append_fraction(ret_text, size, value.number);
        break;
    case ZONE_OPTION_ROUNDUP:
        append_roundup(ret_text, size, value.roundup.divisions);
        break;
    case ZONE_OPTION_MB_BY_DEVICE:
        append_by_device(ret_text, size, value.by_device.mb);
        break;
    case ZONE_OPTION_ANY:
        zone_text_append(ret_text, size, value.number ? "given" : "unset");
        break;
    }
}

static void append_range(char *text, size_t size, const struct zone_option_info *info)
{
    if (info->max == ZONE_OPTIONS_MAX_MB) {
        zone_text_append(text, size, ", at least %llu", (unsigned long long)info->min);
    } else {
        zone_text_append(text, size, " from %llu to %llu", (unsigned long long)info->min,
                         (unsigned long long)info->max);
    }
}

void zone_options_expected(const struct zone_option_info *info, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    switch (info->type) {
    case ZONE_OPTION_BOOL:
        zone_text_append(ret_text, size, "True or False");
        break;
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER: {
        const char *word;
        for (unsigned i = 0; (word = zone_options_word(info->type, i)) != NULL; i++) {
            const char *between = zone_options_word(info->type, i + 1) ? ", " : " or ";
            zone_text_append(ret_text, size, "%s%s", i == 0 ? "" : between, word);
        }
        break;
    }
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
        zone_text_append(ret_text, size, "a whole number of MiB");
        append_range(ret_text, size, info);
        zone_text_append(ret_text, size, "%s",
                         info->type == ZONE_OPTION_MB_OR_AUTO        ? ", or auto"
                         : info->type == ZONE_OPTION_MB_OR_UNLIMITED ? ", or unlimited"
                                                                     : "");
        break;
    case ZONE_OPTION_MB_BY_DEVICE:
        zone_text_append(ret_text, size,
                         "a whole number of MiB, unlimited, or a list [device:MiB,...]");
        break;
    case ZONE_OPTION_MS:
        zone_text_append(ret_text, size, "a whole number of milliseconds");
        append_range(ret_text, size, info);
        break;
    case ZONE_OPTION_POWER_OF_2:
        zone_text_append(ret_text, size, "a power of 2");
        append_range(ret_text, size, info);
        break;
    case ZONE_OPTION_FRACTION:
        zone_text_append(ret_text, size, "%s",
                         info->min > 0 ? "a number greater than 0 and less than 1"
                                       : "a number from 0 to 1");
        break;
    case ZONE_OPTION_ROUNDUP:
        zone_text_append(ret_text, size,
                         "a power of 2, or a list [MiB:divisions,...,>:divisions] of powers of 2");
        break;
    case ZONE_OPTION_ANY:
        zone_text_append(ret_text, size, "a value");
        break;
    }
}

void zone_options_echo(const struct zone_options *opt, zone_options_say_fn say, void *arg)
{
    const struct zone_option_info *info;
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        bool given = zone_option_given(opt, info);
        if (!given && info->status == ZONE_OPTION_NO_EFFECT) {
            continue;
        }
        char value[ZONE_OPTIONS_LINE];
        char line[ZONE_OPTIONS_LINE] = "";
        zone_options_value(opt, info, value, sizeof(value));
        zone_text_append(line, sizeof(line), "%s:%s (%s%s)", info->key, value,
                         given ? "set" : "default",
                         info->status == ZONE_OPTION_NO_EFFECT ? ", no effect" : "");
        say(arg, line);
    }
}

/* Giving one of these turns the cutting of large blocks on, whatever the value. */
static bool summary_counts_given(const struct zone_option_info *info)
{
    unsigned id = zone_option_id(info);
    return id == ZONE_OPTION_ID_large_segment_size_mb || id == ZONE_OPTION_ID_max_split_size_mb ||
           id == ZONE_OPTION_ID_max_non_split_rounding_mb;
}

void zone_options_summary(const struct zone_options *opt, char *ret_text, size_t size)
{
    const struct zone_option_info *info;
    ret_text[0] = '\0';
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        if (!zone_option_given(opt, info) ||
            (zone_option_is_default(opt, info) && !summary_counts_given(info))) {
            continue;
        }
        char value[ZONE_OPTIONS_LINE];
        zone_options_value(opt, info, value, sizeof(value));
        zone_text_append(ret_text, size, "%s%s:%s", ret_text[0] ? "," : "", info->key, value);
    }
}
