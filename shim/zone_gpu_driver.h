/* SPDX-License-Identifier: Apache-2.0
 *
 * The device seam on the real driver: the only place that calls it of its own accord. Everything
 * else in the shim calls the driver only on behalf of a call of the program.
 */
#pragma once

#include "driver.h"
#include "gpu.h"
#include "registry.h"

/* The table for the loaded driver; the same for the whole life of the process. Takes no lock. */
const struct zone_gpu *zone_gpu_driver(void);

/* The calling thread's capture mode becomes relaxed, in which the driver allows calls beside a
 * capture; what it was goes back by zone_gpu_restore. */
CUstreamCaptureMode zone_gpu_relax(void);
void zone_gpu_restore(CUstreamCaptureMode mode);

/* Rows of that table (gpu_stream.c). */
int zone_gpu_stream_record(void *ctx, void *stream, void *event);
int zone_gpu_stream_wait(void *ctx, void *stream, void *event);
int zone_gpu_stream_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes,
                         unsigned char with);
int zone_gpu_stream_free(void *ctx, void *stream, zone_addr_t addr);

/* Finds out which context owns the memory at dptr, which was allocated with ctx current (a green
 * context's memory belongs to its primary context). 0 or the driver's code. */
int zone_gpu_owner(CUdeviceptr dptr, struct zone_context_facts *ret);

/* True if dptr is managed memory. */
bool zone_gpu_is_managed(CUdeviceptr dptr);

/* Allocates in ctx, for good, and asks for the handle that other processes open; a capture of the
 * program is not disturbed. 0 or the driver's code. */
int zone_gpu_shared_probe(CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr,
                          CUipcMemHandle *ret_handle);

/* The 16 bytes that tell a device from all others. 0 or the driver's code. */
int zone_gpu_device_uuid(int device, unsigned char *ret_uuid);

/* The name of a device; "" if the driver does not say. */
void zone_gpu_device_name(int device, char *ret_name, size_t size);
