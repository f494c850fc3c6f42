/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the program other than cuMemAlloc that ran out of memory: cached memory is given back
 * and the call is made once more.
 */
#pragma once

#include "driver.h"

/* Is rc out of memory, and was memory given back? May wait for the GPU for oom_wait_ms at most. */
bool zone_retry_worth(const struct zone_driver *driver, CUresult rc);

/* Counts the outcome of the second try; returns rc. */
CUresult zone_retry_done(CUresult rc);
