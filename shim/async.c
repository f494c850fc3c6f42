/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemAllocAsync and cuMemFreeAsync: what cudaMallocAsync and cudaFreeAsync of every CUDA runtime
 * end in. A stream is known by the number that the driver gives it, which is never used twice; the
 * per-thread stream of each thread has its own. Passed on: what happens while anything captures (on
 * a capturing stream the calls make graph nodes), pools that are not the device's default one,
 * devices whose default pool is not served (mempool.h), green contexts, and drivers before 12.0,
 * which give no numbers.
 */
#include "async.h"

#include "capture.h"
#include "context.h"
#include "first.h"
#include "hooks.h"
#include "life.h"
#include "memory.h"
#include "mempool.h"
#include "ptrmap.h"
#include "retry.h"
#include "stream.h"
#include "tally.h"

/* The driver's functions of one kind of handle: NULL means the legacy stream, or the thread's own.
 */
struct async_calls {
    zone_fn_cuMemFreeAsync free;
    zone_fn_cuStreamGetId id;
    zone_fn_cuStreamIsCapturing capturing;
    CUstream null;
};

#define ASYNC_CALLS(driver, suffix, null_stream)                                                   \
    {                                                                                              \
        ZONE_REAL(driver, cuMemFreeAsync##suffix), ZONE_REAL(driver, cuStreamGetId##suffix),       \
            ZONE_REAL(driver, cuStreamIsCapturing##suffix), null_stream                            \
    }

/* A pool handle that is none: natively an error, which the driver reports. */
#define ASYNC_NO_POOL ((CUmemoryPool)(uintptr_t)1)

/* The streams that a thread used last, by number. */
enum { LAST_STREAMS = 8 };

static _Thread_local struct zone_stream *last_streams[LAST_STREAMS];
static _Atomic bool async_used; /* some stream has lists */

/* The pool keeps nothing just now. */
static inline bool async_is_past_pool(void)
{
    return zone_life_process()->options->backend == ZONE_BACKEND_OFF || zone_capture_is_unknown() ||
           (zone_capture_is_begun() && zone_capture_is_active());
}

/* It serves and keeps nothing in stream order. */
static inline bool async_passes(void)
{
    return zone_life_process()->options->backend != ZONE_BACKEND_NATIVE || async_is_past_pool();
}

static inline CUstream async_handle(const struct async_calls *calls, CUstream stream)
{
    return stream ? stream : calls->null;
}

static inline struct zone_stream *async_last(unsigned long long id)
{
    struct zone_stream *stream = last_streams[id % LAST_STREAMS];
    bool same = stream && atomic_load_explicit(&stream->id, memory_order_acquire) == id;
    return same ? stream : NULL;
}

/* The stream's own context: the current one for the handles that mean a stream of it. */
static CUresult async_context(const struct zone_driver *driver, CUstream handle, CUcontext *ret)
{
    bool made = (uintptr_t)handle > (uintptr_t)CU_STREAM_PER_THREAD;
    *ret = NULL;
    return made && ZONE_REAL(driver, cuStreamGetCtx)
               ? ZONE_REAL(driver, cuStreamGetCtx)(handle, ret)
               : ZONE_REAL(driver, cuCtxGetCurrent)(ret);
}

static struct zone_stream *async_find(struct zone_pool *pool, unsigned long long id, CUcontext ctx)
{
    struct zone_stream *stream = zone_stream_find(pool, id, ctx);
    if (stream) {
        last_streams[id % LAST_STREAMS] = stream;
        atomic_store_explicit(&async_used, true, memory_order_relaxed);
    }
    return stream;
}

/* What a stream asks for. */
struct request {
    const struct async_calls *calls;
    CUstream stream;
    CUmemoryPool from; /* NULL: the device's current pool */
    size_t bytes;
    CUdeviceptr *dptr;
};

static inline bool async_is_served(const struct request *request, int device)
{
    return zone_mempool_serves(device) &&
           (!request->from || request->from == zone_mempool_default(device));
}

/* Not served from a list: grows, in the stream's context. */
static ZONE_COLD CUresult async_grow(const struct zone_driver *driver, struct zone_stream *stream,
                                     const struct request *request)
{
    zone_addr_t addr = 0;
    CUcontext current = NULL;
    CUcontext popped;
    ZONE_REAL(driver, cuCtxGetCurrent)(&current);
    bool other = current != (CUcontext)stream->ctx;
    CUresult rc = other ? ZONE_REAL(driver, cuCtxPushCurrent_v2)(stream->ctx) : CUDA_SUCCESS;
    if (rc == CUDA_SUCCESS) {
        rc = zone_stream_alloc(stream, async_handle(request->calls, request->stream),
                               request->bytes, &addr);
        if (other) {
            ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
        }
    }
    if (rc == CUDA_SUCCESS) {
        *request->dptr = addr;
    }
    return rc;
}

/* The first allocation of the stream's context, which becomes current. Afterwards it has a pool,
 * and what was allocated is that pool's. */
static CUresult async_first(const struct zone_driver *driver, CUcontext ctx,
                            const struct request *request)
{
    CUcontext popped;
    CUresult rc = ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx);
    if (rc == CUDA_SUCCESS) {
        rc = zone_first_alloc(driver, ctx, request->dptr, request->bytes);
        ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    }
    return rc;
}

static int async_device(const struct zone_driver *driver, CUcontext ctx)
{
    CUcontext popped;
    CUdevice device = -1;
    if (ZONE_REAL(driver, cuCtxPushCurrent_v2)(ctx) == CUDA_SUCCESS) {
        if (ZONE_REAL(driver, cuCtxGetDevice)(&device) != CUDA_SUCCESS) {
            device = -1;
        }
        ZONE_REAL(driver, cuCtxPopCurrent_v2)(&popped);
    }
    return device >= 0 && device < ZONE_OPTIONS_DEVICES ? device : -1;
}

/* A stream that this thread did not use last. True if it is served: *ret_rc is the answer. */
static ZONE_COLD bool async_alloc_unknown(const struct zone_driver *driver,
                                          const struct request *request, unsigned long long id,
                                          CUresult *ret_rc)
{
    CUcontext ctx;
    CUstream handle = async_handle(request->calls, request->stream);
    if (async_context(driver, handle, &ctx) != CUDA_SUCCESS || !ctx) {
        return false;
    }
    int device = async_device(driver, ctx);
    if (device >= 0) {
        zone_mempool_look(driver, device);
    }
    if (device < 0 || !async_is_served(request, device)) {
        return false;
    }
    struct zone_pool *pool = zone_context_find(ctx);
    if (pool && pool->ctx != (void *)ctx) {
        return false; /* a green context */
    }
    bool first = !pool;
    if (first) {
        *ret_rc = async_first(driver, ctx, request);
        pool = *ret_rc == CUDA_SUCCESS ? zone_context_find(ctx) : NULL;
        if (!pool || pool->ctx != (void *)ctx) {
            return true;
        }
    }
    struct zone_stream *stream = async_find(pool, id, ctx);
    if (first) {
        if (stream) {
            zone_stream_adopt(pool, *request->dptr);
        }
        return true;
    }
    if (!stream) {
        return false;
    }
    zone_addr_t addr;
    *ret_rc = CUDA_SUCCESS;
    if (zone_stream_serve(stream, request->bytes, &addr)) {
        *request->dptr = addr;
    } else {
        *ret_rc = async_grow(driver, stream, request);
    }
    return true;
}

/* True if the pool answers; else the driver has to. */
static inline bool async_alloc(const struct zone_driver *driver, const struct request *request,
                               CUresult *ret_rc)
{
    unsigned long long id;
    if (ZONE_UNLIKELY(!request->dptr || request->bytes == 0 || !request->calls->id ||
                      !zone_life_start() || async_passes() ||
                      request->calls->id(request->stream, &id) != CUDA_SUCCESS)) {
        return false;
    }
    struct zone_stream *stream = async_last(id);
    if (ZONE_UNLIKELY(!stream || stream->foreign)) {
        return async_alloc_unknown(driver, request, id, ret_rc);
    }
    if (ZONE_UNLIKELY(!async_is_served(request, stream->pool->device))) {
        /* Nobody may have looked yet: a free made the lists. */
        zone_mempool_look(driver, stream->pool->device);
        if (!async_is_served(request, stream->pool->device)) {
            return false;
        }
    }
    zone_addr_t addr;
    *ret_rc = CUDA_SUCCESS;
    if (ZONE_LIKELY(zone_stream_serve(stream, request->bytes, &addr))) {
        *request->dptr = addr;
    } else {
        *ret_rc = async_grow(driver, stream, request);
    }
    return true;
}

/* What the driver gave is not the pool's, and counted. */
static CUresult async_passed(CUresult rc, const CUdeviceptr *dptr)
{
    if (rc == CUDA_SUCCESS && zone_life_start()) {
        ZONE_TALLY(bypass_async);
        zone_ptrmap_evict(*dptr);
    }
    return rc;
}

#define ASYNC_ALLOC(name, suffix, pool, null_stream, params, args)                                 \
    CUresult hook_##name##suffix params                                                            \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (ZONE_UNLIKELY(!driver || !ZONE_REAL(driver, name##suffix))) {                          \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        const struct async_calls calls = ASYNC_CALLS(driver, suffix, null_stream);                 \
        const struct request request = {                                                           \
            .calls = &calls, .stream = stream, .from = (pool), .bytes = bytes, .dptr = dptr};      \
        CUresult rc;                                                                               \
        bool before = zone_life_inside;                                                            \
        zone_life_inside = true;                                                                   \
        bool done = async_alloc(driver, &request, &rc);                                            \
        zone_life_inside = before;                                                                 \
        if (ZONE_LIKELY(done)) {                                                                   \
            return rc;                                                                             \
        }                                                                                          \
        unsigned tries = 0;                                                                        \
        rc = ZONE_REAL(driver, name##suffix) args;                                                 \
        while (zone_retry_worth(driver, rc, &tries)) {                                             \
            rc = zone_retry_done(ZONE_REAL(driver, name##suffix) args);                            \
        }                                                                                          \
        return async_passed(rc, dptr);                                                             \
    }

ASYNC_ALLOC(cuMemAllocAsync, , NULL, CU_STREAM_LEGACY,
            (CUdeviceptr * dptr, size_t bytes, CUstream stream), (dptr, bytes, stream))
ASYNC_ALLOC(cuMemAllocAsync, _ptsz, NULL, CU_STREAM_PER_THREAD,
            (CUdeviceptr * dptr, size_t bytes, CUstream stream), (dptr, bytes, stream))
ASYNC_ALLOC(cuMemAllocFromPoolAsync, , pool ? pool : ASYNC_NO_POOL, CU_STREAM_LEGACY,
            (CUdeviceptr * dptr, size_t bytes, CUmemoryPool pool, CUstream stream),
            (dptr, bytes, pool, stream))
ASYNC_ALLOC(cuMemAllocFromPoolAsync, _ptsz, pool ? pool : ASYNC_NO_POOL, CU_STREAM_PER_THREAD,
            (CUdeviceptr * dptr, size_t bytes, CUmemoryPool pool, CUstream stream),
            (dptr, bytes, pool, stream))

/* Where the pool's lists are not for: captures, a pool that is off, shared blocks, lost contexts,
 * streams without numbers. On a capturing stream a free would be a graph node: the driver's matter,
 * as is a stream that is none. */
static ZONE_COLD CUresult async_free_odd(const struct async_calls *calls, struct zone_block *block,
                                         CUstream stream)
{
    CUdeviceptr dptr = block->addr;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult rc = calls->capturing ? calls->capturing(stream, &status) : CUDA_SUCCESS;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!zone_block_claim(block)) {
        return zone_memory_double_free(block);
    }
    if (status == CU_STREAM_CAPTURE_STATUS_NONE && !async_is_past_pool() &&
        !atomic_load_explicit(&block->tainted, memory_order_relaxed)) {
        return zone_pool_free(block, ZONE_FREE_BY_STREAM);
    }
    if (block->segment && status == CU_STREAM_CAPTURE_STATUS_NONE) {
        return zone_pool_free_cut(block, ZONE_FREE_BY_STREAM);
    }
    if (block->segment) {
        /* The driver refuses to make a node for memory that no graph allocated. It is asked about
         * an address where nothing starts, so that it can never take the segment. */
        zone_block_unclaim(block);
        return calls->free(dptr + 1, stream);
    }
    uint64_t start = zone_pool_leave(block);
    return zone_pool_left(block, calls->free(dptr, stream), start);
}

/* The stream's lists for blocks of this pool. NULL for a stream of a green context, too: there the
 * primary context's events do. */
static ZONE_COLD struct zone_stream *async_stream_of(const struct zone_driver *driver,
                                                     struct zone_pool *pool, CUstream handle,
                                                     unsigned long long id)
{
    CUcontext ctx;
    if (async_context(driver, handle, &ctx) != CUDA_SUCCESS || !ctx ||
        (zone_context_find(ctx) == pool && pool->ctx != (void *)ctx)) {
        return NULL;
    }
    return async_find(pool, id, ctx);
}

static inline CUresult async_free(const struct zone_driver *driver, CUdeviceptr dptr,
                                  CUstream stream, const struct async_calls *calls)
{
    struct zone_block *block = zone_life_is_on() ? zone_ptrmap_get(dptr) : NULL;
    if (ZONE_UNLIKELY(!block || zone_block_kind(block) != ZONE_BLOCK_DEVICE)) {
        return calls->free(dptr, stream);
    }
    if (ZONE_UNLIKELY(async_passes() || !calls->id ||
                      atomic_load_explicit(&block->tainted, memory_order_relaxed) ||
                      atomic_load_explicit(&block->pool->fault, memory_order_relaxed))) {
        return async_free_odd(calls, block, stream);
    }
    unsigned long long id;
    CUresult rc = calls->id(stream, &id);
    if (ZONE_UNLIKELY(rc != CUDA_SUCCESS)) {
        return rc;
    }
    CUstream handle = async_handle(calls, stream);
    struct zone_stream *lists = async_last(id);
    if (ZONE_UNLIKELY(!lists || lists->pool != block->pool)) {
        lists = async_stream_of(driver, block->pool, handle, id);
        if (!lists) {
            return async_free_odd(calls, block, stream);
        }
    }
    if (ZONE_UNLIKELY(!zone_block_claim(block))) {
        return zone_memory_double_free(block);
    }
    return zone_stream_free(lists, handle, block);
}

#define ASYNC_FREE(suffix, null_stream)                                                            \
    CUresult hook_cuMemFreeAsync##suffix(CUdeviceptr dptr, CUstream stream)                        \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (ZONE_UNLIKELY(!driver || !ZONE_REAL(driver, cuMemFreeAsync##suffix))) {                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        const struct async_calls calls = ASYNC_CALLS(driver, suffix, null_stream);                 \
        bool before = zone_life_inside;                                                            \
        zone_life_inside = true;                                                                   \
        CUresult rc = async_free(driver, dptr, stream, &calls);                                    \
        zone_life_inside = before;                                                                 \
        return rc;                                                                                 \
    }

ASYNC_FREE(, CU_STREAM_LEGACY)
ASYNC_FREE(_ptsz, CU_STREAM_PER_THREAD)

struct leaving {
    unsigned long long id;
    CUstream stream; /* NULL: it is gone */
};

static void leaving_visit(struct zone_pool *pool, void *arg)
{
    const struct leaving *leaving = arg;
    struct zone_stream *stream = zone_stream_look(pool, leaving->id);
    if (stream && leaving->stream) {
        zone_stream_leave(stream, leaving->stream);
    } else if (stream) {
        zone_stream_gone(stream);
    }
}

void zone_async_leaves(const struct zone_driver *driver, CUstream stream,
                       unsigned long long *ret_id)
{
    struct leaving leaving = {.stream = stream};
    *ret_id = 0;
    if (stream && atomic_load_explicit(&async_used, memory_order_relaxed) && zone_life_is_on() &&
        ZONE_REAL(driver, cuStreamGetId)(stream, &leaving.id) == CUDA_SUCCESS) {
        *ret_id = leaving.id;
        zone_registry_each(leaving_visit, &leaving);
    }
}

void zone_async_gone(unsigned long long id)
{
    struct leaving leaving = {.id = id};
    if (id != 0) {
        zone_registry_each(leaving_visit, &leaving);
    }
}
