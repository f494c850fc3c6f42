/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks a configuration text: `key:value,key:[item:value,…],…`, PyTorch's grammar. Every mistake
 * becomes one line that names the variable, the key, the place, what was expected and what is used
 * instead; then the walk goes on behind the next ',' outside brackets. Fixed buffers on the stack;
 * no state outside the parser, no locking, no driver.
 */
#include "options_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* As isspace() in the C locale: PyTorch drops these, even inside a word. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static enum zone_token_kind separator(char c)
{
    switch (c) {
    case '\0':
        return ZONE_TOKEN_END;
    case ',':
        return ZONE_TOKEN_COMMA;
    case ':':
        return ZONE_TOKEN_COLON;
    case '[':
        return ZONE_TOKEN_OPEN;
    case ']':
        return ZONE_TOKEN_CLOSE;
    default:
        return ZONE_TOKEN_WORD;
    }
}

void zone_parser_advance(struct zone_parser *parser)
{
    struct zone_token *token = &parser->token;
    const char *text = parser->text;
    size_t at = parser->next;
    if (token->kind == ZONE_TOKEN_OPEN) {
        parser->depth++;
    } else if (token->kind == ZONE_TOKEN_CLOSE && parser->depth > 0) {
        parser->depth--;
    }
    while (is_space(text[at])) {
        at++;
    }
    token->kind = separator(text[at]);
    token->at = at;
    token->cut = false;
    size_t length = 0;
    if (token->kind != ZONE_TOKEN_WORD) {
        token->word[length++] = text[at];
        at += token->kind != ZONE_TOKEN_END;
    } else {
        for (; separator(text[at]) == ZONE_TOKEN_WORD; at++) {
            if (is_space(text[at])) {
                continue;
            }
            if (length < sizeof(token->word) - 1) {
                token->word[length++] = text[at];
            } else {
                token->cut = true;
            }
        }
    }
    token->word[length] = '\0';
    parser->next = at;
}

/* The token in quotes, made safe for a terminal and short enough for a line. */
const char *zone_parser_got(const struct zone_token *token, char *ret_text, size_t size)
{
    const size_t most = 40;
    if (token->kind == ZONE_TOKEN_END) {
        return "the end of the text";
    }
    size_t length = 0;
    ret_text[length++] = '"';
    const char *from = token->word;
    for (; *from != '\0' && length <= most && length + 6 < size; from++) {
        unsigned char c = (unsigned char)*from;
        ret_text[length++] = c < 0x20 || c == 0x7f ? '?' : *from;
    }
    ret_text[length] = '\0';
    zone_text_append(ret_text, size, "%s\"", *from != '\0' || token->cut ? "..." : "");
    return ret_text;
}

static void say(struct zone_parser *parser, bool problem, size_t at, const char *line)
{
    if (parser->say) {
        struct zone_options_message message = {
            .problem = problem, .key = parser->key, .at = at, .line = line};
        parser->say(parser->arg, &message);
    }
}

/* What stays in effect after a problem. */
static void append_instead(const struct zone_parser *parser, char *line, size_t size)
{
    char value[ZONE_OPTIONS_LINE];
    if (!parser->info) {
        zone_text_append(line, size, "; ignored");
        return;
    }
    zone_options_value(parser->opt, parser->info, value, sizeof(value));
    if (zone_option_given(parser->opt, parser->info)) {
        zone_text_append(line, size, "; keeping %s", value);
    } else {
        zone_text_append(line, size, "; using the default (%s)", value);
    }
}

bool zone_parser_problem(struct zone_parser *parser, size_t at, const char *format, ...)
{
    if (parser->quiet) {
        return false;
    }
    char clause[ZONE_OPTIONS_LINE];
    char line[ZONE_OPTIONS_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(clause, sizeof(clause), format, args);
    va_end(args);
    line[0] = '\0';
    zone_text_append(line, sizeof(line), "%s%s%s at %zu: %s", parser->variable,
                     parser->key[0] ? ": " : "", parser->key, at, clause);
    append_instead(parser, line, sizeof(line));
    if (parser->hint[0]) {
        zone_text_append(line, sizeof(line), "; %s", parser->hint);
        parser->hint[0] = '\0';
    }
    parser->problems++;
    say(parser, true, at, line);
    return false;
}

void zone_parser_remark(struct zone_parser *parser, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(parser->remark, sizeof(parser->remark), format, args);
    va_end(args);
}

void zone_parser_hint(struct zone_parser *parser, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(parser->hint, sizeof(parser->hint), format, args);
    va_end(args);
}

/* Accepted, but not quite as written, or without effect: one line, said once per key. */
static void say_note(struct zone_parser *parser, size_t at)
{
    const struct zone_option_info *info = parser->info;
    uint64_t bit = UINT64_C(1) << zone_option_id(info);
    char why[ZONE_OPTIONS_LINE] = "";
    if (!(parser->noted & bit) && !zone_option_is_default(parser->opt, info)) {
        if (info->status == ZONE_OPTION_NO_EFFECT) {
            zone_text_append(why, sizeof(why), "no effect in this version: %s", info->reason);
        }
    }
    if (!why[0] && !parser->remark[0]) {
        return;
    }
    if (why[0]) {
        parser->noted |= bit;
    }
    char line[ZONE_OPTIONS_LINE] = "";
    zone_text_append(line, sizeof(line), "%s: %s at %zu: %s%s%s", parser->variable, parser->key, at,
                     parser->remark, parser->remark[0] && why[0] ? "; " : "", why);
    say(parser, false, at, line);
}

/* Behind the next ',' outside brackets, or at the end. */
static void recover(struct zone_parser *parser)
{
    while (!parser->resume && parser->token.kind != ZONE_TOKEN_END) {
        if (parser->token.kind == ZONE_TOKEN_COMMA && parser->depth == 0) {
            zone_parser_advance(parser);
            break;
        }
        zone_parser_advance(parser);
    }
    parser->resume = false;
    parser->depth = 0;
}

/* The current token is no key: find out what was meant. */
static void unknown_key(struct zone_parser *parser, const struct zone_token *token)
{
    char got[ZONE_OPTIONS_WORD];
    char key[ZONE_OPTIONS_WORD];
    const struct zone_option_info *info;
    if (parser->quiet) {
        zone_parser_advance(parser);
        return;
    }
    zone_parser_got(token, got, sizeof(got));

    /* `key=value` is one word here. */
    memcpy(key, token->word, sizeof(key));
    for (char *c = key; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    char *equals = strchr(key, '=');
    if (equals) {
        *equals = '\0';
    }
    const char *nearest = NULL;
    unsigned least = (unsigned)strlen(key) / 3 + 1; /* further away it is no misspelling */
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        unsigned distance = zone_text_distance(info->key, key, least);
        if (distance < least) {
            least = distance;
            nearest = info->key;
        }
        /* The value without its key, as in `cudaMallocAsync`. */
        const char *word;
        for (unsigned j = 0; (word = zone_options_word(info->type, j)) != NULL; j++) {
            if (info->type != ZONE_OPTION_BOOL && strcmp(word, key) == 0) {
                zone_parser_hint(parser, "did you mean %s:%s?", info->key, word);
            }
        }
    }
    if (equals && nearest) {
        zone_parser_hint(parser, "write %s:%.40s", nearest, equals + 1);
    } else if (strpbrk(key, "'\"") != NULL) {
        zone_parser_hint(parser, "write it without quotes");
    } else if (nearest) {
        zone_parser_hint(parser, "did you mean %s?", nearest);
    }
    zone_parser_advance(parser);
    if (equals && nearest) {
        zone_parser_problem(parser, token->at, "expected ':' after the key, got %s", got);
    } else if (parser->token.kind == ZONE_TOKEN_COLON || nearest) {
        zone_parser_problem(parser, token->at, "unknown key %s", got);
    } else {
        zone_parser_problem(parser, token->at, "expected key:value, got %s", got);
    }
}

/* PyTorch takes `key,value` too; here only if the word can be nothing else. */
static bool comma_for_colon(struct zone_parser *parser, struct zone_option_value *ret_value)
{
    struct zone_parser saved = *parser;
    struct zone_option_value value = *ret_value;
    zone_parser_advance(parser);
    parser->quiet = true;
    bool reads = parser->token.kind == ZONE_TOKEN_WORD && !zone_option_find(parser->token.word) &&
                 zone_parser_read(parser, &value);
    parser->quiet = saved.quiet;
    if (!reads) {
        *parser = saved;
        return false;
    }
    *ret_value = value;
    zone_parser_remark(parser, "read ',' after the key as ':', as PyTorch does");
    return true;
}

static void take_value(struct zone_parser *parser, size_t at, const struct zone_option_value *value)
{
    const struct zone_option_info *info = parser->info;
    uint64_t bit = UINT64_C(1) << zone_option_id(info);
    if (!parser->large_segment_only ||
        zone_option_id(info) == ZONE_OPTION_ID_large_segment_size_mb) {
        zone_option_store(parser->opt, info, value);
    }
    if (!parser->quiet) {
        parser->opt->given |= bit;
        parser->live |= info->status == ZONE_OPTION_LIVE ? bit : 0;
        say_note(parser, at);
    }
}

/* `key:value`; leaves the parser behind the ',' that ends it. */
static void read_setting(struct zone_parser *parser)
{
    struct zone_token key = parser->token;
    parser->info = NULL;
    parser->key[0] = '\0';
    parser->remark[0] = '\0';
    parser->hint[0] = '\0';
    if (key.kind != ZONE_TOKEN_WORD) {
        char got[ZONE_OPTIONS_WORD];
        zone_parser_problem(parser, key.at, "expected a key, got %s",
                            zone_parser_got(&key, got, sizeof(got)));
        recover(parser);
        return;
    }
    const struct zone_option_info *info = key.cut ? NULL : zone_option_find(key.word);
    if (!info) {
        unknown_key(parser, &key);
        recover(parser);
        return;
    }
    parser->info = info;
    memcpy(parser->key, key.word, sizeof(parser->key));

    struct zone_option_value value;
    zone_option_load(parser->opt, info, &value);
    zone_parser_advance(parser);
    bool read = false;
    if (parser->token.kind == ZONE_TOKEN_COLON) {
        zone_parser_advance(parser);
        read = zone_parser_read(parser, &value);
    } else if (parser->token.kind != ZONE_TOKEN_COMMA || !comma_for_colon(parser, &value)) {
        char got[ZONE_OPTIONS_WORD];
        zone_parser_problem(parser, parser->token.at, "expected ':' and a value, got %s",
                            zone_parser_got(&parser->token, got, sizeof(got)));
    } else {
        read = true;
    }
    if (!read) {
        recover(parser);
        return;
    }
    if (parser->in_use && info->status == ZONE_OPTION_SERVED &&
        !zone_option_is(parser->opt, info, &value)) {
        zone_parser_problem(parser, key.at, "cannot be changed while the program runs");
    } else {
        take_value(parser, key.at, &value);
    }
    if (parser->token.kind == ZONE_TOKEN_COMMA) {
        zone_parser_advance(parser);
    }
}

static void read_settings(struct zone_parser *parser)
{
    parser->next = 0;
    parser->depth = 0;
    parser->token.kind = ZONE_TOKEN_END;
    zone_parser_advance(parser);
    while (parser->token.kind != ZONE_TOKEN_END) {
        read_setting(parser);
    }
}

/* Settings that do not go together: which one does not count. */
static void note_beside(struct zone_parser *parser, enum zone_option_id id, const char *text)
{
    char line[ZONE_OPTIONS_LINE] = "";
    parser->key[0] = '\0';
    zone_text_append(parser->key, sizeof(parser->key), "%s", zone_options_info(id)->key);
    zone_text_append(line, sizeof(line), "%s: %s%s", parser->variable, parser->key, text);
    say(parser, false, 0, line);
}

static void note_fills(struct zone_parser *parser)
{
    const struct zone_options *opt = parser->opt;
    if (opt->zero_fill && opt->junk_fill) {
        note_beside(parser, ZONE_OPTION_ID_junk_fill, " has no effect beside zero_fill");
    }
    if ((opt->zero_fill || opt->junk_fill) && opt->free_order == ZONE_FREE_ORDER_UNSAFE) {
        note_beside(parser, ZONE_OPTION_ID_free_order,
                    ":unsafe is served as event beside zero_fill and junk_fill");
    }
}

int zone_options_parse_messages(struct zone_options *opt, const char *variable, const char *text,
                                zone_options_message_fn message_fn, void *arg)
{
    struct zone_parser parser = {
        .opt = opt, .variable = variable, .text = text, .say = message_fn, .arg = arg};
    if (!text) {
        return 0;
    }
    /* large_segment_size_mb bounds other keys wherever it stands, so it is read first. */
    parser.quiet = true;
    parser.large_segment_only = true;
    read_settings(&parser);
    parser.quiet = false;
    parser.large_segment_only = false;
    read_settings(&parser);
    if (!zone_option_given(opt, zone_options_info(ZONE_OPTION_ID_max_non_split_rounding_mb))) {
        opt->max_non_split_rounding_mb = opt->large_segment_size_mb;
    }
    note_fills(&parser);
    return parser.problems;
}

struct line_sink {
    zone_options_say_fn say;
    void *arg;
};

static void say_line(void *arg, const struct zone_options_message *message)
{
    struct line_sink *sink = arg;
    sink->say(sink->arg, message->line);
}

int zone_options_parse(struct zone_options *opt, const char *variable, const char *text,
                       zone_options_say_fn say_fn, void *arg)
{
    struct line_sink sink = {.say = say_fn, .arg = arg};
    return zone_options_parse_messages(opt, variable, text, say_fn ? say_line : NULL, &sink);
}

int zone_options_adjust(struct zone_options *opt, const char *variable, const char *text,
                        zone_options_say_fn say_fn, void *arg, uint64_t *ret_keys)
{
    struct line_sink sink = {.say = say_fn, .arg = arg};
    struct zone_parser parser = {.opt = opt,
                                 .variable = variable,
                                 .text = text ? text : "",
                                 .say = say_fn ? say_line : NULL,
                                 .arg = &sink,
                                 .in_use = true};
    read_settings(&parser);
    *ret_keys = parser.live;
    return parser.problems;
}
