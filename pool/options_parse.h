/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that read a configuration text, and by nobody else: options_parse.c walks the
 * text and words the messages, options_read.c reads one value, options_number.c reads digits,
 * options_show.c writes values back. No state outside the structs, no locking, no driver.
 */
#pragma once

#include "options.h"
#include "text.h"

#define ZONE_OPTIONS_WORD 96

enum zone_token_kind {
    ZONE_TOKEN_END,
    ZONE_TOKEN_WORD,
    ZONE_TOKEN_COMMA,
    ZONE_TOKEN_COLON,
    ZONE_TOKEN_OPEN,
    ZONE_TOKEN_CLOSE,
};

struct zone_token {
    enum zone_token_kind kind;
    bool cut; /* the word was longer than there is room for */
    size_t at;
    char word[ZONE_OPTIONS_WORD]; /* without white space; of a separator, the character itself */
};

/* A value that has been read and not yet stored. */
struct zone_option_value {
    uint64_t number;
    struct zone_options_roundup roundup;
    struct zone_options_by_device by_device;
};

struct zone_parser {
    struct zone_options *opt;
    const char *variable;
    const char *text;
    zone_options_message_fn say;
    void *arg;
    int problems;
    uint64_t noted;          /* bit i: option i has been said to have no effect */
    bool quiet;              /* trying something out: no messages, nothing counted */
    bool large_segment_only; /* first pass: only large_segment_size_mb, a bound of others, is stored
                              */

    bool in_use;   /* the options are in use: only LIVE ones may change */
    uint64_t live; /* bit i: option i, a LIVE one, was set */

    struct zone_token token; /* the current one */
    size_t next;             /* where the one after it begins */
    unsigned depth;          /* open brackets before `next` */
    bool resume;             /* the error lies before the current token: go on right here */

    /* The setting being read. */
    const struct zone_option_info *info;
    char key[ZONE_OPTIONS_WORD];
    char remark[ZONE_OPTIONS_LINE]; /* how a sloppy value was understood; "" if it was exact */
    char hint[ZONE_OPTIONS_LINE];   /* what the next problem's line ends with: what to write */
};

/* options_parse.c */
void zone_parser_advance(struct zone_parser *parser);
const char *zone_parser_got(const struct zone_token *token, char *ret_text, size_t size);
/* Says that the current setting is wrong at `at`. Always returns false. */
ZONE_PRINTF(3, 4)
bool zone_parser_problem(struct zone_parser *parser, size_t at, const char *format, ...);
ZONE_PRINTF(2, 3) void zone_parser_remark(struct zone_parser *parser, const char *format, ...);
ZONE_PRINTF(2, 3) void zone_parser_hint(struct zone_parser *parser, const char *format, ...);

/* options_read.c: reads the value at the current token. False: the problem has been said. */
bool zone_parser_read(struct zone_parser *parser, struct zone_option_value *ret_value);

/* options.c */
const struct zone_option_info *zone_option_find(const char *key);
/* large_segment_size_mb is the lower bound of two other keys. */
uint64_t zone_option_min(const struct zone_options *opt, const struct zone_option_info *info);
void zone_option_store(struct zone_options *opt, const struct zone_option_info *info,
                       const struct zone_option_value *value);
void zone_option_load(const struct zone_options *opt, const struct zone_option_info *info,
                      struct zone_option_value *ret_value);
bool zone_option_is(const struct zone_options *opt, const struct zone_option_info *info,
                    const struct zone_option_value *value);
bool zone_option_is_default(const struct zone_options *opt, const struct zone_option_info *info);
static inline unsigned zone_option_id(const struct zone_option_info *info)
{
    return (unsigned)(info - zone_options_info(0));
}
static inline bool zone_option_given(const struct zone_options *opt,
                                     const struct zone_option_info *info)
{
    return (opt->given >> zone_option_id(info)) & 1;
}

/* options_number.c: digits without the C library's help, which listens to the locale. */
enum zone_number {
    ZONE_NUMBER_OK,
    ZONE_NUMBER_NONE,     /* no digit where one must be */
    ZONE_NUMBER_NEGATIVE, /* "-" and digits */
    ZONE_NUMBER_TOO_BIG,  /* does not fit into 64 bits */
};
/* A sign, then digits. `ret_rest` is what follows them. */
enum zone_number zone_number_read(const char *text, uint64_t *ret_number, const char **ret_rest);
/* The same for 0.6, .7, 1e-3: in parts of ZONE_OPTIONS_ONE, rounded down, but never from above 0 to
 * 0. */
enum zone_number zone_number_read_fraction(const char *text, uint64_t *ret_parts,
                                           const char **ret_rest);
static inline bool zone_number_is_power_of_2(uint64_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}
/* How many insertions, deletions and replacements make b of a, case ignored; `limit` if more. */
unsigned zone_text_distance(const char *a, const char *b, unsigned limit);
