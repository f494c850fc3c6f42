/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program may look up: see include/libzone.h. Each call begins by finding out what libzone
 * is in this process, without changing that: none starts it.
 */
#include "capture.h"
#include "context.h"
#include "exit.h"
#include "life.h"
#include "zone_version.h"

#pragma GCC visibility push(default)
#include "libzone.h"
#pragma GCC visibility pop

/* Not a code of libzone.h: nothing has been allocated yet. */
enum { API_IDLE = 1 };

/* One report at a time, and none while the settings change. */
static pthread_mutex_t api_lock = PTHREAD_MUTEX_INITIALIZER;

static int api_state(void)
{
    if (zone_life_is_on()) {
        return ZONE_OK;
    }
    if (zone_life_is_child()) {
        return ZONE_ERROR_CHILD;
    }
    return zone_life_is_disabled() ? ZONE_ERROR_DISABLED : API_IDLE;
}

/* The device that the calling thread's context is on; the driver may not say after a fault. */
static bool api_current_device(const struct zone_driver *driver, int *ret_device)
{
    CUcontext ctx;
    struct zone_pool *pool = zone_context_pool(driver, &ctx);
    if (pool) {
        *ret_device = pool->device;
        return true;
    }
    return ctx && ZONE_REAL(driver, cuCtxGetDevice)(ret_device) == CUDA_SUCCESS;
}

static bool api_device_exists(const struct zone_driver *driver, int device)
{
    unsigned flags;
    int active;
    return zone_context_knows_device(device) ||
           ZONE_REAL(driver, cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS;
}

/* The state, and which device is meant: set if that is ZONE_OK. */
static int api_enter(int *device)
{
    int state = api_state();
    if (state < 0) {
        return state;
    }
    if (*device < -1 || *device >= ZONE_OPTIONS_DEVICES) {
        return ZONE_ERROR_DEVICE;
    }
    if (state != ZONE_OK) {
        return state;
    }
    const struct zone_driver *driver = zone_driver();
    bool known =
        *device < 0 ? api_current_device(driver, device) : api_device_exists(driver, *device);
    return known ? ZONE_OK : ZONE_ERROR_DEVICE;
}

/* What a call returns: before the first allocation all is well, and 0. */
static int api_result(int state)
{
    return state == API_IDLE ? ZONE_OK : state;
}

/* A signal handler that calls exit() must not meet our locks, see life.h. */
static bool api_begin(void)
{
    bool before = zone_life_inside;
    zone_life_inside = true;
    return before;
}

static void api_end(bool before)
{
    zone_life_inside = before;
}

static int api_count(int device, struct zone_counters *ret)
{
    bool before = api_begin();
    int state = api_enter(&device);
    zone_counters_init(ret);
    if (state == ZONE_OK) {
        zone_registry_look(device, ret);
    }
    api_end(before);
    return api_result(state);
}

static int api_give(int code, uint64_t bytes, size_t *ret_bytes)
{
    if (ret_bytes) {
        *ret_bytes = code == ZONE_OK ? (size_t)bytes : 0;
    }
    return code;
}

int zone_version(void)
{
    return ZONE_VERSION_NUMBER;
}

int zone_memory_allocated(int device, size_t *ret_bytes)
{
    struct zone_counters counters;
    int code = api_count(device, &counters);
    return api_give(code, counters.allocated_bytes.current, ret_bytes);
}

int zone_max_memory_allocated(int device, size_t *ret_bytes)
{
    struct zone_counters counters;
    int code = api_count(device, &counters);
    return api_give(code, counters.allocated_bytes.peak, ret_bytes);
}

int zone_memory_reserved(int device, size_t *ret_bytes)
{
    struct zone_counters counters;
    int code = api_count(device, &counters);
    return api_give(code, counters.reserved_bytes.current, ret_bytes);
}

int zone_reset_peak_memory_stats(int device)
{
    bool before = api_begin();
    int state = api_enter(&device);
    if (state == ZONE_OK) {
        zone_registry_reset_peaks(device);
    }
    api_end(before);
    return api_result(state);
}

struct api_empty {
    int device;
    int fault; /* the driver's code of a lost context */
    size_t bytes;
};

static void api_drain(struct zone_pool *pool, void *arg)
{
    struct api_empty *empty = arg;
    if (pool->device == empty->device) {
        zone_pool_drain(pool);
    }
}

static void api_give_back(struct zone_pool *pool, void *arg)
{
    struct api_empty *empty = arg;
    if (pool->device != empty->device) {
        return;
    }
    int fault = atomic_load_explicit(&pool->fault, memory_order_relaxed);
    if (!fault) {
        empty->bytes += zone_pool_give_back(pool, SIZE_MAX);
        fault = atomic_load_explicit(&pool->fault, memory_order_relaxed);
    }
    empty->fault = fault ? fault : empty->fault;
}

/* A capture must not begin beside the driver's frees, which would end it; it waits for them alone
 * and not for work of the program, which may wait for the capture. */
static int api_empty(struct api_empty *empty)
{
    if (zone_capture_is_unknown() || zone_capture_is_active()) {
        return ZONE_ERROR_CAPTURE;
    }
    zone_registry_each(api_drain, empty);
    if (!zone_capture_enter()) {
        return ZONE_ERROR_CAPTURE;
    }
    zone_registry_each(api_give_back, empty);
    zone_capture_leave();
    return empty->fault;
}

int zone_empty_cache(int device, size_t *ret_bytes)
{
    struct api_empty empty = {.device = device};
    bool before = api_begin();
    int state = api_enter(&empty.device);
    int code = state == ZONE_OK ? api_empty(&empty) : api_result(state);
    api_end(before);
    return api_give(code, empty.bytes, ret_bytes);
}

int zone_set_allocator_settings(const char *settings)
{
    bool before = api_begin();
    int code = api_result(api_state());
    if (code == ZONE_OK) {
        pthread_mutex_lock(&api_lock);
        code = zone_life_adjust(settings) > 0 ? ZONE_ERROR_SETTINGS : ZONE_OK;
        pthread_mutex_unlock(&api_lock);
    }
    api_end(before);
    return code;
}

int zone_report(void)
{
    bool before = api_begin();
    int code = api_state();
    if (code == ZONE_OK) {
        pthread_mutex_lock(&api_lock);
        code = zone_exit_report_now() == 0 ? ZONE_OK : ZONE_ERROR_REPORT;
        pthread_mutex_unlock(&api_lock);
    }
    api_end(before);
    return api_result(code);
}
