/* SPDX-License-Identifier: Apache-2.0
 *
 * Says why an allocation failed: two lines on the standard error of the start, and the same in the
 * report at exit.
 */
#pragma once

#include "driver.h"
#include "oom.h"

/* For zone_process.explain. Any thread, no lock of the pool held; errno stays. A thread that comes
 * while another one explains says nothing. */
void zone_explain(const struct zone_oom *oom);

/* The same, if it is due, for an allocation of req_bytes in ctx, current on this thread, that
 * failed before ctx had a pool. Counts it. */
void zone_explain_first(const struct zone_driver *driver, CUcontext ctx, size_t req_bytes);

/* The failure that was explained last, NULL if none was. Takes no lock. */
const struct zone_oom *zone_explain_last(void);
