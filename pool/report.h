/* SPDX-License-Identifier: Apache-2.0
 *
 * The report at exit: its data, the at most 12 lines of text, the JSON, and the name of its file.
 * The shim fills struct zone_report from the pool's counters and lends a write function. Made for
 * the worst moment of a process: no malloc, no stdio stream, no lock, no locale; never calls the
 * driver. One thread at a time per struct.
 */
#pragma once

#include "base.h"
#include "counters.h"
#include "oom.h"

#define ZONE_REPORT_DEVICES 16
#define ZONE_REPORT_NOTES   8
#define ZONE_REPORT_LINES   12
#define ZONE_REPORT_LINE    320 /* bytes of a line, at most */

struct zone_report_device {
    int ordinal;
    const char *name;    /* as the driver names it; NULL: unknown */
    const char *backing; /* where its memory comes from, in words; NULL: not said */
    struct zone_counters counters;
};

struct zone_report {
    int pid;
    const char *program; /* NULL: unknown */
    const char *version;
    const char *options; /* what zone_options_summary() wrote; NULL or "": all defaults */
    unsigned device_count;
    struct zone_report_device devices[ZONE_REPORT_DEVICES];
    struct zone_counters process; /* what belongs to no device, such as calls without a context */
    const struct zone_oom *oom;   /* the failed allocation that was explained last; NULL: none */
    unsigned note_count;
    const char *notes[ZONE_REPORT_NOTES]; /* sentences without a newline */
};

/* Takes all of `text`. Returns 0, or -1: then nothing more is written. */
typedef int (*zone_report_write_fn)(void *arg, const char *text, size_t bytes);

/* Zeroes the report, with counters that have their size and version. */
void zone_report_init(struct zone_report *report);

/* At most ZONE_REPORT_LINES lines, each beginning `zone[PID] `, in one call of `write`. */
int zone_report_text(const struct zone_report *report, zone_report_write_fn write, void *arg);

/* One JSON object with everything, in several calls of `write`. */
int zone_report_json(const struct zone_report *report, zone_report_write_fn write, void *arg);

/* One sentence chosen by rule from the counters; never empty. */
void zone_report_advice(const struct zone_report *report, char *ret_text, size_t size);

/* What ZONE_REPORT asks for. */
enum zone_report_kind {
    ZONE_REPORT_STDERR, /* not set, or empty */
    ZONE_REPORT_NONE,   /* none */
    ZONE_REPORT_TEXT,   /* a file pattern */
    ZONE_REPORT_JSON,   /* a file pattern that ends in .json */
};
enum zone_report_kind zone_report_kind(const char *setting);

/* What a file pattern can name. */
struct zone_report_names {
    int pid;
    const char *host; /* NULL: "unknown" */
    /* The environment, as the shim sees it; NULL for what is not set. */
    const char *(*get)(void *arg, const char *variable);
    void *get_arg;
};

/*
 * Expands %p (pid), %h (host), %r (rank: the launcher's, else 0), %q{VAR} and %% of `pattern` into
 * `ret_path`. On a bad pattern, an unset VAR or a name that is too long: returns -1 and says why in
 * one line, and `ret_path` is "".
 */
int zone_report_path(const char *pattern, const struct zone_report_names *names,
                     void (*say)(void *arg, const char *line), void *say_arg, char *ret_path,
                     size_t size);
