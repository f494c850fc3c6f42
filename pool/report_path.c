/* SPDX-License-Identifier: Apache-2.0
 *
 * What ZONE_REPORT asks for, and the name of the report's file. The environment comes in through a
 * function, because only the shim may look at it. No malloc, no locking, no driver.
 */
#include "report.h"
#include "text.h"

#include <string.h>

#define VARIABLE_LENGTH 128

struct path {
    const char *pattern;
    const struct zone_report_names *names;
    void (*say)(void *arg, const char *line);
    void *say_arg;
    char *text;
    size_t size;
    size_t used;
};

enum zone_report_kind zone_report_kind(const char *setting)
{
    static const char json[] = ".json";
    if (!setting || setting[0] == '\0') {
        return ZONE_REPORT_STDERR;
    }
    if (strcmp(setting, "none") == 0) {
        return ZONE_REPORT_NONE;
    }
    size_t length = strlen(setting);
    size_t suffix = sizeof(json) - 1;
    bool is_json = length >= suffix && strcmp(setting + length - suffix, json) == 0;
    return is_json ? ZONE_REPORT_JSON : ZONE_REPORT_TEXT;
}

static int refuse(struct path *path, size_t at, const char *why)
{
    char line[512] = "";
    zone_text_append(line, sizeof(line), "ZONE_REPORT: \"%.200s\" at %zu: %s", path->pattern, at,
                     why);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    if (path->say) {
        path->say(path->say_arg, line);
    }
    path->text[0] = '\0';
    return -1;
}

/* False if it does not fit. */
static bool add(struct path *path, const char *text)
{
    size_t length = strlen(text);
    if (length >= path->size - path->used) {
        return false;
    }
    memcpy(path->text + path->used, text, length + 1);
    path->used += length;
    return true;
}

static const char *get(const struct path *path, const char *variable)
{
    return path->names->get ? path->names->get(path->names->get_arg, variable) : NULL;
}

/* The rank that the launcher gave the process; "0" without a launcher. */
static const char *rank_of(const struct path *path)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID", "MV2_COMM_WORLD_RANK"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = get(path, variables[i]);
        if (value && value[0] != '\0') {
            return value;
        }
    }
    return "0";
}

/* `%q{VAR}`, `at` being the place of the '%'. Returns the length of the whole, 0 after an error. */
static size_t add_variable(struct path *path, size_t at)
{
    const char *name = path->pattern + at + 3;
    const char *end = path->pattern[at + 2] == '{' ? strchr(name, '}') : NULL;
    char variable[VARIABLE_LENGTH];
    char why[VARIABLE_LENGTH + 64] = "";
    if (!end || end == name || (size_t)(end - name) >= sizeof(variable)) {
        refuse(path, at, "expected %q{VARIABLE}");
        return 0;
    }
    memcpy(variable, name, (size_t)(end - name));
    variable[end - name] = '\0';
    const char *value = get(path, variable);
    if (!value) {
        zone_text_append(why, sizeof(why), "the variable %s is not set", variable);
        refuse(path, at, why);
        return 0;
    }
    if (!add(path, value)) {
        refuse(path, at, "the name is too long");
        return 0;
    }
    return (size_t)(end - (path->pattern + at)) + 1;
}

/* The '%' at `at`. Returns its length, 0 after an error. */
static size_t add_percent(struct path *path, size_t at)
{
    char pid[16] = "";
    const char *text = NULL;
    switch (path->pattern[at + 1]) {
    case 'p':
        zone_text_append(pid, sizeof(pid), "%d", path->names->pid);
        text = pid;
        break;
    case 'h':
        text = path->names->host ? path->names->host : "unknown";
        break;
    case 'r':
        text = rank_of(path);
        break;
    case '%':
        text = "%";
        break;
    case 'q':
        return add_variable(path, at);
    default:
        refuse(path, at, "expected %p, %h, %r, %q{VARIABLE} or %%");
        return 0;
    }
    if (!add(path, text)) {
        refuse(path, at, "the name is too long");
        return 0;
    }
    return 2;
}

int zone_report_path(const char *pattern, const struct zone_report_names *names,
                     void (*say)(void *arg, const char *line), void *say_arg, char *ret_path,
                     size_t size)
{
    struct path path = {.pattern = pattern,
                        .names = names,
                        .say = say,
                        .say_arg = say_arg,
                        .text = ret_path,
                        .size = size};
    if (size == 0) {
        return -1;
    }
    ret_path[0] = '\0';
    for (size_t at = 0; pattern[at] != '\0';) {
        if (pattern[at] != '%') {
            const char one[2] = {pattern[at], '\0'};
            if (!add(&path, one)) {
                return refuse(&path, at, "the name is too long");
            }
            at++;
            continue;
        }
        size_t length = add_percent(&path, at);
        if (length == 0) {
            return -1;
        }
        at += length;
    }
    return 0;
}
