/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the program ever looked a driver function up through libzone. No lock, never calls the
 * driver.
 */
#pragma once

#include "base.h"

bool zone_resolve_was_asked(void);
