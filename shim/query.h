/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the block that an address lies in, as the driver sees it.
 */
#pragma once

#include "block.h"
#include "driver.h"

/* Where an address lies. */
enum zone_query_place {
    ZONE_QUERY_FOREIGN, /* not in a block of the pool */
    ZONE_QUERY_LIVE,    /* in the bytes that the program asked for */
    ZONE_QUERY_FREE,    /* in a block, but not in what the program holds: natively unknown memory */
};

/* Looks the address up; *ret_block is set unless FOREIGN. At most one driver call of 0.1 µs, none
 * for the first address of a block. */
enum zone_query_place zone_query_find(const struct zone_driver *driver, CUdeviceptr ptr,
                                      struct zone_block **ret_block);
