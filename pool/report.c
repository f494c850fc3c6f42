/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as text: at most ZONE_REPORT_LINES lines, written with one call so that the reports of
 * several processes do not mix. Lines with nothing to say are left out; devices and notes get the
 * room that remains. docs/STATS.md explains every line. No malloc, no locking, no driver.
 */
#include "report_out.h"
#include "text.h"

#include <string.h>

/* The lines so far. Each is cut to ZONE_REPORT_LINE, so that all fit into one buffer. */
struct lines {
    struct zone_out out;
    int pid;
    unsigned count;
};

_Static_assert(ZONE_REPORT_LINES *ZONE_REPORT_LINE < sizeof(((struct zone_out *)0)->buffer),
               "the text report is written with one call");

static void put_line(struct lines *lines, const char *text)
{
    char line[ZONE_REPORT_LINE] = "";
    zone_text_append(line, sizeof(line) - 1, "zone[%d] %s", lines->pid, text);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?'; /* a program's name may hold anything */
        }
    }
    zone_text_append(line, sizeof(line), "\n");
    zone_out_put(&lines->out, line);
    lines->count++;
}

static void append_count(char *text, size_t size, uint64_t count, const char *thing)
{
    zone_text_append(text, size, "%llu %s%s", (unsigned long long)count, thing,
                     count == 1 ? "" : "s");
}

static void put_header(struct lines *lines, const struct zone_report *report)
{
    char text[ZONE_REPORT_LINE] = "";
    const struct zone_report_device *first = &report->devices[0];
    zone_text_append(text, sizeof(text), "libzone %s: %s", report->version ? report->version : "?",
                     report->program ? report->program : "unknown program");
    if (report->device_count == 1) {
        zone_text_append(text, sizeof(text), " on %s", first->name ? first->name : "device 0");
    } else if (report->device_count > 1) {
        zone_text_append(text, sizeof(text), " on %u devices", report->device_count);
    }
    if (report->device_count > 0 && first->backing) {
        zone_text_append(text, sizeof(text), ", memory from %s", first->backing);
    }
    put_line(lines, text);
}

static void put_fault(struct lines *lines, const struct zone_counters *sum)
{
    if (sum->fault_code == 0) {
        return;
    }
    char text[ZONE_REPORT_LINE] = "";
    const char *name = zone_report_fault(sum->fault_code);
    zone_text_append(
        text, sizeof(text), "fault: the GPU reported error %llu%s%s%s and lost the context",
        (unsigned long long)sum->fault_code, name[0] ? " (" : "", name, name[0] ? ")" : "");
    put_line(lines, text);
}

static void put_allocated(struct lines *lines, const struct zone_counters *sum)
{
    char text[ZONE_REPORT_LINE] = "allocated: peak ";
    zone_text_bytes(text, sizeof(text), sum->allocated_bytes.peak);
    zone_text_append(text, sizeof(text), ", in all ");
    zone_text_bytes(text, sizeof(text), sum->allocated_bytes.allocated);
    zone_text_append(text, sizeof(text), " in ");
    append_count(text, sizeof(text), sum->allocation.allocated, "allocation");
    put_line(lines, text);
}

/* The parts are those at the end of the run, and sum up to what is reserved then. */
static void put_reserved(struct lines *lines, const struct zone_counters *sum)
{
    char text[ZONE_REPORT_LINE] = "reserved: peak ";
    zone_text_bytes(text, sizeof(text), sum->reserved_bytes.peak);
    if (sum->allocated_bytes.peak > 0) {
        uint64_t percent = (uint64_t)(((unsigned __int128)sum->reserved_bytes.peak * 100 +
                                       sum->allocated_bytes.peak / 2) /
                                      sum->allocated_bytes.peak);
        zone_text_append(text, sizeof(text), ", %llu.%02llu of peak allocated",
                         (unsigned long long)(percent / 100), (unsigned long long)(percent % 100));
    }
    zone_text_append(text, sizeof(text), "; at the end ");
    zone_text_bytes(text, sizeof(text), sum->reserved_bytes.current);
    zone_text_append(text, sizeof(text), " = allocated ");
    zone_text_bytes(text, sizeof(text), sum->allocated_bytes.current);
    zone_text_append(text, sizeof(text), " + pending ");
    zone_text_bytes(text, sizeof(text), sum->pending_bytes.current);
    zone_text_append(text, sizeof(text), " + cached ");
    zone_text_bytes(text, sizeof(text), sum->cached_bytes.current);
    put_line(lines, text);
}

static void put_served(struct lines *lines, const struct zone_counters *sum)
{
    char text[ZONE_REPORT_LINE] = "served: ";
    zone_text_percent(text, sizeof(text), sum->hits, sum->allocation.allocated);
    zone_text_append(text, sizeof(text), " of the allocations without the driver; ");
    append_count(text, sizeof(text), sum->driver_alloc_calls + sum->driver_free_calls,
                 "driver call");
    zone_text_append(text, sizeof(text), " took ");
    zone_text_ns(text, sizeof(text), sum->driver_alloc_ns + sum->driver_free_ns);
    zone_text_append(text, sizeof(text), ", about ");
    zone_text_ns(text, sizeof(text), sum->saved_ns);
    zone_text_append(text, sizeof(text), " saved");
    put_line(lines, text);
}

static void append_wait(char *text, size_t size, uint64_t count, uint64_t ns, const char *where,
                        const char *why)
{
    if (count == 0) {
        return;
    }
    zone_text_append(text, size, "%s", text[0] ? "; " : "");
    append_count(text, size, count, where);
    zone_text_append(text, size, " (%s)", why);
    if (ns > 0) {
        zone_text_append(text, size, " ");
        zone_text_ns(text, size, ns);
    }
}

static void put_waits(struct lines *lines, const struct zone_counters *sum)
{
    char waits[ZONE_REPORT_LINE] = "";
    append_wait(waits, sizeof(waits), sum->throttle_waits, sum->throttle_wait_ns, "free",
                "too much pending");
    append_wait(waits, sizeof(waits), sum->sync_waits, sum->sync_wait_ns, "free", "as natively");
    append_wait(waits, sizeof(waits), sum->oom_rung, sum->oom_wait_ns, "allocation",
                "memory was short");
    append_wait(waits, sizeof(waits), sum->exit_waits, 0, "exit", "as natively");
    char text[ZONE_REPORT_LINE] = "";
    zone_text_append(text, sizeof(text), "waited for the GPU: %s", waits[0] ? waits : "never");
    put_line(lines, text);
}

static void put_short(struct lines *lines, const struct zone_counters *sum)
{
    if (sum->ooms == 0 && sum->trims == 0 && sum->retries == 0) {
        return;
    }
    char text[ZONE_REPORT_LINE] = "short of memory: ";
    append_count(text, sizeof(text), sum->ooms, "allocation");
    zone_text_append(text, sizeof(text), " failed; cache given back ");
    append_count(text, sizeof(text), sum->trims, "time");
    zone_text_append(text, sizeof(text), " (");
    zone_text_bytes(text, sizeof(text), sum->trimmed_bytes);
    zone_text_append(text, sizeof(text), "); ");
    append_count(text, sizeof(text), sum->retries, "other call");
    zone_text_append(text, sizeof(text), " tried again, %llu rescued",
                     (unsigned long long)sum->retries_rescued);
    put_line(lines, text);
}

static void put_bypassed(struct lines *lines, const struct zone_counters *sum)
{
    const struct {
        const char *name;
        uint64_t count;
    } kinds[] = {
        {"pitched", sum->bypass_pitch},
        {"managed", sum->bypass_managed},
        {"stream-ordered", sum->bypass_async},
        {"pinned", sum->bypass_host},
        {"arrays", sum->bypass_array},
        {"virtual memory", sum->bypass_vmm},
        {"in a capture", sum->bypass_capture},
        {"without a context", sum->bypass_no_context},
        {"frees of others' memory", sum->bypass_foreign_free},
        {"exported blocks", sum->tainted},
        {"double frees", sum->double_frees},
    };
    char text[ZONE_REPORT_LINE] = "";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].count > 0) {
            zone_text_append(text, sizeof(text), "%s%llu %s",
                             text[0] ? ", " : "not pooled: ", (unsigned long long)kinds[i].count,
                             kinds[i].name);
        }
    }
    if (text[0]) {
        put_line(lines, text);
    }
}

static void put_not_freed(struct lines *lines, const struct zone_counters *sum)
{
    char text[ZONE_REPORT_LINE] = "not freed: ";
    if (sum->allocation.current == 0) {
        zone_text_append(text, sizeof(text), "nothing");
    } else {
        append_count(text, sizeof(text), sum->allocation.current, "allocation");
        zone_text_append(text, sizeof(text), ", ");
        zone_text_bytes(text, sizeof(text), sum->allocated_bytes.current);
    }
    put_line(lines, text);
}

static void put_device(struct lines *lines, const struct zone_report_device *device)
{
    const struct zone_counters *counters = &device->counters;
    char text[ZONE_REPORT_LINE] = "";
    zone_text_append(text, sizeof(text), "device %d%s%s: allocated peak ", device->ordinal,
                     device->name ? " " : "", device->name ? device->name : "");
    zone_text_bytes(text, sizeof(text), counters->allocated_bytes.peak);
    zone_text_append(text, sizeof(text), ", reserved peak ");
    zone_text_bytes(text, sizeof(text), counters->reserved_bytes.peak);
    zone_text_append(text, sizeof(text), ", ");
    append_count(text, sizeof(text), counters->allocation.allocated, "allocation");
    zone_text_append(text, sizeof(text), ", ");
    zone_text_percent(text, sizeof(text), counters->hits, counters->allocation.allocated);
    zone_text_append(text, sizeof(text), " without the driver, %llu not freed",
                     (unsigned long long)counters->allocation.current);
    put_line(lines, text);
}

/* What may be left out: the options, the notes, a line per device. There is room for two at least:
 * the others are ten. */
static void put_extras(struct lines *lines, const struct zone_report *report, unsigned room)
{
    bool options = report->options && report->options[0];
    unsigned devices = report->device_count > 1 ? report->device_count : 0;
    unsigned extras = (options ? 1 : 0) + report->note_count + devices;
    unsigned show = extras > room ? room - 1 : extras;
    char text[ZONE_REPORT_LINE] = "";
    for (unsigned i = 0; i < show; i++) {
        if (options && i == 0) {
            zone_text_append(text, sizeof(text), "options: %s", report->options);
            put_line(lines, text);
            continue;
        }
        unsigned at = i - (options ? 1 : 0);
        if (at < report->note_count) {
            put_line(lines, report->notes[at]);
        } else {
            put_device(lines, &report->devices[at - report->note_count]);
        }
    }
    if (extras > show) {
        text[0] = '\0';
        zone_text_append(text, sizeof(text),
                         "%u more lines in the JSON: ZONE_REPORT=report.%%p.json", extras - show);
        put_line(lines, text);
    }
}

int zone_report_text(const struct zone_report *report, zone_report_write_fn write, void *arg)
{
    struct lines lines = {.pid = report->pid};
    struct zone_counters sum;
    char advice[ZONE_REPORT_LINE];
    char text[ZONE_REPORT_LINE] = "";
    zone_out_init(&lines.out, write, arg);
    zone_report_sum(report, &sum);
    put_header(&lines, report);
    put_fault(&lines, &sum);
    if (sum.allocation.allocated > 0) {
        put_allocated(&lines, &sum);
        put_reserved(&lines, &sum);
        put_served(&lines, &sum);
        put_waits(&lines, &sum);
    }
    put_short(&lines, &sum);
    put_bypassed(&lines, &sum);
    if (sum.allocation.allocated > 0) {
        put_not_freed(&lines, &sum);
    }
    put_extras(&lines, report, ZONE_REPORT_LINES - lines.count - 1);
    zone_report_advice(report, advice, sizeof(advice));
    zone_text_append(text, sizeof(text), "try: %s", advice);
    put_line(&lines, text);
    return zone_out_end(&lines.out);
}

void zone_report_init(struct zone_report *report)
{
    memset(report, 0, sizeof(*report));
    zone_counters_init(&report->process);
    for (unsigned i = 0; i < ZONE_REPORT_DEVICES; i++) {
        zone_counters_init(&report->devices[i].counters);
    }
}

void zone_report_sum(const struct zone_report *report, struct zone_counters *ret_sum)
{
    *ret_sum = report->process;
    for (unsigned i = 0; i < report->device_count; i++) {
        zone_counters_add(ret_sum, &report->devices[i].counters);
    }
}
