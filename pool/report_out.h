/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that write reports, and by tools that print JSON the same way: a buffer in
 * front of a write function, and JSON with correct strings. A failed write is remembered, and
 * nothing is written after it. One thread per struct, no locking, no driver.
 */
#pragma once

#include "report.h"

struct zone_out {
    zone_report_write_fn write;
    void *arg;
    int rc; /* -1 after a failed write */
    size_t used;
    bool again; /* JSON: something stands before on this level, a comma is due */
    char buffer[4096];
};

void zone_out_init(struct zone_out *out, zone_report_write_fn write, void *arg);
void zone_out_put(struct zone_out *out, const char *text);
/* Writes what is left. Returns 0, or -1 if any write failed. */
int zone_out_end(struct zone_out *out);

/* JSON: `key` is NULL in a list and at the top. Objects and lists nest by open and close. */
void zone_json_open(struct zone_out *out, const char *key, char bracket);
void zone_json_close(struct zone_out *out, char bracket);
void zone_json_string(struct zone_out *out, const char *key, const char *value);
void zone_json_number(struct zone_out *out, const char *key, uint64_t value);
void zone_json_bool(struct zone_out *out, const char *key, bool value);

/* report.c: the counters of the process and of all devices, summed. */
void zone_report_sum(const struct zone_report *report, struct zone_counters *ret_sum);
/* report_advice.c: what a CUresult that loses a context means, "" if unknown. */
const char *zone_report_fault(uint64_t code);
