/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as ZONE_REPORT, and any environment behind %r and %q{VAR}: a file's name that fits, or
 * one line and no name. What the pattern gives is computed once more, without its parser.
 */
#include "target.h"

#include "report.h"

#include <stdbool.h>
#include <string.h>

enum { MOST = 4096, PID = 4711 };

static int said;

static void hear(void *arg, const char *line)
{
    (void)arg;
    said++;
    fuzz_check_line(line);
}

/* RANK's value comes from the input; VAR is set, anything else is not. */
static const char *get(void *arg, const char *variable)
{
    if (strcmp(variable, "SLURM_PROCID") == 0) {
        return arg;
    }
    return strcmp(variable, "VAR") == 0 ? "value" : NULL;
}

/* Replaces each escape as a whole. False: there is one that means nothing. */
static bool expand(const char *pattern, const char *rank, char *ret_path)
{
    const struct {
        const char *from, *to;
    } escapes[] = {{"%p", "4711"}, {"%h", "host"},       {"%r", rank[0] ? rank : "0"},
                   {"%%", "%"},    {"%q{VAR}", "value"}, {"%q{SLURM_PROCID}", rank}};
    size_t used = 0;
    while (*pattern != '\0') {
        size_t i = 0, end = sizeof(escapes) / sizeof(escapes[0]);
        if (*pattern != '%') {
            ret_path[used++] = *pattern++;
            continue;
        }
        while (i < end && strncmp(pattern, escapes[i].from, strlen(escapes[i].from)) != 0) {
            i++;
        }
        if (i == end) {
            return false;
        }
        memcpy(ret_path + used, escapes[i].to, strlen(escapes[i].to));
        used += strlen(escapes[i].to);
        pattern += strlen(escapes[i].from);
    }
    ret_path[used] = '\0';
    return true;
}

/* The input is the rank, a line's end, and the pattern; or only a pattern. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char small[32];
    char path[MOST];
    static char expected[1 << 20];
    if (size > 1000) { /* so that what is expected fits: each escape may be the rank */
        return 0;
    }
    char *text = fuzz_text(data, size);
    char *pattern = strchr(text, '\n');
    char *rank = pattern ? text : text + strlen(text);
    if (pattern) {
        *pattern++ = '\0';
    } else {
        pattern = text;
    }
    struct zone_report_names names = {.pid = PID, .host = "host", .get = get, .get_arg = rank};
    bool means = expand(pattern, rank, expected);
    size_t sizes[] = {sizeof(path), sizeof(small)};
    char *places[] = {path, small};
    for (unsigned i = 0; i < 2; i++) {
        said = 0;
        int rc = zone_report_path(pattern, &names, hear, NULL, places[i], sizes[i]);
        bool fits = means && strlen(expected) < sizes[i];
        FUZZ_CHECK(rc == (fits ? 0 : -1), "\"%s\" gave %d", pattern, rc);
        FUZZ_CHECK(said == (fits ? 0 : 1), "\"%s\": %d lines", pattern, said);
        FUZZ_CHECK(strcmp(places[i], fits ? expected : "") == 0, "\"%s\": \"%s\", not \"%s\"",
                   pattern, places[i], fits ? expected : "");
    }
    enum zone_report_kind kind = zone_report_kind(pattern);
    FUZZ_CHECK((kind == ZONE_REPORT_STDERR) == (pattern[0] == '\0'), "%s", pattern);
    free(text);
    return 0;
}
