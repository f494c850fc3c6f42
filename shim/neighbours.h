/* SPDX-License-Identifier: Apache-2.0
 *
 * Who else is on a device, asked of NVML. Loaded late, with the first failure that is explained,
 * and never needed: where it is missing or says no, the others are unknown. Takes the loader's
 * locks, may take milliseconds; one thread at a time.
 */
#pragma once

#include "oom.h"

/* Fills in the other processes on the device of a failure. */
void zone_neighbours_look(struct zone_oom *oom);
