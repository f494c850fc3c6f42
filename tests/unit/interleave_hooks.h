/* SPDX-License-Identifier: Apache-2.0
 *
 * Included before the first line of pool/fence.c when fence_interleave is built: the real code,
 * with the scheduler's lock in place of the spinning one. Between two steps another thread may run.
 */
#pragma once

#include "lock.h"

void interleave_lock(zone_lock_t *lock);
void interleave_unlock(zone_lock_t *lock);

#define zone_lock   interleave_lock
#define zone_unlock interleave_unlock
