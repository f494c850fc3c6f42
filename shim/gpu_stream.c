/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of struct zone_gpu that is about streams of the program. Called inside the program's own
 * call about that stream, so that the handle is good and the stream does not capture; other streams
 * may.
 */
#include "capture.h"
#include "zone_gpu_driver.h"

/* Some calls need a current context even with a stream in hand; with a handle that means a stream
 * of the current context, ctx is that one. */
static int stream_enter(const struct zone_driver *driver, void *ctx)
{
    return ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
}

static void stream_exit(const struct zone_driver *driver)
{
    CUcontext popped;
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
}

/* Not while anything captures: on the legacy stream that would end the capture. */
int zone_gpu_stream_record(void *ctx, void *stream, void *event)
{
    const struct zone_driver *driver = zone_driver();
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = stream_enter(driver, ctx);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuEventRecord)(event, stream);
        stream_exit(driver);
    }
    zone_capture_leave();
    /* A stream that has no such events, as one of a green context may. */
    return rc == CUDA_ERROR_INVALID_HANDLE ? ZONE_GPU_REFUSED : rc;
}

int zone_gpu_stream_wait(void *ctx, void *stream, void *event)
{
    const struct zone_driver *driver = zone_driver();
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = stream_enter(driver, ctx);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuStreamWaitEvent)(stream, event, 0);
        stream_exit(driver);
    }
    zone_capture_leave();
    return rc;
}

int zone_gpu_stream_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes,
                         unsigned char with)
{
    const struct zone_driver *driver = zone_driver();
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = stream_enter(driver, ctx);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemsetD8Async)(addr, with, bytes, stream);
        stream_exit(driver);
    }
    zone_capture_leave();
    return rc;
}

int zone_gpu_stream_free(void *ctx, void *stream, zone_addr_t addr)
{
    const struct zone_driver *driver = zone_driver();
    int rc = stream_enter(driver, ctx);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemFreeAsync)(addr, stream);
        stream_exit(driver);
    }
    return rc;
}
