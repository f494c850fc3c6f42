/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the process: one wait for what the last frees would have waited for, while the driver
 * still works, and the report, from host counters alone, after everything else has run.
 */
#pragma once

/* Writes the report of this moment where ZONE_REPORT says: 0, or -1 if that is nowhere. Only while
 * libzone serves, by one thread at a time; never calls the driver. */
int zone_exit_report_now(void);

/* Registers the handler that waits. Called at the first allocation, so that it runs before the
 * driver's own handlers. */
void zone_exit_register(void);
