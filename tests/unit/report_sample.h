/* SPDX-License-Identifier: Apache-2.0
 *
 * A made-up report whose numbers add up, for test_report.c and report_sample.c.
 */
#pragma once

#include "report.h"

/* One device and a run without trouble. */
static inline void sample_small(struct zone_report *ret_report)
{
    zone_report_init(ret_report);
    ret_report->pid = 4711;
    ret_report->program = "train";
    ret_report->version = "0.1.0";
    ret_report->device_count = 1;
    struct zone_report_device *device = &ret_report->devices[0];
    device->name = "NVIDIA H200";
    device->backing = "cuMemAlloc";
    struct zone_counters *c = &device->counters;
    c->allocation =
        (struct zone_gauge){.current = 3, .peak = 40, .allocated = 100000, .freed = 99997};
    c->allocated_bytes = (struct zone_gauge){.current = 3 * ZONE_MIB,
                                             .peak = 10 * ZONE_GIB,
                                             .allocated = 900 * ZONE_GIB,
                                             .freed = 900 * ZONE_GIB - 3 * ZONE_MIB};
    c->pending_bytes.current = ZONE_MIB;
    c->active_bytes.current = 4 * ZONE_MIB;
    c->cached_bytes.current = 11 * ZONE_GIB - 4 * ZONE_MIB;
    c->reserved_bytes = (struct zone_gauge){
        .current = 11 * ZONE_GIB, .peak = 11 * ZONE_GIB, .allocated = 11 * ZONE_GIB};
    c->hits = 99950;
    c->misses = 50;
    c->driver_alloc_calls = 50;
    c->driver_alloc_ns = 2500000;
    c->saved_ns = UINT64_C(8123456789);
    c->throttle_waits = 12;
    c->throttle_wait_ns = 3450000;
    c->exit_waits = 1;
}

/* Everything that can be said, and more than there is room for. */
static inline void sample_full(struct zone_report *ret_report)
{
    sample_small(ret_report);
    ret_report->options = "max_pending_mb:512,free_order:event";
    static const struct zone_oom oom = {.device = 2,
                                        .requested = 3 * ZONE_GIB - 1,
                                        .bytes = 3 * ZONE_GIB,
                                        .total = 16 * ZONE_GIB,
                                        .free = ZONE_GIB,
                                        .allocated = 8 * ZONE_GIB,
                                        .pending = ZONE_GIB / 2,
                                        .cached = ZONE_GIB / 2,
                                        .others_known = true,
                                        .others = 2,
                                        .others_bytes = 5 * ZONE_GIB,
                                        .refuser = "max_reserved_mb",
                                        .limit = 10 * ZONE_GIB,
                                        .limit_used = 9 * ZONE_GIB,
                                        .explained = 4};
    ret_report->oom = &oom;
    ret_report->note_count = 2;
    ret_report->notes[0] = "a note with \"quotes\" and a \\";
    ret_report->notes[1] = "another note";
    ret_report->program = "tr\xc3\xa4in\xff\n\x1b[31m";
    ret_report->device_count = 8;
    for (unsigned i = 1; i < 8; i++) {
        ret_report->devices[i] = ret_report->devices[0];
        ret_report->devices[i].ordinal = (int)i;
    }
    struct zone_counters *c = &ret_report->devices[2].counters;
    c->sync_waits = 4;
    c->sync_wait_ns = 999;
    c->oom_rung = 2;
    c->oom_wait_ns = 20000000;
    c->ooms = 1;
    c->oom_rejections = 1;
    c->trims = 3;
    c->trimmed_bytes = 5 * ZONE_GIB;
    c->retries = 2;
    c->retries_rescued = 1;
    c->fault_code = 700;
    c->tainted = 5;
    c->double_frees = 6;
    c = &ret_report->process;
    c->bypass_pitch = 1;
    c->bypass_managed = 2;
    c->bypass_async = 3;
    c->bypass_host = 4;
    c->bypass_array = 5;
    c->bypass_vmm = 6;
    c->bypass_capture = 7;
    c->bypass_foreign_free = 8;
    c->bypass_no_context = 9;
}
