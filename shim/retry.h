/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the program other than cuMemAlloc that ran out of memory: cached memory is given back
 * and the call is made again.
 */
#pragma once

#include "driver.h"

/* Is rc out of memory, and may another try do better? Gives memory back, which another thread may
 * take first, so that several tries are made: *tries counts them, from 0. Each may wait for the GPU
 * for oom_wait_ms at most. */
bool zone_retry_worth(const struct zone_driver *driver, CUresult rc, unsigned *tries);

/* Counts the outcome of another try; returns rc. */
CUresult zone_retry_done(CUresult rc);
