/* SPDX-License-Identifier: Apache-2.0
 *
 * The first allocation of a context: the driver's, as no pool is there to ask. What it gives tells
 * whose memory it is, and so which pool is to be made.
 */
#pragma once

#include "driver.h"

/* cuMemAlloc_v2 with a context that has no pool yet, or NULL for a thread that has none. */
ZONE_COLD CUresult zone_first_alloc(const struct zone_driver *driver, CUcontext ctx,
                                    CUdeviceptr *dptr, size_t bytes);
