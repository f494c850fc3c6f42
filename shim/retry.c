/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrappers of kind RETRY in hooks.def, all alike.
 */
#include "retry.h"

#include "capture.h"
#include "context.h"
#include "hooks.h"
#include "life.h"
#include "ptrmap.h"
#include "tally.h"

enum { RETRIES = 8, NAP_NS = 1000000, BUSY_NS = 100000000 };

static ZONE_COLD bool retry_rescue(const struct zone_driver *driver, unsigned tries)
{
    CUcontext ctx;
    struct zone_pool *pool = zone_context_pool(driver, &ctx);
    if (tries == 0) {
        ZONE_TALLY(retries);
    }
    const struct zone_gpu *gpu = zone_life_process()->gpu;
    int device = pool ? pool->device : -1; /* a context that has no pool yet: any device */
    size_t cached = zone_registry_cached_at_most(device);
    uint64_t start = gpu->now_ns();
    if (zone_registry_rescue(device, NULL) > 0) {
        return true;
    }
    if (gpu->now_ns() - start > BUSY_NS) {
        return false; /* the context stays busy: another wait would be as long and as vain */
    }
    /* Another thread may have given back what was there, or be about to. */
    if (cached > 0) {
        gpu->sleep_ns(NAP_NS);
    }
    return cached > 0;
}

bool zone_retry_worth(const struct zone_driver *driver, CUresult rc, unsigned *tries)
{
    return ZONE_UNLIKELY(rc == CUDA_ERROR_OUT_OF_MEMORY) && *tries < RETRIES && zone_life_is_on() &&
           !zone_capture_is_active() && retry_rescue(driver, (*tries)++);
}

CUresult zone_retry_done(CUresult rc)
{
    if (rc == CUDA_SUCCESS) {
        ZONE_TALLY(retries_rescued);
    }
    return rc;
}

/* Counts an allocation that went past the pool. It starts the report even in a program that makes
 * no other. got, if not NULL, is device memory that the driver gave. */
static CUresult retry_counted(CUresult rc, _Atomic uint64_t *tally, const CUdeviceptr *got)
{
    if (tally && rc == CUDA_SUCCESS && zone_life_start()) {
        atomic_fetch_add_explicit(tally, 1, memory_order_relaxed);
        if (got) {
            zone_ptrmap_evict(*got);
        }
    }
    return rc;
}

#define RETRY_HOOK(name, tally, got, params, args)                                                 \
    CUresult hook_##name params                                                                    \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        CUresult rc = ZONE_REAL(driver, name) args;                                                \
        unsigned tries = 0;                                                                        \
        while (zone_retry_worth(driver, rc, &tries)) {                                             \
            rc = zone_retry_done(ZONE_REAL(driver, name) args);                                    \
        }                                                                                          \
        return retry_counted(rc, tally, got);                                                      \
    }

#define HOOK_RESOLVE(name, params, args)
#define HOOK_SERVE(name, params, args)
#define HOOK_RETRY(name, params, args) RETRY_HOOK(name, NULL, NULL, params, args)
#define RETRY_COUNTED(name, what, got, params, args)                                               \
    RETRY_HOOK(name, &zone_tally.what, got, params, args)
#define HOOK_RETRY_pitch(name, params, args) RETRY_COUNTED(name, bypass_pitch, dptr, params, args)
#define HOOK_RETRY_host(name, params, args)  RETRY_COUNTED(name, bypass_host, NULL, params, args)
#define HOOK_RETRY_array(name, params, args) RETRY_COUNTED(name, bypass_array, NULL, params, args)
#define HOOK_RETRY_vmm(name, params, args)   RETRY_COUNTED(name, bypass_vmm, NULL, params, args)

#define HOOK(name, kind, params, args) HOOK_##kind(name, params, args)
#define CALL(name, params)
#include "hooks.def"
