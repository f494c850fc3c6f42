/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as one JSON object: everything that struct zone_report holds, counters by their names
 * in counters.def. docs/STATS.md describes it. No malloc, no locking, no driver.
 */
#include "report_out.h"

#define FORMAT_VERSION 1

static void write_counters(struct zone_out *out, const char *key,
                           const struct zone_counters *counters)
{
    const struct zone_counter_info *info;
    zone_json_open(out, key, '{');
    for (unsigned i = 0; (info = zone_counters_info(i)) != NULL; i++) {
        const void *field = (const char *)counters + info->offset;
        const struct zone_gauge *gauge = field;
        switch (info->kind) {
        case ZONE_COUNTER_GAUGE:
            zone_json_open(out, info->name, '{');
            zone_json_number(out, "current", gauge->current);
            zone_json_number(out, "peak", gauge->peak);
            zone_json_number(out, "allocated", gauge->allocated);
            zone_json_number(out, "freed", gauge->freed);
            zone_json_close(out, '}');
            break;
        case ZONE_COUNTER_LEVEL:
            zone_json_open(out, info->name, '{');
            zone_json_number(out, "current", gauge->current);
            zone_json_close(out, '}');
            break;
        case ZONE_COUNTER_SUM:
        case ZONE_COUNTER_LAST:
            zone_json_number(out, info->name, *(const uint64_t *)field);
            break;
        }
    }
    zone_json_close(out, '}');
}

/* The numbers of the explanation, and what it made of them. */
static void write_oom(struct zone_out *out, const struct zone_oom *oom)
{
    zone_json_open(out, "out_of_memory", '{');
    zone_json_number(out, "explained", oom->explained);
    zone_json_number(out, "device", (uint64_t)oom->device);
    zone_json_number(out, "requested_bytes", oom->requested);
    zone_json_number(out, "needed_bytes", oom->bytes);
    zone_json_number(out, "total_bytes", oom->total);
    zone_json_number(out, "free_bytes", oom->free);
    zone_json_number(out, "allocated_bytes", oom->allocated);
    zone_json_number(out, "pending_bytes", oom->pending);
    zone_json_number(out, "cached_bytes", oom->cached);
    zone_json_number(out, "reclaimable_bytes", oom->reclaimable);
    zone_json_number(out, "shared_bytes", oom->shared);
    zone_json_number(out, "largest_bytes", oom->largest);
    if (oom->others_known) {
        zone_json_number(out, "other_processes", oom->others);
        zone_json_number(out, "other_bytes", oom->others_bytes);
    }
    zone_json_number(out, "rest_bytes", zone_oom_rest(oom));
    if (oom->refuser) {
        zone_json_string(out, "limit_option", oom->refuser);
        zone_json_number(out, "limit_bytes", oom->limit);
        zone_json_number(out, "limit_used_bytes", oom->limit_used);
    }
    zone_json_string(out, "verdict", zone_oom_word(oom));
    zone_json_string(out, "why", zone_oom_why(oom));
    zone_json_string(out, "try", zone_oom_try(oom));
    zone_json_close(out, '}');
}

static void write_string(struct zone_out *out, const char *key, const char *value)
{
    zone_json_string(out, key, value ? value : "");
}

int zone_report_json(const struct zone_report *report, zone_report_write_fn write, void *arg)
{
    struct zone_out out;
    struct zone_counters sum;
    char advice[ZONE_REPORT_LINE];
    zone_out_init(&out, write, arg);
    zone_report_sum(report, &sum);
    zone_report_advice(report, advice, sizeof(advice));

    zone_json_open(&out, NULL, '{');
    zone_json_number(&out, "zone_report", FORMAT_VERSION);
    write_string(&out, "version", report->version);
    zone_json_number(&out, "pid", (uint64_t)report->pid);
    write_string(&out, "program", report->program);
    write_string(&out, "options", report->options);
    zone_json_open(&out, "devices", '[');
    for (unsigned i = 0; i < report->device_count; i++) {
        const struct zone_report_device *device = &report->devices[i];
        zone_json_open(&out, NULL, '{');
        zone_json_number(&out, "ordinal", (uint64_t)device->ordinal);
        write_string(&out, "name", device->name);
        write_string(&out, "backing", device->backing);
        write_counters(&out, "counters", &device->counters);
        zone_json_close(&out, '}');
    }
    zone_json_close(&out, ']');
    write_counters(&out, "process", &report->process);
    write_counters(&out, "total", &sum);
    if (report->oom) {
        write_oom(&out, report->oom);
    }
    zone_json_open(&out, "notes", '[');
    for (unsigned i = 0; i < report->note_count; i++) {
        zone_json_string(&out, NULL, report->notes[i]);
    }
    zone_json_close(&out, ']');
    zone_json_string(&out, "try", advice);
    zone_json_close(&out, '}');
    zone_out_put(&out, "\n");
    return zone_out_end(&out);
}
