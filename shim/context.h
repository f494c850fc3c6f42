/* SPDX-License-Identifier: Apache-2.0
 *
 * From the calling thread's current context to its pool, and back to nothing when a context dies.
 */
#pragma once

#include "driver.h"
#include "registry.h"

#define ZONE_CONTEXT_UUID 16 /* bytes */

/* The current context of the calling thread (*ret_ctx, NULL if it has none) and its pool, NULL if
 * it has none yet. One driver call of about 13 ns; no lock when the thread asked about the same
 * context last. */
struct zone_pool *zone_context_pool(const struct zone_driver *driver, CUcontext *ret_ctx);

/* The pool that serves a context, NULL if it has none yet; its ctx is another one for a green
 * context. */
struct zone_pool *zone_context_find(CUcontext ctx);

/* Makes the pool for the owner of dptr, which the driver has just allocated with ctx current, and
 * remembers it for ctx. NULL if the driver does not say who owns it or there is no room: nothing is
 * pooled then. */
struct zone_pool *zone_context_adopt(CUcontext ctx, CUdeviceptr dptr);

/* Keeps what the report and the explanation of a failure say of a device. */
void zone_context_see_device(int device);

/* Calls visit(ordinal, arg) for every device seen, in order. */
void zone_context_devices(void (*visit)(int device, void *arg), void *arg);

/* Is it one of them? Takes no lock. */
bool zone_context_knows_device(int device);

/* The name of such a device, as the driver gave it. */
const char *zone_context_device_name(int device);

/* Its UUID, NULL if the driver did not say. */
const unsigned char *zone_context_device_uuid(int device);
