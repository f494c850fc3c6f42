/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for the pool's own records. The program may have replaced malloc, or may call us from
 * inside it, so records come from anonymous mappings. What is handed out is zeroed and never
 * returned to the system: a lock-free reader may look at a record that has just been retired.
 * Thread-safe; never calls the driver.
 */
#pragma once

#include "base.h"

/* Zeroed memory, aligned to 64 bytes, that lives as long as the process; NULL when the system has
 * none. */
void *zone_meta_alloc(size_t bytes);

/* Bytes taken from the system so far. */
size_t zone_meta_bytes(void);
