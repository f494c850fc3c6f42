/* SPDX-License-Identifier: Apache-2.0
 *
 * IPC handles of blocks that the driver does not know as allocations of their own.
 */
#pragma once

#include "block.h"
#include "driver.h"

/* A handle that opens to this block's bytes, in any process, as the native one would. The block is
 * cut from a segment and lives. CUDA_ERROR_NOT_SUPPORTED where this driver's handles are not
 * understood, or the block starts 4 GiB or more into its segment; else the driver's code. */
CUresult zone_ipc_get(const struct zone_driver *driver, CUipcMemHandle *handle,
                      const struct zone_block *block);
