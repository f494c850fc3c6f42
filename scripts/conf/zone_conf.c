/* SPDX-License-Identifier: Apache-2.0
 *
 * zone-conf: what libzone makes of a configuration text, by libzone's own parser.
 *
 *   zone-conf [--json] TEXT   problems, notes and the settings in effect; exit code 1 for a problem
 *   zone-conf --table         every option as JSON
 *   zone-conf --counters      every counter of the report as JSON
 *
 * `zone conf` and the generator of docs/ read the JSON. A plain program: stdio is fine here.
 */
#include "counters.h"
#include "options.h"
#include "report_out.h"

#include <stdio.h>
#include <string.h>

#define VARIABLE "ZONE_ALLOC_CONF"
#define MESSAGES 256

struct message {
    bool problem;
    char key[64];
    size_t at;
    char line[ZONE_OPTIONS_LINE];
};

static struct {
    unsigned count; /* of those kept */
    struct message list[MESSAGES];
} messages;

static void keep_message(void *arg, const struct zone_options_message *message)
{
    (void)arg;
    if (messages.count < MESSAGES) {
        struct message *kept = &messages.list[messages.count++];
        kept->problem = message->problem;
        kept->at = message->at;
        snprintf(kept->key, sizeof(kept->key), "%s", message->key);
        snprintf(kept->line, sizeof(kept->line), "%s", message->line);
    }
}

static int write_stdout(void *arg, const char *text, size_t bytes)
{
    (void)arg;
    return fwrite(text, 1, bytes, stdout) == bytes ? 0 : -1;
}

static void write_messages(struct zone_out *out, const char *key, bool problems)
{
    zone_json_open(out, key, '[');
    for (unsigned i = 0; i < messages.count; i++) {
        const struct message *message = &messages.list[i];
        if (message->problem != problems) {
            continue;
        }
        zone_json_open(out, NULL, '{');
        zone_json_string(out, "key", message->key);
        zone_json_number(out, "at", message->at);
        zone_json_string(out, "text", message->line);
        zone_json_close(out, '}');
    }
    zone_json_close(out, ']');
}

/* `opt` is NULL where only the table is asked for. */
static void write_option(struct zone_out *out, const struct zone_option_info *info,
                         const struct zone_options *opt)
{
    struct zone_options defaults;
    char text[ZONE_OPTIONS_LINE];
    zone_options_init(&defaults);
    zone_json_open(out, NULL, '{');
    zone_json_string(out, "key", info->key);
    if (opt) {
        zone_options_value(opt, info, text, sizeof(text));
        zone_json_string(out, "value", text);
        zone_json_bool(out, "given", (opt->given >> (unsigned)(info - zone_options_info(0))) & 1);
    }
    zone_options_value(&defaults, info, text, sizeof(text));
    zone_json_string(out, "default", text);
    zone_options_expected(info, text, sizeof(text));
    zone_json_string(out, "expected", text);
    zone_json_string(out, "origin", info->origin == ZONE_OPTION_PYTORCH ? "PyTorch" : "libzone");
    zone_json_bool(out, "served", info->status != ZONE_OPTION_NO_EFFECT);
    zone_json_bool(out, "live", info->status == ZONE_OPTION_LIVE);
    zone_json_string(out, "doc", info->doc);
    zone_json_string(out, "reason", info->reason);
    zone_json_close(out, '}');
}

static void write_options(struct zone_out *out, const char *key, const struct zone_options *opt)
{
    const struct zone_option_info *info;
    zone_json_open(out, key, '[');
    for (unsigned i = 0; (info = zone_options_info(i)) != NULL; i++) {
        write_option(out, info, opt);
    }
    zone_json_close(out, ']');
}

static int end_json(struct zone_out *out)
{
    zone_out_put(out, "\n");
    return zone_out_end(out) == 0 && fflush(stdout) == 0 ? 0 : 2;
}

static int print_table(void)
{
    struct zone_out out;
    zone_out_init(&out, write_stdout, NULL);
    write_options(&out, NULL, NULL);
    return end_json(&out);
}

static int print_counters(void)
{
    static const char *const kinds[] = {[ZONE_COUNTER_GAUGE] = "gauge",
                                        [ZONE_COUNTER_LEVEL] = "level",
                                        [ZONE_COUNTER_SUM] = "sum",
                                        [ZONE_COUNTER_LAST] = "last"};
    static const char *const units[] = {[ZONE_COUNTER_BYTES] = "bytes",
                                        [ZONE_COUNTER_COUNT] = "count",
                                        [ZONE_COUNTER_NS] = "ns",
                                        [ZONE_COUNTER_CODE] = "code"};
    struct zone_out out;
    const struct zone_counter_info *info;
    const char *balance;
    zone_out_init(&out, write_stdout, NULL);
    zone_json_open(&out, NULL, '{');
    zone_json_open(&out, "counters", '[');
    for (unsigned i = 0; (info = zone_counters_info(i)) != NULL; i++) {
        zone_json_open(&out, NULL, '{');
        zone_json_string(&out, "name", info->name);
        zone_json_string(&out, "kind", kinds[info->kind]);
        zone_json_string(&out, "unit", units[info->unit]);
        zone_json_string(&out, "doc", info->doc);
        zone_json_close(&out, '}');
    }
    zone_json_close(&out, ']');
    zone_json_open(&out, "balances", '[');
    for (unsigned i = 0; (balance = zone_counters_balance(i)) != NULL; i++) {
        zone_json_string(&out, NULL, balance);
    }
    zone_json_close(&out, ']');
    zone_json_close(&out, '}');
    return end_json(&out);
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    printf("%s\n", line);
}

static int check(const char *text, bool json)
{
    struct zone_options opt;
    zone_options_init(&opt);
    int problems = zone_options_parse_messages(&opt, VARIABLE, text, keep_message, NULL);
    int code = problems > 0 ? 1 : 0;
    if (json) {
        struct zone_out out;
        zone_out_init(&out, write_stdout, NULL);
        zone_json_open(&out, NULL, '{');
        zone_json_string(&out, "variable", VARIABLE);
        zone_json_string(&out, "text", text);
        write_messages(&out, "problems", true);
        write_messages(&out, "notes", false);
        write_options(&out, "settings", &opt);
        zone_json_close(&out, '}');
        return end_json(&out) == 0 ? code : 2;
    }
    for (unsigned i = 0; i < messages.count; i++) {
        print_line(NULL, messages.list[i].line);
    }
    zone_options_echo(&opt, print_line, NULL);
    return fflush(stdout) == 0 ? code : 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--table") == 0) {
        return print_table();
    }
    if (argc == 2 && strcmp(argv[1], "--counters") == 0) {
        return print_counters();
    }
    if (argc == 3 && strcmp(argv[1], "--json") == 0) {
        return check(argv[2], true);
    }
    if (argc == 2 && argv[1][0] != '-') {
        return check(argv[1], false);
    }
    fprintf(stderr, "usage: zone-conf [--json] TEXT | --table | --counters\n");
    return 2;
}
