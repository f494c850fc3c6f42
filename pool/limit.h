/* SPDX-License-Identifier: Apache-2.0
 *
 * How much the process may hold of each device: the smaller one of per_process_memory_fraction and
 * max_reserved_mb. All that the pools of a device hold from the driver is counted together, and
 * counted before the driver is asked, so that two threads can never pass the limit together.
 *
 * Invariant: what is counted on a device is the reserved bytes of its pools' ledgers (ledger.h) and
 * what threads have reserved here and are asking the driver for just now. Units: bytes. Devices are
 * ordinals; one that is not below ZONE_OPTIONS_DEVICES has no limit and no count. Locking: none,
 * any thread. Never calls the driver.
 */
#pragma once

#include "options.h"

#include <stdatomic.h>

/* Works out the limits of a device from the options and its total bytes: when the process first
 * learns how large it is, and again with the same result for each of its contexts. */
void zone_limit_set(const struct zone_options *options, int device, size_t total);

/* True if any device may have a limit. */
bool zone_limit_is_given(const struct zone_options *options);

/* The most that the process may hold of the device; SIZE_MAX: no limit, or not known yet. */
size_t zone_limit_bytes(int device);

/* What it holds, and is asking for. */
size_t zone_limit_used(int device);

/* True if so much could be reserved now. */
bool zone_limit_has_room(int device, size_t bytes);

/* Counts bytes that the driver is about to be asked for; false, and nothing is counted, if they
 * would pass the limit: then the driver must not be asked. */
bool zone_limit_reserve(int device, size_t bytes);

/* Counts what the driver has given already, whatever the limit. */
void zone_limit_count(int device, size_t bytes);

/* The driver refused them, or has them back. */
void zone_limit_return(int device, size_t bytes);
