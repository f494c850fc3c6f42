/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemAlloc and cuMemFree: what cudaMalloc and cudaFree of every CUDA runtime end in. A call that
 * is not the pool's goes to the driver with its arguments as they came: zero sizes, NULL, foreign
 * pointers, threads without a context, captures, lost contexts. A freed block freed again never
 * does: the driver would take the memory from under the pool.
 */
#include "capture.h"
#include "context.h"
#include "first.h"
#include "hooks.h"
#include "life.h"
#include "managed.h"
#include "memory.h"
#include "ptrmap.h"
#include "tally.h"

struct zone_tally zone_tally;

/* Neither captures nor backend:off let a free into the pool. */
static bool memory_passes(void)
{
    return zone_life_process()->options->backend == ZONE_BACKEND_OFF || zone_capture_is_unknown() ||
           zone_capture_is_active();
}

/* Counted, not pooled. */
static ZONE_COLD CUresult memory_past_pool(struct zone_pool *pool, CUdeviceptr *dptr, size_t bytes)
{
    zone_addr_t addr;
    bool capture =
        zone_life_process()->options->backend != ZONE_BACKEND_OFF && !zone_capture_is_unknown();
    if (capture) {
        ZONE_TALLY(bypass_capture);
    }
    int rc = capture ? zone_pool_alloc_captured(pool, bytes, &addr)
                     : zone_pool_alloc_past(pool, bytes, &addr);
    if (rc == CUDA_SUCCESS) {
        *dptr = addr;
    }
    return rc;
}

static inline CUresult memory_alloc(const struct zone_driver *driver, CUdeviceptr *dptr,
                                    size_t bytes)
{
    if (ZONE_UNLIKELY(!dptr || bytes == 0 || zone_life_is_child())) {
        return ZONE_REAL(driver, cuMemAlloc_v2)(dptr, bytes);
    }
    CUcontext ctx;
    struct zone_pool *pool = zone_context_pool(driver, &ctx);
    if (ZONE_UNLIKELY(!pool)) {
        return zone_first_alloc(driver, ctx, dptr, bytes);
    }
    if (ZONE_UNLIKELY(memory_passes())) {
        return memory_past_pool(pool, dptr, bytes);
    }
    zone_addr_t addr;
    int rc = zone_pool_alloc(pool, bytes, &addr);
    if (ZONE_LIKELY(rc == CUDA_SUCCESS)) {
        *dptr = addr;
    }
    return rc;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    const struct zone_driver *driver = zone_driver();
    if (ZONE_UNLIKELY(!driver)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    bool before = zone_life_inside; /* true in a signal handler that allocates */
    zone_life_inside = true;
    CUresult rc = memory_alloc(driver, dptr, bytes);
    zone_life_inside = before;
    return rc;
}

CUresult zone_memory_double_free(const struct zone_block *block)
{
    int fault = atomic_load_explicit(&block->pool->fault, memory_order_relaxed);
    ZONE_TALLY(double_frees);
    return fault ? fault : CUDA_ERROR_INVALID_VALUE;
}

static inline CUresult memory_free(const struct zone_driver *driver, CUdeviceptr dptr)
{
    struct zone_block *block = zone_life_is_on() ? zone_ptrmap_get(dptr) : NULL;
    if (ZONE_UNLIKELY(!block)) {
        if (dptr != 0 && zone_life_is_on()) {
            ZONE_TALLY(bypass_foreign_free);
        }
        return ZONE_REAL(driver, cuMemFree_v2)(dptr);
    }
    if (ZONE_UNLIKELY(zone_block_kind(block) == ZONE_BLOCK_MANAGED)) {
        return zone_managed_free(driver, block);
    }
    if (ZONE_UNLIKELY(!zone_block_claim(block))) {
        return zone_memory_double_free(block);
    }
    if (ZONE_UNLIKELY(memory_passes())) {
        return zone_pool_free_for_real(block);
    }
    return zone_pool_free(block, ZONE_FREE_BY_FREE);
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr)
{
    const struct zone_driver *driver = zone_driver();
    if (ZONE_UNLIKELY(!driver)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    bool before = zone_life_inside;
    zone_life_inside = true;
    CUresult rc = memory_free(driver, dptr);
    zone_life_inside = before;
    return rc;
}
