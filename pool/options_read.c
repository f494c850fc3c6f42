/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the value of one setting at the parser's current token, by the type of its row. PyTorch's
 * keys take what PyTorch takes (`8700m` is 8700), with a remark; libzone's own keys are exact,
 * because a unit that is silently dropped is off by a thousand. No state, no locking, no driver.
 */
#include "options_parse.h"

#include <string.h>

/* Where the list is: the slot of the entry before, so that `>` knows what lies above it. */
struct list_place {
    unsigned last_slot;
    bool later; /* not the first entry with a size */
};

/* Takes one item `name:word` of a list. */
typedef bool (*list_item_fn)(struct zone_parser *parser, const struct zone_token *name,
                             const struct zone_token *word, struct list_place *place,
                             struct zone_option_value *ret_value);

/* Says what the option takes and what is there instead. */
static bool wrong_value(struct zone_parser *parser, const struct zone_token *token)
{
    char expected[ZONE_OPTIONS_LINE];
    char got[ZONE_OPTIONS_WORD];
    zone_options_expected(parser->info, expected, sizeof(expected));
    uint64_t min = zone_option_min(parser->opt, parser->info);
    if (min != parser->info->min) {
        zone_text_append(expected, sizeof(expected), " (now %llu: large_segment_size_mb)",
                         (unsigned long long)min);
    }
    bool separator = token->kind == ZONE_TOKEN_WORD && strpbrk(token->word, ";=");
    if (separator) {
        zone_parser_hint(parser, "settings are separated by ','");
    }
    return zone_parser_problem(parser, token->at, "expected %s, got %s", expected,
                               zone_parser_got(token, got, sizeof(got)));
}

/* A word that goes on after what was read: a remark for PyTorch's keys, wrong for others. */
static bool sloppy(struct zone_parser *parser, const struct zone_token *token, const char *rest)
{
    if (*rest == '\0' && !token->cut) {
        return true;
    }
    if (parser->info->origin != ZONE_OPTION_PYTORCH || token->cut) {
        return false;
    }
    char got[ZONE_OPTIONS_WORD];
    zone_parser_remark(parser, "read %s as %.*s, as PyTorch does",
                       zone_parser_got(token, got, sizeof(got)), (int)(rest - token->word),
                       token->word);
    return true;
}

static bool read_choice(struct zone_parser *parser, const struct zone_token *token,
                        uint64_t *ret_number)
{
    const char *word;
    for (unsigned i = 0; (word = zone_options_word(parser->info->type, i)) != NULL; i++) {
        if (strcmp(word, token->word) == 0) {
            *ret_number = i;
            return true;
        }
    }
    return wrong_value(parser, token);
}

static bool read_fraction(struct zone_parser *parser, const struct zone_token *token,
                          uint64_t *ret_number)
{
    const char *rest;
    if (zone_number_read_fraction(token->word, ret_number, &rest) != ZONE_NUMBER_OK ||
        *ret_number < parser->info->min || *ret_number > parser->info->max ||
        !sloppy(parser, token, rest)) {
        return wrong_value(parser, token);
    }
    return true;
}

/* What PyTorch's arithmetic makes of a size below 0 or above all memory: no limit. */
static bool reads_as_unlimited(struct zone_parser *parser, const struct zone_token *token,
                               enum zone_number outcome, uint64_t number)
{
    if (parser->info->type != ZONE_OPTION_MB_OR_UNLIMITED ||
        parser->info->origin != ZONE_OPTION_PYTORCH || token->cut) {
        return false;
    }
    if ((outcome != ZONE_NUMBER_NEGATIVE || number == 0) &&
        (outcome != ZONE_NUMBER_OK || number <= ZONE_OPTIONS_MAX_MB)) {
        return false;
    }
    char got[ZONE_OPTIONS_WORD];
    zone_parser_remark(parser, "read %s as unlimited, as PyTorch does",
                       zone_parser_got(token, got, sizeof(got)));
    return true;
}

static bool read_number(struct zone_parser *parser, const struct zone_token *token,
                        uint64_t *ret_number)
{
    const struct zone_option_info *info = parser->info;
    const char *rest;
    if (info->type == ZONE_OPTION_MB_OR_AUTO && strcmp(token->word, "auto") == 0) {
        *ret_number = ZONE_OPTIONS_AUTO;
        return true;
    }
    if ((info->type == ZONE_OPTION_MB_OR_UNLIMITED || info->type == ZONE_OPTION_MB_BY_DEVICE) &&
        strcmp(token->word, "unlimited") == 0) {
        *ret_number = ZONE_OPTIONS_UNLIMITED;
        return true;
    }
    enum zone_number outcome = zone_number_read(token->word, ret_number, &rest);
    if (reads_as_unlimited(parser, token, outcome, *ret_number)) {
        *ret_number = ZONE_OPTIONS_UNLIMITED;
        return true;
    }
    if (outcome != ZONE_NUMBER_OK || *ret_number < zone_option_min(parser->opt, info) ||
        *ret_number > info->max ||
        (info->type == ZONE_OPTION_POWER_OF_2 && !zone_number_is_power_of_2(*ret_number)) ||
        !sloppy(parser, token, rest)) {
        return wrong_value(parser, token);
    }
    return true;
}

/* The divisions of a scalar or of a list item, where 0 switches the rounding off. */
static bool read_divisions(struct zone_parser *parser, const struct zone_token *token, bool in_list,
                           uint64_t *ret_number)
{
    const char *rest;
    if (zone_number_read(token->word, ret_number, &rest) != ZONE_NUMBER_OK ||
        !(zone_number_is_power_of_2(*ret_number) || (in_list && *ret_number == 0)) ||
        !sloppy(parser, token, rest)) {
        if (!in_list) {
            return wrong_value(parser, token);
        }
        char got[ZONE_OPTIONS_WORD];
        return zone_parser_problem(parser, token->at,
                                   "expected divisions as a power of 2, or 0 for none, got %s",
                                   zone_parser_got(token, got, sizeof(got)));
    }
    return true;
}

/*
 * After a scalar value only ',' or the end may follow. If the word ends in the name of a key, what
 * is missing is the ',' before it: white space does not separate.
 */
static bool ends_setting(struct zone_parser *parser, const struct zone_token *value)
{
    if (parser->token.kind == ZONE_TOKEN_COMMA || parser->token.kind == ZONE_TOKEN_END) {
        return true;
    }
    char got[ZONE_OPTIONS_WORD];
    char after[ZONE_OPTIONS_WORD];
    const char *missing = NULL;
    const struct zone_option_info *info;
    size_t length = strlen(value->word);
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        size_t size = strlen(info->key);
        if (size < length && strcmp(value->word + length - size, info->key) == 0) {
            missing = info->key;
        }
    }
    zone_parser_got(&parser->token, got, sizeof(got));
    if (missing) {
        zone_parser_hint(parser, "write ',' before %s", missing);
        return zone_parser_problem(parser, value->at, "expected ',' between settings, got %s",
                                   zone_parser_got(value, after, sizeof(after)));
    }
    return zone_parser_problem(parser, parser->token.at, "expected ',' or the end after %s, got %s",
                               zone_parser_got(value, after, sizeof(after)), got);
}

static bool read_scalar(struct zone_parser *parser, struct zone_option_value *ret_value)
{
    struct zone_token token = parser->token;
    if (token.kind != ZONE_TOKEN_WORD) {
        return wrong_value(parser, &token);
    }
    zone_parser_advance(parser);
    if (!ends_setting(parser, &token)) {
        return false;
    }
    switch (parser->info->type) {
    case ZONE_OPTION_BOOL:
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER:
        return read_choice(parser, &token, &ret_value->number);
    case ZONE_OPTION_FRACTION:
        return read_fraction(parser, &token, &ret_value->number);
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
    case ZONE_OPTION_MS:
    case ZONE_OPTION_POWER_OF_2:
        return read_number(parser, &token, &ret_value->number);
    case ZONE_OPTION_ROUNDUP:
        if (!read_divisions(parser, &token, false, &ret_value->number)) {
            return false;
        }
        for (unsigned i = 0; i < ZONE_OPTIONS_SLOTS; i++) {
            ret_value->roundup.divisions[i] = ret_value->number;
        }
        return true;
    case ZONE_OPTION_MB_BY_DEVICE:
        if (!read_number(parser, &token, &ret_value->number)) {
            return false;
        }
        for (unsigned i = 0; i < ZONE_OPTIONS_DEVICES; i++) {
            ret_value->by_device.mb[i] = ret_value->number;
        }
        return true;
    case ZONE_OPTION_ANY:
        ret_value->number = 1;
        return true;
    }
    return false;
}

/* Inside `[`: the current token should be what `expected` says. */
static bool wrong_item(struct zone_parser *parser, const char *expected)
{
    char got[ZONE_OPTIONS_WORD];
    if (parser->token.kind == ZONE_TOKEN_WORD && zone_option_find(parser->token.word)) {
        parser->resume = true;
        parser->depth = 0;
        return zone_parser_problem(parser, parser->token.at, "expected ']' before the next key");
    }
    return zone_parser_problem(parser, parser->token.at, "expected %s, got %s", expected,
                               zone_parser_got(&parser->token, got, sizeof(got)));
}

/* `[name:word,…]`, a comma before `]` allowed as in PyTorch. */
static bool read_list(struct zone_parser *parser, list_item_fn item,
                      struct zone_option_value *ret_value)
{
    struct list_place place = {0};
    zone_parser_advance(parser);
    while (parser->token.kind != ZONE_TOKEN_CLOSE) {
        struct zone_token name = parser->token;
        if (name.kind != ZONE_TOKEN_WORD || zone_option_find(name.word)) {
            return wrong_item(parser, "an item or ']'");
        }
        zone_parser_advance(parser);
        if (parser->token.kind != ZONE_TOKEN_COLON) {
            return wrong_item(parser, "':' and a value in the list");
        }
        zone_parser_advance(parser);
        struct zone_token word = parser->token;
        if (word.kind != ZONE_TOKEN_WORD) {
            return wrong_item(parser, "a value in the list");
        }
        zone_parser_advance(parser);
        if (!item(parser, &name, &word, &place, ret_value)) {
            return false;
        }
        if (parser->token.kind == ZONE_TOKEN_COMMA) {
            zone_parser_advance(parser);
        } else if (parser->token.kind != ZONE_TOKEN_CLOSE) {
            return wrong_item(parser, "',' or ']'");
        }
    }
    struct zone_token close = parser->token;
    zone_parser_advance(parser);
    return ends_setting(parser, &close);
}

static bool take_roundup(struct zone_parser *parser, const struct zone_token *name,
                         const struct zone_token *word, struct list_place *place,
                         struct zone_option_value *ret_value)
{
    uint64_t *slots = ret_value->roundup.divisions;
    uint64_t divisions;
    if (!read_divisions(parser, word, true, &divisions)) {
        return false;
    }
    if (strcmp(name->word, ">") == 0) {
        for (unsigned i = place->last_slot + 1; i < ZONE_OPTIONS_SLOTS; i++) {
            slots[i] = divisions;
        }
        return true;
    }
    uint64_t mb;
    const char *rest;
    if (zone_number_read(name->word, &mb, &rest) != ZONE_NUMBER_OK ||
        !zone_number_is_power_of_2(mb) || !sloppy(parser, name, rest)) {
        char got[ZONE_OPTIONS_WORD];
        return zone_parser_problem(parser, name->at,
                                   "expected a size in MiB that is a power of 2, or '>', got %s",
                                   zone_parser_got(name, got, sizeof(got)));
    }
    unsigned slot = (unsigned)__builtin_ctzll(mb);
    if (slot >= ZONE_OPTIONS_SLOTS) {
        slot = ZONE_OPTIONS_SLOTS - 1;
    }
    if (!place->later) {
        for (unsigned i = 0; i < slot; i++) {
            slots[i] = divisions;
        }
        place->later = true;
    }
    slots[slot] = divisions;
    place->last_slot = slot;
    return true;
}

static bool take_device(struct zone_parser *parser, const struct zone_token *name,
                        const struct zone_token *word, struct list_place *place,
                        struct zone_option_value *ret_value)
{
    (void)place;
    uint64_t device;
    const char *rest;
    if (zone_number_read(name->word, &device, &rest) != ZONE_NUMBER_OK || *rest != '\0' ||
        device >= ZONE_OPTIONS_DEVICES) {
        char got[ZONE_OPTIONS_WORD];
        return zone_parser_problem(parser, name->at, "expected a device from 0 to %d, got %s",
                                   ZONE_OPTIONS_DEVICES - 1,
                                   zone_parser_got(name, got, sizeof(got)));
    }
    uint64_t mb;
    if (!read_number(parser, word, &mb)) {
        return false;
    }
    ret_value->by_device.mb[device] = mb;
    return true;
}

static bool take_any(struct zone_parser *parser, const struct zone_token *name,
                     const struct zone_token *word, struct list_place *place,
                     struct zone_option_value *ret_value)
{
    (void)parser;
    (void)name;
    (void)word;
    (void)place;
    ret_value->number = 1;
    return true;
}

bool zone_parser_read(struct zone_parser *parser, struct zone_option_value *ret_value)
{
    if (parser->token.kind != ZONE_TOKEN_OPEN) {
        return read_scalar(parser, ret_value);
    }
    enum zone_option_type type = parser->info->type;
    if (type == ZONE_OPTION_ROUNDUP) {
        return read_list(parser, take_roundup, ret_value);
    }
    if (type == ZONE_OPTION_MB_BY_DEVICE) {
        return read_list(parser, take_device, ret_value);
    }
    if (type == ZONE_OPTION_ANY) {
        return read_list(parser, take_any, ret_value);
    }
    return wrong_value(parser, &parser->token);
}
