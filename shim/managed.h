/* SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory: never pooled, but known, because the host may read what kernels write to it after
 * nothing but a cudaFree of something else. While a process holds any, free_order auto waits in
 * every free.
 */
#pragma once

#include "block.h"
#include "driver.h"

/* The program frees this managed block. The driver's code. */
CUresult zone_managed_free(const struct zone_driver *driver, struct zone_block *block);
