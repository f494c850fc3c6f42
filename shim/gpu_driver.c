/* SPDX-License-Identifier: Apache-2.0
 *
 * struct zone_gpu on the real driver. Calls that a capture forbids are either not made (records and
 * questions, behind zone_capture_enter) or made in relaxed mode, which the driver allows
 * (facts.md: query, alloc and free under cuThreadExchangeStreamCaptureMode).
 */
#include "zone_gpu_driver.h"

#include "capture.h"

#include <time.h>

/* The table exists whenever one of these runs: a hook has been called. */
static const struct zone_driver *gpu_driver(void)
{
    return zone_driver();
}

CUstreamCaptureMode zone_gpu_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    zone_fn_cuThreadExchangeStreamCaptureMode exchange =
        ZONE_REAL(gpu_driver(), cuThreadExchangeStreamCaptureMode);
    if (exchange) {
        exchange(&mode);
    }
    return mode;
}

void zone_gpu_restore(CUstreamCaptureMode mode)
{
    zone_fn_cuThreadExchangeStreamCaptureMode exchange =
        ZONE_REAL(gpu_driver(), cuThreadExchangeStreamCaptureMode);
    if (exchange) {
        exchange(&mode);
    }
}

/* In the program's own capture mode: where natively it fails with 900, it must fail here. */
static int gpu_alloc(zone_addr_t *ret_addr, size_t bytes)
{
    CUdeviceptr dptr = 0;
    int rc = ZONE_REAL(gpu_driver(), cuMemAlloc_v2)(&dptr, bytes);
    if (rc == CUDA_SUCCESS) {
        *ret_addr = dptr;
    }
    return rc;
}

static int gpu_free(zone_addr_t addr)
{
    return ZONE_REAL(gpu_driver(), cuMemFree_v2)(addr);
}

/* In the context whose memory is freed: the caller may have another one current, or none. */
static int gpu_free_nothing(void *ctx)
{
    const struct zone_driver *driver = gpu_driver();
    CUdeviceptr own = 0;
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuMemAlloc_v2)(&own, 1);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemFree_v2)(own);
    } else if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        rc = CUDA_SUCCESS;
    }
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

static int gpu_event_create(void *ctx, void **ret_event)
{
    const struct zone_driver *driver = gpu_driver();
    CUevent event = NULL;
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    *ret_event = event;
    return rc;
}

static int gpu_record(void *ctx, void *event)
{
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = ZONE_REAL(gpu_driver(), cuCtxRecordEvent)(ctx, event);
    zone_capture_leave();
    return rc;
}

/* In relaxed mode, as a capture may begin beside this call: a program whose allocation succeeds
 * must not lose it. */
static int gpu_query(void *event)
{
    if (zone_capture_is_begun()) {
        return ZONE_GPU_REFUSED;
    }
    CUstreamCaptureMode mode = zone_gpu_relax();
    int rc = ZONE_REAL(gpu_driver(), cuEventQuery)(event);
    zone_gpu_restore(mode);
    return rc;
}

static int gpu_wait(void *event)
{
    CUstreamCaptureMode mode = zone_gpu_relax();
    int rc = ZONE_REAL(gpu_driver(), cuEventSynchronize)(event);
    zone_gpu_restore(mode);
    return rc;
}

static int gpu_synchronize(void *ctx)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_GPU_REFUSED;
    if (zone_capture_enter()) {
        /* Held off while we wait: a capture must not begin beside it. */
        rc = ZONE_REAL(driver, cuCtxSynchronize)();
        zone_capture_leave();
    }
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

/* Of the highest priority: a fill goes before kernels that wait for the device, too. Creating a
 * stream may be forbidden while another thread captures. */
static int gpu_fill_open(void *ctx, void **ret_stream)
{
    const struct zone_driver *driver = gpu_driver();
    CUstream stream = NULL;
    CUcontext popped;
    int least = 0;
    int greatest = 0;
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc == CUDA_SUCCESS) {
        if (ZONE_REAL(driver, cuCtxGetStreamPriorityRange)) {
            ZONE_REAL(driver, cuCtxGetStreamPriorityRange)(&least, &greatest);
        }
        rc = ZONE_REAL(driver, cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING,
                                                           greatest);
        ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    }
    zone_capture_leave();
    if (rc == CUDA_SUCCESS) {
        *ret_stream = stream;
    }
    return rc;
}

static int gpu_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext popped;
    if (!zone_capture_enter()) {
        return ZONE_GPU_REFUSED;
    }
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemsetD8Async)(addr, with, bytes, stream);
        ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    }
    zone_capture_leave();
    return rc;
}

/* In relaxed mode, in which a capture allows both. */
static int gpu_fill_mark(void *ctx, void *stream, void **event)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    CUstreamCaptureMode mode = zone_gpu_relax();
    if (!*event) {
        CUevent made = NULL;
        rc = ZONE_REAL(driver, cuEventCreate)(&made, CU_EVENT_DISABLE_TIMING);
        *event = made;
    }
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuEventRecord)(*event, stream);
    }
    zone_gpu_restore(mode);
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

static int gpu_fill_done(void *event)
{
    CUstreamCaptureMode mode = zone_gpu_relax();
    int rc = ZONE_REAL(gpu_driver(), cuEventQuery)(event);
    zone_gpu_restore(mode);
    return rc;
}

static int gpu_mem_info(void *ctx, size_t *ret_free, size_t *ret_total)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuMemGetInfo_v2)(ret_free, ret_total);
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

static uint64_t gpu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void gpu_sleep_ns(uint64_t ns)
{
    struct timespec nap = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                           .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    nanosleep(&nap, NULL);
}

static const struct zone_gpu gpu_with_events = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .free_nothing = gpu_free_nothing,
    .event_create = gpu_event_create,
    .record = gpu_record,
    .query = gpu_query,
    .wait = gpu_wait,
    .synchronize = gpu_synchronize,
    .fill_open = gpu_fill_open,
    .fill = gpu_fill,
    .fill_mark = gpu_fill_mark,
    .fill_done = gpu_fill_done,
    .stream_record = zone_gpu_stream_record,
    .stream_wait = zone_gpu_stream_wait,
    .stream_fill = zone_gpu_stream_fill,
    .stream_free = zone_gpu_stream_free,
    .mem_info = gpu_mem_info,
    .now_ns = gpu_now_ns,
    .sleep_ns = gpu_sleep_ns,
};

static const struct zone_gpu gpu_without_events = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .free_nothing = gpu_free_nothing,
    .event_create = gpu_event_create,
    .query = gpu_query,
    .synchronize = gpu_synchronize,
    .fill_open = gpu_fill_open,
    .fill = gpu_fill,
    .fill_mark = gpu_fill_mark,
    .fill_done = gpu_fill_done,
    .stream_record = zone_gpu_stream_record,
    .stream_wait = zone_gpu_stream_wait,
    .stream_fill = zone_gpu_stream_fill,
    .stream_free = zone_gpu_stream_free,
    .mem_info = gpu_mem_info,
    .now_ns = gpu_now_ns,
    .sleep_ns = gpu_sleep_ns,
};

const struct zone_gpu *zone_gpu_driver(void)
{
    return ZONE_REAL(gpu_driver(), cuCtxRecordEvent) ? &gpu_with_events : &gpu_without_events;
}

/* Is ctx the primary context of the device? Retaining an active one changes nothing but its count.
 */
static bool gpu_is_primary(const struct zone_driver *driver, CUcontext ctx, CUdevice device)
{
    unsigned flags;
    int active = 0;
    CUcontext primary = NULL;
    if (ZONE_REAL(driver, cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
        !active || ZONE_REAL(driver, cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS) {
        return false;
    }
    zone_fn_cuDevicePrimaryCtxRelease_v2 release = ZONE_REAL(driver, cuDevicePrimaryCtxRelease_v2);
    if (!release) {
        release = ZONE_REAL(driver, cuDevicePrimaryCtxRelease);
    }
    release(device);
    return primary == ctx;
}

int zone_gpu_owner(CUdeviceptr dptr, struct zone_context_facts *ret)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext owner = NULL;
    CUcontext popped;
    CUdevice device = 0;
    unsigned long long id = 0;
    int rc = ZONE_REAL(driver, cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, dptr);
    if (rc != CUDA_SUCCESS || !owner) {
        return rc != CUDA_SUCCESS ? rc : CUDA_ERROR_NOT_FOUND;
    }
    rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(owner);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuCtxGetDevice)(&device);
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (ZONE_REAL(driver, cuCtxGetId)) {
        ZONE_REAL(driver, cuCtxGetId)(owner, &id);
    }
    *ret = (struct zone_context_facts){
        .ctx = owner, .id = id, .device = device, .primary = gpu_is_primary(driver, owner, device)};
    return CUDA_SUCCESS;
}

bool zone_gpu_is_managed(CUdeviceptr dptr)
{
    int managed = 0;
    int rc = ZONE_REAL(gpu_driver(), cuPointerGetAttribute)(&managed,
                                                            CU_POINTER_ATTRIBUTE_IS_MANAGED, dptr);
    return rc == CUDA_SUCCESS && managed;
}

int zone_gpu_shared_probe(CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr,
                          CUipcMemHandle *ret_handle)
{
    const struct zone_driver *driver = gpu_driver();
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    CUstreamCaptureMode mode = zone_gpu_relax();
    rc = ZONE_REAL(driver, cuMemAlloc_v2)(ret_ptr, bytes);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuIpcGetMemHandle)(ret_handle, *ret_ptr);
    }
    zone_gpu_restore(mode);
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

void zone_gpu_device_name(int device, char *ret_name, size_t size)
{
    ret_name[0] = '\0';
    ZONE_REAL(gpu_driver(), cuDeviceGetName)(ret_name, (int)size, device);
}

int zone_gpu_device_uuid(int device, unsigned char *ret_uuid)
{
    zone_fn_cuDeviceGetUuid_v2 ask = ZONE_REAL(gpu_driver(), cuDeviceGetUuid_v2);
    return ask ? ask(ret_uuid, device) : CUDA_ERROR_NOT_SUPPORTED;
}
