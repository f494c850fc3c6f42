/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: which pool serves which, and their end. A green context's memory belongs to its primary
 * context (facts.md), so several contexts may share a pool; who owns memory is read off the first
 * allocation. The lock guards the short list of such aliases and is never held across a driver
 * call.
 */
#include "context.h"

#include "async_backend.h"
#include "capture.h"
#include "hooks.h"
#include "life.h"
#include "zone_gpu_driver.h"

#include <string.h>

enum { CONTEXT_ALIASES = 256, DEVICE_NAME = 64 };

/* What the driver said of a device when it was first used. */
struct device {
    char name[DEVICE_NAME];
    unsigned char uuid[ZONE_CONTEXT_UUID];
    bool has_uuid;
};

struct alias {
    CUcontext ctx;
    struct zone_pool *pool;
};

/* What a thread found out last; stale once the generation moves on. */
struct last_context {
    CUcontext ctx;
    struct zone_pool *pool;
    unsigned generation;
};

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static struct alias aliases[CONTEXT_ALIASES]; /* lock */
static unsigned alias_count;                  /* lock */
static _Atomic unsigned generation = 1;
static _Thread_local struct last_context last;
static struct device devices[ZONE_OPTIONS_DEVICES]; /* const once seen */
static _Atomic uint32_t devices_seen;

static struct zone_pool *alias_find(CUcontext ctx)
{
    struct zone_pool *pool = NULL;
    pthread_mutex_lock(&context_lock);
    for (unsigned i = 0; i < alias_count && !pool; i++) {
        pool = aliases[i].ctx == ctx ? aliases[i].pool : NULL;
    }
    pthread_mutex_unlock(&context_lock);
    return pool;
}

struct zone_pool *zone_context_find(CUcontext ctx)
{
    struct zone_pool *pool = ctx ? zone_registry_find(ctx) : NULL;
    return pool || !ctx ? pool : alias_find(ctx);
}

struct zone_pool *zone_context_pool(const struct zone_driver *driver, CUcontext *ret_ctx)
{
    CUcontext ctx = NULL;
    unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
    if (ZONE_REAL(driver, cuCtxGetCurrent)(&ctx) != CUDA_SUCCESS) {
        ctx = NULL;
    }
    *ret_ctx = ctx;
    if (ZONE_LIKELY(ctx && last.ctx == ctx && last.generation == now)) {
        return last.pool;
    }
    struct zone_pool *pool = zone_context_find(ctx);
    if (pool) {
        last = (struct last_context){.ctx = ctx, .pool = pool, .generation = now};
    }
    return pool;
}

bool zone_context_knows_device(int device)
{
    return device >= 0 && device < ZONE_OPTIONS_DEVICES &&
           atomic_load(&devices_seen) & 1u << device;
}

/* Two threads may come here for the same one. */
void zone_context_see_device(int device)
{
    struct device seen = {.name = ""};
    if (device < 0 || device >= ZONE_OPTIONS_DEVICES || zone_context_knows_device(device)) {
        return;
    }
    zone_gpu_device_name(device, seen.name, sizeof(seen.name));
    seen.has_uuid = zone_gpu_device_uuid(device, seen.uuid) == CUDA_SUCCESS;
    pthread_mutex_lock(&context_lock);
    if (!(atomic_load(&devices_seen) & 1u << device)) {
        devices[device] = seen;
        atomic_fetch_or(&devices_seen, 1u << device);
    }
    pthread_mutex_unlock(&context_lock);
}

struct zone_pool *zone_context_adopt(CUcontext ctx, CUdeviceptr dptr)
{
    struct zone_context_facts facts;
    if (zone_gpu_owner(dptr, &facts) != CUDA_SUCCESS || facts.device < 0 ||
        facts.device >= ZONE_OPTIONS_DEVICES) {
        return NULL;
    }
    struct zone_pool *pool = zone_registry_make(zone_life_process(), &facts);
    if (pool) {
        zone_context_see_device(facts.device);
        if (facts.ctx != (void *)ctx) {
            pthread_mutex_lock(&context_lock);
            if (alias_count < CONTEXT_ALIASES) {
                aliases[alias_count++] = (struct alias){.ctx = ctx, .pool = pool};
            }
            pthread_mutex_unlock(&context_lock);
        }
    }
    return pool;
}

void zone_context_devices(void (*visit)(int device, void *arg), void *arg)
{
    uint32_t seen = atomic_load(&devices_seen);
    for (int device = 0; device < ZONE_OPTIONS_DEVICES; device++) {
        if (seen & 1u << device) {
            visit(device, arg);
        }
    }
}

const char *zone_context_device_name(int device)
{
    return devices[device].name;
}

const unsigned char *zone_context_device_uuid(int device)
{
    return zone_context_knows_device(device) && devices[device].has_uuid ? devices[device].uuid
                                                                         : NULL;
}

/* Green contexts are told apart by handles that are used again after their end: all are forgotten
 * and learnt anew. */
static void context_forget_aliases(void)
{
    pthread_mutex_lock(&context_lock);
    alias_count = 0;
    pthread_mutex_unlock(&context_lock);
    atomic_fetch_add(&generation, 1);
}

static void context_drop(struct zone_pool *pool)
{
    zone_capture_forget(pool->ctx);
    zone_registry_drop(pool);
    context_forget_aliases();
}

static void context_gone(CUcontext ctx)
{
    struct zone_pool *pool = zone_life_is_on() ? zone_registry_find(ctx) : NULL;
    if (pool) {
        context_drop(pool);
    } else {
        zone_capture_forget(ctx);
        context_forget_aliases();
    }
}

static void drop_primary(struct zone_pool *pool, void *arg)
{
    if (pool->primary && pool->device == *(const int *)arg) {
        context_drop(pool);
    }
}

/* Before and after a call that destroys the context of a pool, which may be NULL. The handle, and
 * the addresses of its memory, are another context's as soon as the driver says so. */
static void context_leaves(struct zone_pool *pool, CUcontext ctx)
{
    if (pool) {
        zone_registry_hide(pool);
        zone_async_leave(pool);
    }
    if (ctx) {
        zone_capture_forget(ctx);
    }
    context_forget_aliases();
}

static CUresult context_left(struct zone_pool *pool, CUresult rc)
{
    if (pool && rc == CUDA_SUCCESS) {
        zone_registry_drop(pool);
    } else if (pool) {
        zone_registry_show(pool);
    }
    return rc;
}

struct primary_search {
    CUdevice device;
    struct zone_pool *pool;
};

static void find_primary(struct zone_pool *pool, void *arg)
{
    struct primary_search *search = arg;
    if (pool->primary && pool->device == search->device) {
        search->pool = pool;
    }
}

static struct zone_pool *context_primary_pool(CUdevice device)
{
    struct primary_search search = {.device = device};
    if (zone_life_is_on()) {
        zone_registry_each(find_primary, &search);
    }
    return search.pool;
}

/* A release destroys the context only with the last reference. */
static CUresult context_primary_released(const struct zone_driver *driver, CUdevice device,
                                         CUresult rc)
{
    unsigned flags;
    int active = 1;
    if (rc == CUDA_SUCCESS && zone_life_is_on() &&
        ZONE_REAL(driver, cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS &&
        !active) {
        zone_registry_each(drop_primary, &device);
    }
    return rc;
}

#define CONTEXT_HOOK(name, params, args, after)                                                    \
    CUresult hook_##name params                                                                    \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        CUresult rc = ZONE_REAL(driver, name) args;                                                \
        after;                                                                                     \
        return rc;                                                                                 \
    }

#define RESET_HOOK(name)                                                                           \
    CUresult hook_##name(CUdevice device)                                                          \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        struct zone_pool *pool = context_primary_pool(device);                                     \
        if (pool) {                                                                                \
            context_leaves(pool, pool->ctx);                                                       \
        }                                                                                          \
        return context_left(pool, ZONE_REAL(driver, name)(device));                                \
    }

#define DESTROY_HOOK(name)                                                                         \
    CUresult hook_##name(CUcontext ctx)                                                            \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        struct zone_pool *pool = zone_life_is_on() ? zone_registry_find(ctx) : NULL;               \
        context_leaves(pool, ctx);                                                                 \
        return context_left(pool, ZONE_REAL(driver, name)(ctx));                                   \
    }

RESET_HOOK(cuDevicePrimaryCtxReset)
RESET_HOOK(cuDevicePrimaryCtxReset_v2)
DESTROY_HOOK(cuCtxDestroy)
DESTROY_HOOK(cuCtxDestroy_v2)
CONTEXT_HOOK(cuDevicePrimaryCtxRelease, (CUdevice device), (device),
             context_primary_released(driver, device, rc))
CONTEXT_HOOK(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device),
             context_primary_released(driver, device, rc))
CONTEXT_HOOK(
    cuGreenCtxDestroy, (CUgreenCtx ctx), (ctx),
    if (rc == CUDA_SUCCESS) { context_forget_aliases(); })

/* Detaching the last use destroys; whether it was, the context's number tells. */
CONTEXT_HOOK(
    cuCtxDetach, (CUcontext ctx), (ctx), unsigned long long id = 0;
    if (rc == CUDA_SUCCESS && (!ZONE_REAL(driver, cuCtxGetId) ||
                               ZONE_REAL(driver, cuCtxGetId)(ctx, &id) != CUDA_SUCCESS)) {
        context_gone(ctx);
    })
