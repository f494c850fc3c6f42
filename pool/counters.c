/* SPDX-License-Identifier: Apache-2.0
 *
 * The counter table and what can be done with snapshots: set to zero, sum up, check that they add
 * up. All of it expands from counters.def. No state, no locking, no driver.
 */
#include "counters.h"

#include <string.h>

static const struct zone_counter_info counter_table[] = {
#define ZONE_COUNTER(field, type, in, text)                                                        \
    {.name = #field,                                                                               \
     .kind = ZONE_COUNTER_##type,                                                                  \
     .unit = ZONE_COUNTER_##in,                                                                    \
     .doc = (text),                                                                                \
     .offset = offsetof(struct zone_counters, field)},
#include "counters.def"
};

#define COUNTERS (sizeof(counter_table) / sizeof(counter_table[0]))

static const char *const balance_table[] = {
#define ZONE_COUNTER(...)
#define ZONE_BALANCE(a, b, sum) #a " + " #b " = " #sum,
#include "counters.def"
};

#define BALANCES (sizeof(balance_table) / sizeof(balance_table[0]))

static struct zone_gauge *gauge_of(struct zone_counters *counters,
                                   const struct zone_counter_info *info)
{
    return (void *)((char *)counters + info->offset);
}

static uint64_t *number_of(struct zone_counters *counters, const struct zone_counter_info *info)
{
    return (void *)((char *)counters + info->offset);
}

void zone_counters_init(struct zone_counters *counters)
{
    memset(counters, 0, sizeof(*counters));
    counters->size = sizeof(*counters);
    counters->version = ZONE_COUNTERS_VERSION;
}

static bool has_peak(const struct zone_counter_info *info)
{
    return info->kind == ZONE_COUNTER_GAUGE || info->kind == ZONE_COUNTER_LEVEL;
}

void zone_counters_raise_peaks(struct zone_counters *counters, const struct zone_counters *other)
{
    struct zone_counters from = *other;
    for (size_t i = 0; i < COUNTERS; i++) {
        if (has_peak(&counter_table[i])) {
            struct zone_gauge *to = gauge_of(counters, &counter_table[i]);
            uint64_t peak = gauge_of(&from, &counter_table[i])->peak;
            to->peak = peak > to->peak ? peak : to->peak;
        }
    }
}

void zone_counters_clear_peaks(struct zone_counters *counters)
{
    for (size_t i = 0; i < COUNTERS; i++) {
        if (has_peak(&counter_table[i])) {
            gauge_of(counters, &counter_table[i])->peak = 0;
        }
    }
}

void zone_counters_add(struct zone_counters *sum, const struct zone_counters *other)
{
    struct zone_counters from = *other;
    for (size_t i = 0; i < COUNTERS; i++) {
        const struct zone_counter_info *info = &counter_table[i];
        switch (info->kind) {
        case ZONE_COUNTER_GAUGE:
        case ZONE_COUNTER_LEVEL: {
            struct zone_gauge *to = gauge_of(sum, info);
            const struct zone_gauge *add = gauge_of(&from, info);
            to->current += add->current;
            to->peak += add->peak;
            to->allocated += add->allocated;
            to->freed += add->freed;
            break;
        }
        case ZONE_COUNTER_SUM:
            *number_of(sum, info) += *number_of(&from, info);
            break;
        case ZONE_COUNTER_LAST:
            if (*number_of(&from, info) != 0) {
                *number_of(sum, info) = *number_of(&from, info);
            }
            break;
        }
    }
}

const char *zone_counters_check(const struct zone_counters *counters)
{
    struct zone_counters c = *counters;
    size_t i = 0;
#define ZONE_COUNTER(...)
#define ZONE_BALANCE(a, b, sum)                                                                    \
    if (c.a + c.b != c.sum) {                                                                      \
        return balance_table[i];                                                                   \
    }                                                                                              \
    i++;
#include "counters.def"
    for (i = 0; i < COUNTERS; i++) {
        if (counter_table[i].kind != ZONE_COUNTER_GAUGE) {
            continue;
        }
        const struct zone_gauge *gauge = gauge_of(&c, &counter_table[i]);
        if (gauge->allocated - gauge->freed != gauge->current || gauge->peak < gauge->current) {
            return counter_table[i].name;
        }
    }
    return NULL;
}

const struct zone_counter_info *zone_counters_info(unsigned index)
{
    return index < COUNTERS ? &counter_table[index] : NULL;
}

const char *zone_counters_balance(unsigned index)
{
    return index < BALANCES ? balance_table[index] : NULL;
}
