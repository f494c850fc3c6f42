/* SPDX-License-Identifier: Apache-2.0
 *
 * Device address -> block, by exact address of its start, or by any below. A radix tree over the 2
 * MiB pages of the address space: look-ups take no lock and cost a few dependent loads; changes
 * take one lock, and happen only when the driver allocates or takes back. One map for all contexts:
 * an address belongs to one block. Never calls the driver.
 */
#pragma once

#include "block.h"

/* The block that starts at addr, or NULL. The block may be retired at any moment by another thread.
 */
struct zone_block *zone_ptrmap_get(zone_addr_t addr);

/* The block with the highest start from base to addr, or NULL. Costs a few steps
 * and one for each page of 2 MiB between, under the map's lock. */
struct zone_block *zone_ptrmap_below(zone_addr_t addr, zone_addr_t base);

/* Enters the block under its address, replacing what is there: the driver has just given out that
 * address, so an older entry is stale and its block GONE (unless LEAVING: its owner is at it).
 * False when the host has no memory or the address is not below 2^48; then nothing changed. */
bool zone_ptrmap_set(struct zone_block *block);

/* A new record, entered: what the caller wants to know of it is in like (addr, bytes, req_bytes,
 * pool, kind, state, segment, fresh). NULL when the host has no memory, as above. */
struct zone_block *zone_ptrmap_enter(const struct zone_block *like);

/* Takes the block out if it is still what its address leads to. */
void zone_ptrmap_remove(struct zone_block *block);

/* The driver has given addr to somebody whom the map does not know: what is there is stale, as in
 * zone_ptrmap_set. A thread that has just given the address back may not have removed it yet. */
void zone_ptrmap_evict(zone_addr_t addr);

/* Calls visit for every block, holding the map's lock: visit must not call back into the map. A
 * block for which visit returns true is taken out. */
void zone_ptrmap_sweep(bool (*visit)(struct zone_block *block, void *arg), void *arg);
