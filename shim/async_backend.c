/* SPDX-License-Identifier: Apache-2.0
 *
 * See async_backend.h.
 */
#include "async_backend.h"

#include "capture.h"
#include "context.h"
#include "life.h"
#include "ptrmap.h"
#include "text.h"
#include "zone_gpu_driver.h"

#include <pthread.h>

enum { ASYNC_CONTEXTS = 64, LEAVE_BATCH = 256 };

struct async_context {
    void *ctx;
    CUstream stream;
    CUmemoryPool pool;
    CUdevice device;
};

static pthread_mutex_t async_lock = PTHREAD_MUTEX_INITIALIZER;
static struct async_context contexts[ASYNC_CONTEXTS]; /* lock */
static unsigned context_count;                        /* lock */
static _Atomic bool async_told;

static const struct zone_gpu *async_base(void)
{
    return zone_gpu_driver();
}

/* With ctx current, in the mode that no capture forbids. */
static int async_enter(void *ctx, CUstreamCaptureMode *ret_mode)
{
    int rc = ZONE_REAL(zone_driver(), cuCtxPushCurrent_v2)(ctx);
    if (rc == CUDA_SUCCESS) {
        *ret_mode = zone_gpu_relax();
    }
    return rc;
}

static void async_leave(CUstreamCaptureMode mode)
{
    CUcontext popped;
    zone_gpu_restore(mode);
    ZONE_REAL(zone_driver(), cuCtxPopCurrent_v2)(&popped);
}

static bool async_find_locked(const void *ctx, struct async_context *ret)
{
    for (unsigned i = 0; i < context_count; i++) {
        if (contexts[i].ctx == ctx) {
            *ret = contexts[i];
            return true;
        }
    }
    return false;
}

static bool async_find(const void *ctx, struct async_context *ret)
{
    pthread_mutex_lock(&async_lock);
    bool found = async_find_locked(ctx, ret);
    pthread_mutex_unlock(&async_lock);
    return found;
}

static void async_forget(const void *ctx)
{
    pthread_mutex_lock(&async_lock);
    for (unsigned i = context_count; i > 0; i--) {
        if (contexts[i - 1].ctx == ctx) {
            contexts[i - 1] = contexts[--context_count];
        }
    }
    pthread_mutex_unlock(&async_lock);
}

/* The stream of the thread that was first counts. */
static bool async_keep(struct async_context *made)
{
    struct async_context first;
    pthread_mutex_lock(&async_lock);
    bool there = async_find_locked(made->ctx, &first);
    bool room = there || context_count < ASYNC_CONTEXTS;
    if (!there && room) {
        contexts[context_count++] = *made;
    }
    pthread_mutex_unlock(&async_lock);
    if (there || !room) {
        ZONE_REAL(zone_driver(), cuStreamDestroy_v2)(made->stream);
        *made = there ? first : *made;
    }
    return room;
}

static void async_set_threshold(CUmemoryPool pool, const struct zone_options *options)
{
    cuuint64_t bytes = zone_options_bytes(options->max_cached_mb);
    ZONE_REAL(zone_driver(), cuMemPoolSetAttribute)
    (pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

/* What the driver's pool of the current context's device is told once. A threshold that the program
 * has set stays. */
static int async_prepare(struct async_context *made)
{
    const struct zone_driver *driver = zone_driver();
    cuuint64_t threshold = 0;
    int off = 0;
    if (!ZONE_REAL(driver, cuMemAllocAsync) || !ZONE_REAL(driver, cuDeviceGetDefaultMemPool)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int rc = ZONE_REAL(driver, cuCtxGetDevice)(&made->device);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuDeviceGetDefaultMemPool)(&made->pool, made->device);
    }
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemPoolSetAttribute)(
            made->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
    }
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemPoolGetAttribute)(made->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                                      &threshold);
    }
    if (rc == CUDA_SUCCESS && threshold == 0) {
        async_set_threshold(made->pool, zone_life_process()->options);
    }
    return rc;
}

static void async_tell(int device, int rc)
{
    const struct zone_process *process = zone_life_process();
    char line[ZONE_OPTIONS_LINE] = "";
    zone_text_append(line, sizeof(line),
                     "ZONE_ALLOC_CONF: backend: the driver has no pool for device %d (error %d); "
                     "memory comes from cuMemAlloc",
                     device, rc);
    if (!atomic_exchange(&async_told, true) && process->say) {
        process->say(line);
    }
}

static bool async_open(void *ctx, struct async_context *ret)
{
    const struct zone_driver *driver = zone_driver();
    struct async_context made = {.ctx = ctx, .device = -1};
    CUstreamCaptureMode mode;
    int least = 0;
    int greatest = 0;
    if (async_enter(ctx, &mode) != CUDA_SUCCESS) {
        return false;
    }
    int rc = async_prepare(&made);
    if (rc == CUDA_SUCCESS) {
        ZONE_REAL(driver, cuCtxGetStreamPriorityRange)(&least, &greatest);
        rc = ZONE_REAL(driver, cuStreamCreateWithPriority)(&made.stream, CU_STREAM_NON_BLOCKING,
                                                           greatest);
    }
    bool kept = rc == CUDA_SUCCESS && async_keep(&made);
    async_leave(mode);
    if (rc == CUDA_ERROR_NOT_SUPPORTED || rc == CUDA_ERROR_INVALID_VALUE) {
        async_tell(made.device, rc);
    }
    *ret = made;
    return kept;
}

/* While anything captures the driver's cuMemAlloc answers, in the program's own mode. */
static int async_alloc(zone_addr_t *ret_addr, size_t bytes)
{
    const struct zone_driver *driver = zone_driver();
    struct async_context at;
    CUstreamCaptureMode mode;
    CUcontext current;
    const struct zone_pool *pool = zone_context_pool(driver, &current);
    void *ctx = pool ? pool->ctx : NULL;
    if (!ctx || zone_capture_is_begun() || (!async_find(ctx, &at) && !async_open(ctx, &at))) {
        return async_base()->alloc(ret_addr, bytes);
    }
    CUdeviceptr dptr = 0;
    int rc = async_enter(ctx, &mode);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuMemAllocAsync)(&dptr, bytes, at.stream);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuStreamSynchronize)(at.stream);
        if (rc != CUDA_SUCCESS) {
            ZONE_REAL(driver, cuMemFreeAsync)(dptr, at.stream);
        }
    }
    async_leave(mode);
    if (rc == CUDA_SUCCESS) {
        *ret_addr = dptr;
    }
    return rc;
}

static int async_free_on(const struct async_context *at, zone_addr_t addr)
{
    CUstreamCaptureMode mode;
    int rc = async_enter(at->ctx, &mode);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(zone_driver(), cuMemFreeAsync)(addr, at->stream);
        async_leave(mode);
    }
    return rc;
}

/* Whose memory it is; a block stays in the map until the driver has taken it. */
static void *async_owner(zone_addr_t addr)
{
    const struct zone_block *block = zone_ptrmap_get(addr);
    return block ? __atomic_load_n(&block->pool->ctx, __ATOMIC_SEQ_CST) : NULL;
}

static int async_give(zone_addr_t addr)
{
    struct async_context at;
    return async_find(async_owner(addr), &at) ? async_free_on(&at, addr) : async_base()->free(addr);
}

/* The answer and the wait of a native free, by freeing something else. */
static int async_wait_as_free(void *ctx)
{
    const struct zone_driver *driver = zone_driver();
    CUdeviceptr own = 0;
    CUcontext popped;
    int rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = ZONE_REAL(driver, cuMemAlloc_v2)(&own, 1);
    if (rc == CUDA_SUCCESS) {
        rc = ZONE_REAL(driver, cuMemFree_v2)(own);
    } else if (rc == CUDA_ERROR_OUT_OF_MEMORY && async_base()->synchronize(ctx) == ZONE_GPU_OK) {
        rc = CUDA_SUCCESS;
    }
    ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    return rc;
}

static int async_free(zone_addr_t addr)
{
    CUmemoryPool of = NULL;
    struct async_context at;
    if (ZONE_REAL(zone_driver(), cuPointerGetAttribute)(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                                        addr) != CUDA_SUCCESS ||
        !of || !async_find(async_owner(addr), &at)) {
        return async_base()->free(addr);
    }
    int rc = async_wait_as_free(at.ctx);
    return rc == CUDA_SUCCESS ? async_free_on(&at, addr) : rc;
}

/* The next context of the device from *at on, which moves behind it; its pool is the device's. */
static bool async_next(int device, unsigned *at, struct async_context *ret)
{
    bool found = false;
    pthread_mutex_lock(&async_lock);
    for (; *at < context_count && !found; ++*at) {
        found = contexts[*at].device == device;
        *ret = contexts[*at];
    }
    pthread_mutex_unlock(&async_lock);
    return found;
}

static bool async_find_device(int device, struct async_context *ret)
{
    unsigned at = 0;
    return async_next(device, &at, ret);
}

/* Until the driver knows that the frees have run, it keeps their memory. */
static void async_run_frees(int device)
{
    struct async_context each;
    CUstreamCaptureMode mode;
    for (unsigned at = 0; async_next(device, &at, &each);) {
        if (async_enter(each.ctx, &mode) == CUDA_SUCCESS) {
            ZONE_REAL(zone_driver(), cuStreamSynchronize)(each.stream);
            async_leave(mode);
        }
    }
}

static cuuint64_t async_attribute(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t bytes = 0;
    ZONE_REAL(zone_driver(), cuMemPoolGetAttribute)(pool, attribute, &bytes);
    return bytes;
}

static size_t async_idle(int device)
{
    struct async_context at;
    if (!async_find_device(device, &at)) {
        return 0;
    }
    CUstreamCaptureMode mode = zone_gpu_relax();
    cuuint64_t used = async_attribute(at.pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    cuuint64_t reserved = async_attribute(at.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    zone_gpu_restore(mode);
    return reserved > used ? reserved - used : 0;
}

static size_t async_trim(int device)
{
    struct async_context at;
    if (!async_find_device(device, &at)) {
        return 0;
    }
    async_run_frees(device);
    CUstreamCaptureMode mode = zone_gpu_relax();
    cuuint64_t before = async_attribute(at.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    ZONE_REAL(zone_driver(), cuMemPoolTrimTo)(at.pool, 0);
    cuuint64_t after = async_attribute(at.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    zone_gpu_restore(mode);
    return before > after ? before - after : 0;
}

static int async_mem_info(void *ctx, size_t *ret_free, size_t *ret_total)
{
    struct async_context at;
    int rc = async_base()->mem_info(ctx, ret_free, ret_total);
    if (rc == CUDA_SUCCESS && async_find(ctx, &at)) {
        *ret_free += async_idle(at.device);
    }
    return rc;
}

const struct zone_gpu *zone_async_gpu(void)
{
    static struct zone_gpu table;
    table = *async_base();
    table.alloc = async_alloc;
    table.free = async_free;
    table.give = async_give;
    table.idle = async_idle;
    table.trim = async_trim;
    table.mem_info = async_mem_info;
    return &table;
}

void zone_async_bound(const struct zone_options *options)
{
    struct async_context at;
    for (int device = 0; device < ZONE_OPTIONS_DEVICES; device++) {
        if (async_find_device(device, &at)) {
            CUstreamCaptureMode mode = zone_gpu_relax();
            async_set_threshold(at.pool, options);
            zone_gpu_restore(mode);
        }
    }
}

struct leaving {
    const struct zone_pool *pool;
    zone_addr_t addrs[LEAVE_BATCH];
    unsigned count;
};

/* Blocks that the program holds and those that are cached alike; the map forgets them later. */
static bool leave_visit(struct zone_block *block, void *arg)
{
    struct leaving *leaving = arg;
    if (block->pool == leaving->pool && zone_block_kind(block) == ZONE_BLOCK_DEVICE &&
        leaving->count < LEAVE_BATCH &&
        atomic_exchange(&block->state, ZONE_BLOCK_LEAVING) != ZONE_BLOCK_LEAVING) {
        leaving->addrs[leaving->count++] = block->addr;
    }
    return false;
}

void zone_async_leave(struct zone_pool *pool)
{
    struct leaving leaving = {.pool = pool};
    struct async_context at;
    if (!async_find(pool->leaving, &at)) {
        return;
    }
    if (async_base()->synchronize(at.ctx) == ZONE_GPU_OK) {
        do {
            leaving.count = 0;
            zone_ptrmap_sweep(leave_visit, &leaving);
            for (unsigned i = 0; i < leaving.count; i++) {
                async_free_on(&at, leaving.addrs[i]);
            }
        } while (leaving.count > 0);
        async_trim(at.device);
    }
    async_forget(at.ctx);
}
