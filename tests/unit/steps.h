/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the instructions of a child process by stepping through it, so that the number is the same
 * on every machine.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* False where stepping is forbidden or would count what a checker adds; says so as TAP. */
bool steps_possible(void);

/* The child: what comes after it is counted. */
void steps_begin(void);

/* The parent: steps through the child until it ends, and adds each instruction to counts[*stage] as
 * the child's stage (0 to stages - 1) then is. False if the child does not exit with 0. */
bool steps_count(pid_t pid, const volatile long *stage, long *counts, long stages);
