/* SPDX-License-Identifier: Apache-2.0
 *
 * What the frees of memory.c and async.c have in common.
 */
#pragma once

#include "block.h"
#include "cuda_abi.h"

/* What a second free of a block returns: as natively, INVALID_VALUE, or the fault that the context
 * has. Counts it. */
ZONE_COLD CUresult zone_memory_double_free(const struct zone_block *block);
