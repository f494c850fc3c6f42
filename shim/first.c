/* SPDX-License-Identifier: Apache-2.0
 *
 * See first.h. The limits hold from the first byte on, so the device is known before its pool is.
 */
#include "first.h"

#include "capture.h"
#include "context.h"
#include "explain.h"
#include "initial.h"
#include "life.h"
#include "ptrmap.h"
#include "retry.h"
#include "tally.h"

struct first {
    const struct zone_driver *driver;
    CUcontext ctx;
    int device; /* -1: the driver does not say; counted once the pool knows */
};

/* The driver allocates and no pool learns of it. */
static CUresult first_foreign(const struct zone_driver *driver, CUdeviceptr *dptr, size_t bytes)
{
    CUresult rc = ZONE_REAL(driver, cuMemAlloc_v2)(dptr, bytes);
    if (rc == CUDA_SUCCESS && zone_life_is_on()) {
        zone_ptrmap_evict(*dptr);
    }
    return rc;
}

/* Sets the limits of the context's device up. */
static int first_device(const struct zone_driver *driver, CUcontext ctx)
{
    const struct zone_process *process = zone_life_process();
    CUdevice device;
    size_t free_bytes, total;
    if (ZONE_REAL(driver, cuCtxGetDevice)(&device) != CUDA_SUCCESS) {
        return -1;
    }
    if (zone_limit_is_given(process->options) &&
        process->gpu->mem_info(ctx, &free_bytes, &total) == ZONE_GPU_OK) {
        zone_limit_set(process->options, device, total);
    }
    return device;
}

/* Asks the driver for bytes that count as counted ones. */
static CUresult first_ask(const struct first *first, size_t bytes, size_t counted,
                          CUdeviceptr *dptr)
{
    if (!zone_limit_reserve(first->device, counted)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult rc = ZONE_REAL(first->driver, cuMemAlloc_v2)(dptr, bytes);
    if (rc != CUDA_SUCCESS) {
        zone_limit_return(first->device, counted);
    }
    return rc;
}

/* The pool of whoever owns what was just allocated, counted there. NULL: the driver's alone. */
static struct zone_pool *first_pool(const struct first *first, CUdeviceptr dptr, size_t counted)
{
    struct zone_pool *pool = zone_context_adopt(first->ctx, dptr);
    if (!pool || pool->device != first->device) {
        zone_limit_return(first->device, counted);
        zone_limit_count(pool ? pool->device : -1, counted);
    }
    return pool;
}

/* The device's initial pool is the first that is allocated, so that it serves the program's first
 * request. NULL: it has one already, gets none, or is full. */
static struct zone_pool *first_initial(const struct first *first)
{
    const struct zone_process *process = zone_life_process();
    size_t bytes = zone_initial_claim(process->options, first->device);
    CUdeviceptr dptr;
    if (bytes == 0) {
        return NULL;
    }
    CUresult rc = first_ask(first, bytes, bytes, &dptr);
    struct zone_pool *pool = NULL;
    if (rc == CUDA_SUCCESS) {
        pool = first_pool(first, dptr, bytes);
        if (!pool) {
            ZONE_REAL(first->driver, cuMemFree_v2)(dptr);
        }
    } else if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        zone_initial_refused(process, first->device);
    }
    if (pool) {
        zone_fill_fresh(pool, dptr, bytes);
        zone_pool_add_initial(pool, dptr, bytes);
    } else if (rc != CUDA_ERROR_OUT_OF_MEMORY) {
        zone_initial_unclaim(first->device);
    }
    return pool;
}

static CUresult first_block(const struct first *first, CUdeviceptr *dptr, size_t bytes)
{
    struct zone_process *process = zone_life_process();
    size_t class = zone_options_roundup(process->options, bytes);
    bool exact = process->options->backend == ZONE_BACKEND_OFF || class == 0;
    class = exact ? class : zone_pool_whole_size(process->options, class);
    size_t asked = exact ? bytes : class;
    uint64_t start = process->gpu->now_ns();
    CUresult rc = first_ask(first, asked, class, dptr);
    unsigned tries = 0;
    while (rc == CUDA_ERROR_OUT_OF_MEMORY && zone_registry_may_fit(first->device, class) &&
           zone_retry_worth(first->driver, rc, &tries)) {
        /* Another context's pool may hold what this one lacks. */
        rc = zone_retry_done(first_ask(first, asked, class, dptr));
    }
    if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        zone_explain_first(first->driver, first->ctx, bytes);
    }
    struct zone_pool *pool =
        rc == CUDA_SUCCESS && class > 0 ? first_pool(first, *dptr, class) : NULL;
    if (pool) {
        zone_pool_adopt(pool, *dptr, class, bytes, process->gpu->now_ns() - start);
        if (!exact) {
            zone_fill_fresh(pool, *dptr, class);
        }
    }
    return rc;
}

static bool first_is_limited(void)
{
    return zone_life_start() && zone_limit_is_given(zone_life_process()->options);
}

/* What was allocated during a capture is freed for real, as by zone_pool_alloc_captured. */
static void first_keep_out(CUdeviceptr dptr)
{
    struct zone_block *block = zone_ptrmap_get(dptr);
    if (block) {
        atomic_store_explicit(&block->tainted, 1, memory_order_relaxed);
    }
}

CUresult zone_first_alloc(const struct zone_driver *driver, CUcontext ctx, CUdeviceptr *dptr,
                          size_t bytes)
{
    if (!ctx) {
        ZONE_TALLY(bypass_no_context);
        return first_foreign(driver, dptr, bytes);
    }
    bool capture = zone_capture_is_active();
    if (capture) {
        ZONE_TALLY(bypass_capture);
    }
    if (capture && !first_is_limited()) {
        /* Making a pool asks the driver things that a capture may not allow. */
        return first_foreign(driver, dptr, bytes);
    }
    if (!zone_life_start()) {
        return ZONE_REAL(driver, cuMemAlloc_v2)(dptr, bytes);
    }
    const struct first first = {.driver = driver, .ctx = ctx, .device = first_device(driver, ctx)};
    struct zone_pool *pool = capture ? NULL : first_initial(&first);
    if (!pool) {
        CUresult rc = first_block(&first, dptr, bytes);
        if (capture && rc == CUDA_SUCCESS) {
            first_keep_out(*dptr);
        }
        return rc;
    }
    zone_addr_t addr;
    int rc = zone_pool_alloc(pool, bytes, &addr);
    if (rc == CUDA_SUCCESS) {
        *dptr = addr;
    }
    return rc;
}
