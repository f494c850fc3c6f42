/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of capturing streams, kept by wrapping what begins and ends captures. The set is short
 * and its lock is taken only when a capture begins, ends, or is asked about.
 */
#include "capture.h"

#include "async.h"
#include "driver.h"
#include "hooks.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { CAPTURE_STREAMS = 256 };

struct capture {
    CUstream stream;
    CUcontext ctx;
    uintptr_t thread; /* whose, if the stream is the per-thread one; else 0 */
    bool ptsz;
    bool beginning; /* the driver is being asked to begin: not to be checked yet */
};

static _Atomic int capture_active;  /* streams that capture or are about to */
static _Atomic int capture_readers; /* records, questions and waits of ours under way */
static _Atomic bool capture_unknown;
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture captures[CAPTURE_STREAMS]; /* lock */
static unsigned capture_count;                   /* lock */
static _Thread_local char capture_self;

bool zone_capture_enter(void)
{
    atomic_fetch_add(&capture_readers, 1);
    if (ZONE_LIKELY(atomic_load(&capture_active) == 0)) {
        return true;
    }
    atomic_fetch_sub(&capture_readers, 1);
    return false;
}

bool zone_capture_is_begun(void)
{
    return atomic_load_explicit(&capture_active, memory_order_acquire) > 0;
}

void zone_capture_leave(void)
{
    atomic_fetch_sub_explicit(&capture_readers, 1, memory_order_release);
}

bool zone_capture_is_unknown(void)
{
    return atomic_load_explicit(&capture_unknown, memory_order_relaxed);
}

void zone_capture_resolved(const char *name)
{
    if (strncmp(name, "cuStreamBegin", 13) == 0 && strstr(name, "apture")) {
        atomic_store_explicit(&capture_unknown, true, memory_order_relaxed);
    }
}

static void capture_remove_locked(unsigned index)
{
    captures[index] = captures[--capture_count];
    atomic_fetch_sub(&capture_active, 1);
}

/* The handle means one stream for every thread, or, if it is the per-thread one, this thread's. */
static uintptr_t capture_thread(CUstream stream, bool ptsz)
{
    bool own = stream == CU_STREAM_PER_THREAD || (ptsz && stream == NULL);
    return own ? (uintptr_t)&capture_self : 0;
}

static unsigned capture_find_locked(CUstream stream, bool ptsz)
{
    uintptr_t thread = capture_thread(stream, ptsz);
    unsigned i = 0;
    while (i < capture_count &&
           !(captures[i].thread == thread && (thread != 0 || captures[i].stream == stream))) {
        i++;
    }
    return i;
}

/* Asks the driver about entries that this thread can name, so that a capture that ended in a way we
 * did not see cannot stay in the set. Destroyed streams have left it before. */
static void capture_check_locked(const struct zone_driver *driver)
{
    for (unsigned i = capture_count; i > 0; i--) {
        const struct capture *capture = &captures[i - 1];
        CUstreamCaptureStatus status;
        zone_fn_cuStreamIsCapturing ask = capture->ptsz
                                              ? ZONE_REAL(driver, cuStreamIsCapturing_ptsz)
                                              : ZONE_REAL(driver, cuStreamIsCapturing);
        bool mine = capture->thread == 0 || capture->thread == (uintptr_t)&capture_self;
        if (!capture->beginning && mine && ask && ask(capture->stream, &status) == CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_NONE) {
            capture_remove_locked(i - 1);
        }
    }
}

bool zone_capture_is_active(void)
{
    if (ZONE_LIKELY(atomic_load(&capture_active) == 0)) {
        return false;
    }
    pthread_mutex_lock(&capture_lock);
    capture_check_locked(zone_driver());
    bool active = capture_count > 0;
    pthread_mutex_unlock(&capture_lock);
    return active;
}

void zone_capture_forget(const void *ctx)
{
    pthread_mutex_lock(&capture_lock);
    for (unsigned i = capture_count; i > 0; i--) {
        if (!ctx || captures[i - 1].ctx == ctx) {
            capture_remove_locked(i - 1);
        }
    }
    pthread_mutex_unlock(&capture_lock);
}

static CUcontext capture_context(const struct zone_driver *driver, CUstream stream)
{
    CUcontext ctx = NULL;
    bool handle = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    if (!handle || !ZONE_REAL(driver, cuStreamGetCtx) ||
        ZONE_REAL(driver, cuStreamGetCtx)(stream, &ctx) != CUDA_SUCCESS) {
        ZONE_REAL(driver, cuCtxGetCurrent)(&ctx);
    }
    return ctx;
}

/* No record of ours may be under way or start from here on. */
static void capture_add(const struct capture *capture)
{
    pthread_mutex_lock(&capture_lock);
    if (capture_count < CAPTURE_STREAMS) {
        captures[capture_count++] = *capture;
        atomic_fetch_add(&capture_active, 1);
    } else {
        /* More than we can follow: as if the way to begin were unknown. */
        atomic_store_explicit(&capture_unknown, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&capture_lock);
    while (atomic_load(&capture_readers) > 0) {
        sched_yield();
    }
}

static void capture_begin(const struct zone_driver *driver, CUstream stream, bool ptsz)
{
    struct capture capture = {.stream = stream,
                              .ctx = capture_context(driver, stream),
                              .thread = capture_thread(stream, ptsz),
                              .ptsz = ptsz,
                              .beginning = true};
    capture_add(&capture);
}

/* After the driver answered. A begin on a stream that captures already fails and changes nothing,
 * so of two entries for one stream only the new one goes. */
static CUresult capture_began(CUstream stream, bool ptsz, CUresult rc)
{
    pthread_mutex_lock(&capture_lock);
    uintptr_t thread = capture_thread(stream, ptsz);
    for (unsigned i = capture_count; i > 0; i--) {
        struct capture *capture = &captures[i - 1];
        if (capture->beginning && capture->thread == thread && capture->stream == stream) {
            capture->beginning = false;
            if (rc != CUDA_SUCCESS) {
                capture_remove_locked(i - 1);
            }
            break;
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

/* The stream is about to be destroyed: afterwards nobody may ask about it. True if it captures. */
static bool capture_leaves(CUstream stream, struct capture *ret)
{
    bool captures_it = false;
    if (atomic_load(&capture_active) == 0) {
        return false;
    }
    pthread_mutex_lock(&capture_lock);
    unsigned i = capture_find_locked(stream, false);
    if (i < capture_count) {
        captures_it = true;
        *ret = captures[i];
        capture_remove_locked(i);
    }
    pthread_mutex_unlock(&capture_lock);
    return captures_it;
}

/* One wrapper a name: the begin and end calls differ only in their parameters. */
#define CAPTURE_BEGIN(name, is_ptsz, params, args)                                                 \
    CUresult hook_##name params                                                                    \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        capture_begin(driver, stream, is_ptsz);                                                    \
        return capture_began(stream, is_ptsz, ZONE_REAL(driver, name) args);                       \
    }

CAPTURE_BEGIN(cuStreamBeginCapture, false, (CUstream stream), (stream))
CAPTURE_BEGIN(cuStreamBeginCapture_ptsz, true, (CUstream stream), (stream))
CAPTURE_BEGIN(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
CAPTURE_BEGIN(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph, false,
              (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
               size_t count, CUstreamCaptureMode mode),
              (stream, graph, nodes, edges, count, mode))
CAPTURE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, true,
              (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
               size_t count, CUstreamCaptureMode mode),
              (stream, graph, nodes, edges, count, mode))

#define CAPTURE_END(name, is_ptsz)                                                                 \
    CUresult hook_##name(CUstream stream, CUgraph *graph)                                          \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        CUresult rc = ZONE_REAL(driver, name)(stream, graph);                                      \
        capture_check(driver);                                                                     \
        return rc;                                                                                 \
    }

/* An end that failed may have ended the capture (901) or not (wrong thread): the driver knows. */
static void capture_check(const struct zone_driver *driver)
{
    pthread_mutex_lock(&capture_lock);
    capture_check_locked(driver);
    pthread_mutex_unlock(&capture_lock);
}

CAPTURE_END(cuStreamEndCapture, false)
CAPTURE_END(cuStreamEndCapture_ptsz, true)

#define STREAM_DESTROY(name)                                                                       \
    CUresult hook_##name(CUstream stream)                                                          \
    {                                                                                              \
        const struct zone_driver *driver = zone_driver();                                          \
        if (!driver || !ZONE_REAL(driver, name)) {                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
        struct capture capture;                                                                    \
        unsigned long long id;                                                                     \
        zone_async_leaves(driver, stream, &id); /* refused while it captures */                    \
        bool captures_it = capture_leaves(stream, &capture);                                       \
        CUresult rc = ZONE_REAL(driver, name)(stream);                                             \
        if (rc != CUDA_SUCCESS && captures_it) {                                                   \
            capture_add(&capture);                                                                 \
        } else if (rc == CUDA_SUCCESS) {                                                           \
            zone_async_gone(id);                                                                   \
        }                                                                                          \
        return rc;                                                                                 \
    }

STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)
