/* SPDX-License-Identifier: Apache-2.0
 *
 * See limit.h.
 */
#include "limit.h"

/* Two atomic words a device. The limit is stored as what is missing to SIZE_MAX, so that a device
 * that nobody has set up has none. */
struct limit {
    _Atomic size_t below; /* SIZE_MAX - limit */
    _Atomic size_t used;
};

static struct limit limits[ZONE_OPTIONS_DEVICES];

static struct limit *limit_of(int device)
{
    return device >= 0 && device < ZONE_OPTIONS_DEVICES ? &limits[device] : NULL;
}

void zone_limit_set(const struct zone_options *options, int device, size_t total)
{
    struct limit *limit = limit_of(device);
    if (!limit) {
        return;
    }
    size_t bytes = SIZE_MAX;
    if (options->backend != ZONE_BACKEND_OFF) {
        size_t fraction = options->per_process_memory_fraction < ZONE_OPTIONS_ONE
                              ? zone_options_share(options->per_process_memory_fraction, total)
                              : SIZE_MAX;
        size_t reserved = zone_options_bytes(options->max_reserved_mb.mb[device]);
        bytes = fraction < reserved ? fraction : reserved;
    }
    atomic_store(&limit->below, SIZE_MAX - bytes);
}

bool zone_limit_is_given(const struct zone_options *options)
{
    bool given = options->per_process_memory_fraction < ZONE_OPTIONS_ONE;
    for (unsigned i = 0; i < ZONE_OPTIONS_DEVICES; i++) {
        given |= options->max_reserved_mb.mb[i] != ZONE_OPTIONS_UNLIMITED;
    }
    return given && options->backend != ZONE_BACKEND_OFF;
}

size_t zone_limit_bytes(int device)
{
    struct limit *limit = limit_of(device);
    return SIZE_MAX - (limit ? atomic_load(&limit->below) : 0);
}

size_t zone_limit_used(int device)
{
    struct limit *limit = limit_of(device);
    return limit ? atomic_load(&limit->used) : 0;
}

bool zone_limit_has_room(int device, size_t bytes)
{
    size_t used = zone_limit_used(device);
    size_t most = zone_limit_bytes(device);
    return used <= most && bytes <= most - used;
}

bool zone_limit_reserve(int device, size_t bytes)
{
    struct limit *limit = limit_of(device);
    if (!limit) {
        return true;
    }
    size_t most = zone_limit_bytes(device);
    size_t used = atomic_load(&limit->used);
    do {
        if (used > most || bytes > most - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&limit->used, &used, used + bytes));
    return true;
}

void zone_limit_count(int device, size_t bytes)
{
    struct limit *limit = limit_of(device);
    if (limit) {
        atomic_fetch_add(&limit->used, bytes);
    }
}

void zone_limit_return(int device, size_t bytes)
{
    struct limit *limit = limit_of(device);
    if (limit) {
        atomic_fetch_sub(&limit->used, bytes);
    }
}
