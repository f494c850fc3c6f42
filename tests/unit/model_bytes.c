/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model's memory holds, as ranges: each has one byte throughout or is unknown (the program
 * may have written). Who holds which range is the tests' word: model_handed_out and
 * model_given_back.
 */
#include "model_gpu_state.h"

#include <check.h>

enum { RANGES_MAX = 1 << 13 };

struct range {
    zone_addr_t addr, end;
    int with; /* the byte; MODEL_UNKNOWN */
    bool held;
};

static struct range ranges[RANGES_MAX];
static unsigned range_count;
static bool tracking;

void model_track_bytes(bool on)
{
    tracking = on;
    range_count = 0;
}

static void range_add(zone_addr_t addr, zone_addr_t end, int with, bool held)
{
    ck_assert_uint_lt(range_count, RANGES_MAX);
    ranges[range_count++] = (struct range){addr, end, with, held};
}

/* Takes [addr, end) out of all ranges. */
static void range_clear(zone_addr_t addr, zone_addr_t end)
{
    for (unsigned i = range_count; i > 0; i--) {
        struct range range = ranges[i - 1];
        if (range.end <= addr || range.addr >= end) {
            continue;
        }
        ranges[i - 1] = ranges[--range_count];
        if (range.addr < addr) {
            range_add(range.addr, addr, range.with, range.held);
        }
        if (range.end > end) {
            range_add(end, range.end, range.with, range.held);
        }
    }
}

static void range_set(zone_addr_t addr, size_t bytes, int with, bool held)
{
    range_clear(addr, addr + bytes);
    range_add(addr, addr + bytes, with, held);
}

void model_bytes_new(zone_addr_t addr, size_t bytes)
{
    if (!tracking) {
        return;
    }
    /* The driver clears what is large, and leaves small memory as it is (facts.md). */
    range_set(addr, bytes, bytes >= 2 * ZONE_MIB ? 0 : MODEL_UNKNOWN, false);
}

void model_bytes_gone(zone_addr_t addr, size_t bytes)
{
    if (tracking) {
        range_clear(addr, addr + bytes);
    }
}

void model_bytes_fill(zone_addr_t addr, size_t bytes, int with)
{
    ck_assert(tracking);
    for (unsigned i = 0; i < range_count; i++) {
        bool apart = ranges[i].end <= addr || ranges[i].addr >= addr + bytes;
        ck_assert_msg(apart || !ranges[i].held, "fills memory that the program holds");
    }
    range_set(addr, bytes, with, false);
}

void model_expect(zone_addr_t addr, size_t bytes, int with)
{
    size_t found = 0;
    for (unsigned i = 0; i < range_count; i++) {
        const struct range *range = &ranges[i];
        zone_addr_t from = range->addr > addr ? range->addr : addr;
        zone_addr_t to = range->end < addr + bytes ? range->end : addr + bytes;
        if (from >= to) {
            continue;
        }
        ck_assert_msg(range->with == with, "handed out with old bytes");
        found += to - from;
    }
    ck_assert_uint_eq(found, bytes);
}

void model_program_holds(zone_addr_t addr, size_t bytes)
{
    if (tracking) {
        range_set(addr, bytes, MODEL_UNKNOWN, true);
    }
}

void model_given_back(zone_addr_t addr, size_t bytes)
{
    if (tracking) {
        range_set(addr, bytes, MODEL_UNKNOWN, false);
    }
}
