/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h.
 */
#include "place.h"

#include <string.h>

/* The headers name only the newest forms, which older drivers lack. */
CUresult stress_ctx_create(CUcontext *ctx, unsigned flags,
                           CUdevice device) __asm__("cuCtxCreate_v2");

static pthread_rwlock_t world;
static CUcontext home;

static const char *const kernel_names[KERNELS] = {
    [FILL] = "fill", [CHECK] = "check",   [ADD] = "add",           [COPY] = "copy",
    [SPIN] = "spin", [SIGNAL] = "signal", [WAITFLAG] = "waitflag", [FAULT] = "fault",
};

static void world_init(void)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    /* Who wants to be alone must not wait for ever. */
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&world, &attr);
    pthread_rwlockattr_destroy(&attr);
}

void world_enter(void)
{
    pthread_rwlock_rdlock(&world);
}

void world_stop(void)
{
    pthread_rwlock_wrlock(&world);
}

void world_leave(void)
{
    pthread_rwlock_unlock(&world);
}

void place_use(const struct place *place)
{
    MUST(cuCtxSetCurrent(place ? place->ctx : NULL));
}

struct place *place_any(struct rng *rng)
{
    return &stress.places[rng_below(rng, 3) == 0];
}

/* A created context is pushed; threads here set the one that they need. */
static CUresult context_new(CUcontext *ret_ctx)
{
    CUcontext popped;
    CUresult rc = stress_ctx_create(ret_ctx, 0, 0);
    return rc == CUDA_SUCCESS ? cuCtxPopCurrent(&popped) : rc;
}

void place_begin(struct place *place)
{
    if (place->index == 0) {
        MUST(cuDevicePrimaryCtxRetain(&place->ctx, 0));
    } else {
        MUST(context_new(&place->ctx));
    }
    place->life++;
    place_use(place);
    MUST(cuModuleLoadData(&place->module, victim_ptx));
    for (unsigned i = 0; i < KERNELS; i++) {
        MUST(cuModuleGetFunction(&place->kernels[i], place->module, kernel_names[i]));
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        unsigned flags = i < 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
        MUST(cuStreamCreateWithPriority(&place->streams[i], flags, -(int)(i % 3)));
    }
}

void place_end(struct place *place, uint32_t how)
{
    if (how % 3 == 0) {
        place_use(place);
        MUST(cuCtxSynchronize());
    }
    if (place->index == 1) {
        MUST(cuCtxDestroy(place->ctx));
    } else if (how % 2 == 0) {
        MUST(cuDevicePrimaryCtxReset(0));
    } else {
        /* The last reference ends it. */
        MUST(cuDevicePrimaryCtxRelease(0));
    }
    place->ctx = NULL;
}

bool places_start(void)
{
    world_init();
    CUresult rc = cuInit(0);
    if (rc == CUDA_ERROR_NO_DEVICE) {
        return false;
    }
    MUST(rc);
    MUST(context_new(&home));
    for (unsigned i = 0; i < PLACES; i++) {
        stress.places[i].index = i;
        place_begin(&stress.places[i]);
    }
    return true;
}

uint32_t *words_new(size_t count)
{
    void *words;
    MUST(cuCtxSetCurrent(home));
    MUST(cuMemHostAlloc(&words, count * sizeof(uint32_t),
                        CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    memset(words, 0, count * sizeof(uint32_t));
    return words;
}

struct lane lane_any(const struct place *place, struct rng *rng)
{
    struct lane lane = {0};
    switch (rng_below(rng, 12)) {
    case 0:
        lane.stream = NULL;
        break;
    case 1:
        lane.stream = CU_STREAM_LEGACY;
        break;
    case 2:
        lane.stream = CU_STREAM_PER_THREAD;
        break;
    case 3:
        MUST(cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING));
        lane.passing = true;
        break;
    case 4:
    case 5:
        lane.stream = place->streams[rng_below(rng, 2)];
        break;
    default:
        lane.stream = place->streams[2 + rng_below(rng, STREAMS - 2)];
        break;
    }
    return lane;
}

void lane_done(struct lane lane)
{
    if (lane.passing) {
        MUST(cuStreamDestroy(lane.stream));
    }
}

static void launch(const struct place *place, enum kernel kernel, CUstream stream, size_t words,
                   void **params)
{
    size_t blocks = words / 1024 + 1;
    blocks = blocks > 264 ? 264 : blocks;
    MUST(cuLaunchKernel(place->kernels[kernel], (unsigned)blocks, 1, 1, words > 0 ? 256 : 1, 1, 1,
                        0, stream, params, NULL));
}

void submit_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                 uint32_t value)
{
    uint64_t count = bytes / sizeof(uint32_t);
    void *params[] = {&ptr, &count, &value};
    launch(place, FILL, stream, count, params);
}

void submit_add(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                uint32_t value)
{
    uint64_t count = bytes / sizeof(uint32_t);
    void *params[] = {&ptr, &count, &value};
    launch(place, ADD, stream, count, params);
}

void submit_copy(const struct place *place, CUstream stream, CUdeviceptr dst, CUdeviceptr src,
                 size_t bytes)
{
    uint64_t count = bytes / sizeof(uint32_t);
    void *params[] = {&dst, &src, &count};
    launch(place, COPY, stream, count, params);
}

void submit_check(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes,
                  uint32_t value, uint32_t *bad)
{
    uint64_t count = bytes / sizeof(uint32_t);
    CUdeviceptr answer = words_ptr(bad);
    void *params[] = {&ptr, &count, &value, &answer};
    launch(place, CHECK, stream, count, params);
}

void submit_spin(const struct place *place, CUstream stream, uint64_t us)
{
    uint64_t ns = us * 1000;
    void *params[] = {&ns};
    launch(place, SPIN, stream, 0, params);
}

void submit_fault(const struct place *place, CUstream stream)
{
    launch(place, FAULT, stream, 0, NULL);
}

void submit_signal(const struct place *place, CUstream stream, uint32_t *flag)
{
    CUdeviceptr ptr = words_ptr(flag);
    void *params[] = {&ptr};
    launch(place, SIGNAL, stream, 0, params);
}

void submit_waitflag(const struct place *place, CUstream stream, uint32_t *flag, uint32_t *how,
                     uint64_t limit_us)
{
    CUdeviceptr ptr = words_ptr(flag);
    CUdeviceptr answer = words_ptr(how);
    uint64_t limit_ns = limit_us * 1000;
    void *params[] = {&ptr, &answer, &limit_ns};
    launch(place, WAITFLAG, stream, 0, params);
}
