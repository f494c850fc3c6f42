/* SPDX-License-Identifier: Apache-2.0
 *
 * Text into fixed buffers, for messages and reports: always terminated, cut with "..." when it does
 * not fit, the same in every locale (no floating point). No state, no locking, no driver.
 */
#pragma once

#include "base.h"

/* snprintf behind what `text` already holds. */
ZONE_PRINTF(3, 4) void zone_text_append(char *text, size_t size, const char *format, ...);

/* Appends 512 B, 1.50 KiB, 12.3 MiB, 456 GiB. */
void zone_text_bytes(char *text, size_t size, uint64_t bytes);
/* Appends 850 ns, 12.3 us, 4.56 ms, 45.6 s, 1234 s. */
void zone_text_ns(char *text, size_t size, uint64_t ns);
/* Appends part / whole with one decimal and " %", rounded down: 100.0 % means all. */
void zone_text_percent(char *text, size_t size, uint64_t part, uint64_t whole);
