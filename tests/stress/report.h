/* SPDX-License-Identifier: Apache-2.0
 *
 * What libzone says at the end of a round must agree with what the program did.
 */
#pragma once

#include "plan.h"
#include "round.h"

/* fd is of the JSON report, empty if there is none. False after a line on stderr. */
bool report_is_right(int fd, const struct round_result *result, const struct plan *plan);
