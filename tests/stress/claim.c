/* SPDX-License-Identifier: Apache-2.0
 *
 * See claim.h. Ownership is a bit for each 512 bytes, in regions of 64 MiB of addresses that are
 * added to an open-addressed table as they turn up.
 */
#include "claim.h"

#include <stdlib.h>

enum { GRANULE_BITS = 9, REGION_BITS = 26, REGIONS = 4096 };
enum { WORDS = 1 << (REGION_BITS - GRANULE_BITS - 6) };

struct region {
    uint64_t number;
    _Atomic uint64_t words[WORDS];
};

static struct region *_Atomic regions[REGIONS];
static size_t limit_chunks;
static _Atomic size_t held_chunks;
static _Atomic uint64_t disturbances;
static _Atomic int disturbing;

size_t claim_chunks(enum kind kind, size_t bytes)
{
    if (kind == MANAGED) {
        return 0;
    }
    return bytes < MIB ? 1 : (bytes + 2 * MIB - 1) / (2 * MIB);
}

void claim_init(size_t limit)
{
    limit_chunks = limit;
}

size_t claim_limit(void)
{
    return limit_chunks;
}

size_t claim_held(void)
{
    return atomic_load(&held_chunks);
}

struct claim claim_take(size_t chunks)
{
    struct claim claim = {.chunks = chunks};
    /* The order matters: what others do from here on shows in the number. */
    claim.disturbed = atomic_load(&disturbances);
    size_t held = atomic_fetch_add(&held_chunks, chunks) + chunks;
    claim.excused = held > limit_chunks || atomic_load(&disturbing) > 0;
    if (held > limit_chunks) {
        atomic_fetch_add(&disturbances, 1);
    }
    return claim;
}

void claim_give(size_t chunks)
{
    atomic_fetch_sub(&held_chunks, chunks);
}

void claim_disturb(int by)
{
    atomic_fetch_add(&disturbances, 1);
    atomic_fetch_add(&disturbing, by);
}

bool claim_may_fail(const struct claim *claim)
{
    return claim->excused || atomic_load(&disturbances) != claim->disturbed;
}

static struct region *region_of(uint64_t number)
{
    for (size_t i = number * UINT64_C(0x9E3779B97F4A7C15) >> 52;; i++) {
        struct region *_Atomic *slot = &regions[i % REGIONS];
        struct region *region = atomic_load(slot);
        if (!region) {
            struct region *mine = calloc(1, sizeof *mine);
            REQUIRE(mine, "no host memory");
            mine->number = number;
            if (atomic_compare_exchange_strong(slot, &region, mine)) {
                return mine;
            }
            free(mine);
        }
        if (region->number == number) {
            return region;
        }
    }
}

/* Sets or clears the bits of a range; returns whether all of them were as expected before. */
static bool change(CUdeviceptr ptr, size_t bytes, bool owned)
{
    uint64_t bit = ptr >> GRANULE_BITS;
    uint64_t end = (ptr + bytes + ((1u << GRANULE_BITS) - 1)) >> GRANULE_BITS;
    bool expected = true;
    while (bit < end) {
        struct region *region = region_of(bit >> (REGION_BITS - GRANULE_BITS));
        uint64_t count = 64 - bit % 64;
        count = count < end - bit ? count : end - bit;
        uint64_t mask = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << bit % 64;
        _Atomic uint64_t *word = &region->words[bit / 64 % WORDS];
        uint64_t before = owned ? atomic_fetch_or(word, mask) : atomic_fetch_and(word, ~mask);
        expected = expected && (before & mask) == (owned ? 0 : mask);
        bit += count;
    }
    return expected;
}

void claim_own(CUdeviceptr ptr, size_t bytes)
{
    if (!change(ptr, bytes, true)) {
        stress_fail_at(__FILE__, __LINE__, ptr, "%#llx (%zu bytes) was given to two owners",
                       (unsigned long long)ptr, bytes);
    }
}

void claim_disown(CUdeviceptr ptr, size_t bytes)
{
    if (!change(ptr, bytes, false)) {
        stress_fail_at(__FILE__, __LINE__, ptr, "%#llx (%zu bytes) was not owned",
                       (unsigned long long)ptr, bytes);
    }
}
