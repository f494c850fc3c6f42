/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of the program, as far as stream-ordered memory has to know of their end.
 */
#pragma once

#include "driver.h"

/* Before a stream is destroyed: what was freed on it gets its mark. *ret_id is for zone_async_gone
 * once it is, 0 if there is nothing to do. */
void zone_async_leaves(const struct zone_driver *driver, CUstream stream,
                       unsigned long long *ret_id);
void zone_async_gone(unsigned long long id);
