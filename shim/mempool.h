/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's default pool of each device, in whose place the pool serves stream-ordered memory.
 * Not served is a device whose current pool is another one, or whose default pool was opened to
 * other devices: the driver maps such memory for them, which it does not do with the pool's.
 */
#pragma once

#include "driver.h"

/* The default pool of a device; NULL while it is not known. Takes no lock. */
CUmemoryPool zone_mempool_default(int device);

/* Does the pool serve stream-ordered memory of the device? One load. False until somebody looked.
 */
bool zone_mempool_serves(int device);

/* Asks the driver about a device: cheap if that was done before. */
void zone_mempool_look(const struct zone_driver *driver, int device);

/* Does the default pool's attribute allow one stream to wait for another? */
bool zone_mempool_may_depend(int device);
