/* SPDX-License-Identifier: Apache-2.0
 *
 * What to try: one sentence, chosen by the first rule that fits the summed counters. The rules go
 * from what broke the program over what slowed it down to what could be leaner. docs/STATS.md lists
 * them. No malloc, no locking, no driver.
 */
#include "report_out.h"
#include "text.h"

#include <string.h>

#define MS UINT64_C(1000000)

const char *zone_report_fault(uint64_t code)
{
    static const struct {
        uint64_t code;
        const char *name;
    } faults[] = {
        {700, "illegal address"},         {702, "launch timeout"},
        {709, "context destroyed"},       {710, "assertion in a kernel"},
        {714, "hardware stack error"},    {715, "illegal instruction"},
        {716, "misaligned address"},      {717, "invalid address space"},
        {718, "invalid program counter"}, {719, "launch failure"},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (faults[i].code == code) {
            return faults[i].name;
        }
    }
    return "";
}

/* A rule: false if it does not fit, else the sentence in `text`. */
typedef bool (*advice_fn)(const struct zone_report *report, const struct zone_counters *sum,
                          char *text, size_t size);

static bool device_fault(const struct zone_report *report, const struct zone_counters *sum,
                         char *text, size_t size)
{
    (void)report;
    if (sum->fault_code == 0) {
        return false;
    }
    zone_text_append(
        text, size, "run it with ZONE_DISABLE=1 under compute-sanitizer to find the faulty kernel");
    return true;
}

static bool pool_off(const struct zone_report *report, const struct zone_counters *sum, char *text,
                     size_t size)
{
    (void)sum;
    if (!report->options || !strstr(report->options, "backend:off")) {
        return false;
    }
    zone_text_append(text, size, "without backend:off, the pool serves what was only counted here");
    return true;
}

static bool nothing_allocated(const struct zone_report *report, const struct zone_counters *sum,
                              char *text, size_t size)
{
    (void)report;
    if (sum->allocation.allocated > 0) {
        return false;
    }
    zone_text_append(text, size, "nothing; the program allocated no memory that the pool serves");
    return true;
}

static bool out_of_memory(const struct zone_report *report, const struct zone_counters *sum,
                          char *text, size_t size)
{
    if (sum->ooms == 0) {
        return false;
    }
    if (report->oom) {
        zone_text_append(text, size, "%s: %s", zone_oom_try(report->oom),
                         zone_oom_why(report->oom));
        return true;
    }
    zone_text_append(text, size,
                     "a smaller problem, or a GPU that nobody else uses: memory ran out after the "
                     "cache had been given back");
    return true;
}

static bool others_out_of_memory(const struct zone_report *report, const struct zone_counters *sum,
                                 char *text, size_t size)
{
    (void)report;
    if (sum->retries <= sum->retries_rescued) {
        return false;
    }
    zone_text_append(
        text, size,
        "a larger min_free_mb: %llu calls past the pool ran out of memory even after a "
        "trim",
        (unsigned long long)(sum->retries - sum->retries_rescued));
    return true;
}

static bool double_free(const struct zone_report *report, const struct zone_counters *sum,
                        char *text, size_t size)
{
    (void)report;
    if (sum->double_frees == 0) {
        return false;
    }
    zone_text_append(text, size,
                     "to find the second free of %llu blocks: the program got an error for each",
                     (unsigned long long)sum->double_frees);
    return true;
}

static bool throttled(const struct zone_report *report, const struct zone_counters *sum, char *text,
                      size_t size)
{
    (void)report;
    if (sum->throttle_wait_ns < 50 * MS || sum->throttle_wait_ns < sum->saved_ns / 20) {
        return false;
    }
    zone_text_append(text, size, "a larger max_pending_mb: frees waited ");
    zone_text_ns(text, size, sum->throttle_wait_ns);
    zone_text_append(text, size, " for the GPU because too much was pending");
    return true;
}

static bool waits_as_natively(const struct zone_report *report, const struct zone_counters *sum,
                              char *text, size_t size)
{
    (void)report;
    if (sum->sync_wait_ns < 50 * MS || sum->sync_wait_ns < sum->saved_ns / 20) {
        return false;
    }
    zone_text_append(text, size,
                     "free_order:event, if nothing leans on the wait in cudaFree: frees "
                     "waited ");
    zone_text_ns(text, size, sum->sync_wait_ns);
    zone_text_append(text, size, " for the GPU as they do natively");
    return true;
}

static bool cache_given_back(const struct zone_report *report, const struct zone_counters *sum,
                             char *text, size_t size)
{
    (void)report;
    if (sum->trimmed_bytes <= 2 * sum->reserved_bytes.peak || sum->misses * 10 < sum->hits) {
        return false;
    }
    zone_text_append(text, size,
                     "a larger max_cached_mb, or a GPU with more free memory: the cache was given "
                     "back %llu times",
                     (unsigned long long)sum->trims);
    return true;
}

static bool sizes_differ(const struct zone_report *report, const struct zone_counters *sum,
                         char *text, size_t size)
{
    if (sum->allocation.allocated < 100 || sum->hits * 10 >= sum->allocation.allocated * 8 ||
        (report->options && strstr(report->options, "roundup_power2_divisions"))) {
        return false;
    }
    zone_text_append(text, size,
                     "roundup_power2_divisions:8, so that similar sizes share blocks: ");
    zone_text_percent(text, size, sum->misses, sum->allocation.allocated);
    zone_text_append(text, size, " of the allocations found none");
    return true;
}

static bool keeps_much(const struct zone_report *report, const struct zone_counters *sum,
                       char *text, size_t size)
{
    (void)report;
    uint64_t used = sum->allocated_bytes.peak;
    uint64_t held = sum->reserved_bytes.peak;
    if (held < used + 256 * ZONE_MIB || held - used < used / 4) {
        return false;
    }
    zone_text_append(text, size, "max_cached_mb, if memory is short: the pool held up to ");
    zone_text_bytes(text, size, held - used);
    zone_text_append(text, size, " more than the program used");
    return true;
}

void zone_report_advice(const struct zone_report *report, char *ret_text, size_t size)
{
    static const advice_fn rules[] = {
        device_fault,         pool_off,     out_of_memory, nothing_allocated,
        others_out_of_memory, double_free,  throttled,     waits_as_natively,
        cache_given_back,     sizes_differ, keeps_much,
    };
    struct zone_counters sum;
    zone_report_sum(report, &sum);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        ret_text[0] = '\0';
        if (rules[i](report, &sum, ret_text, size)) {
            return;
        }
    }
    zone_text_append(ret_text, size, "nothing; the defaults suit this program");
}
