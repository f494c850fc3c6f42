/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels a simulated module may contain, as C functions by the name of their PTX entry. They
 * run on a stream's thread without the lock; tests/victims/kernels.ptx is their real twin.
 */
#include "sim.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static void pause_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static uint32_t *words(struct sim_ctx *ctx, uint64_t address, uint64_t count)
{
    uint32_t *at = (uint32_t *)(uintptr_t)address;
    return address % sizeof *at == 0 && sim_may_touch(ctx, at, count * sizeof *at) ? at : NULL;
}

/* fill(ptr, n, value) */
static CUresult run_fill(struct sim_ctx *ctx, const uint64_t *args)
{
    uint32_t *at = words(ctx, args[0], args[1]);
    for (uint64_t i = 0; at && i < args[1]; i++) {
        at[i] = (uint32_t)args[2];
    }
    return at ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* check(ptr, n, value, bad): adds the number of other words to *bad */
static CUresult run_check(struct sim_ctx *ctx, const uint64_t *args)
{
    const uint32_t *at = words(ctx, args[0], args[1]);
    uint32_t *bad = words(ctx, args[3], 1);
    if (!at || !bad) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < args[1]; i++) {
        wrong += at[i] != (uint32_t)args[2];
    }
    if (wrong > 0) {
        __atomic_fetch_add(bad, wrong, __ATOMIC_RELAXED);
    }
    return CUDA_SUCCESS;
}

/* add(ptr, n, value) */
static CUresult run_add(struct sim_ctx *ctx, const uint64_t *args)
{
    uint32_t *at = words(ctx, args[0], args[1]);
    for (uint64_t i = 0; at && i < args[1]; i++) {
        at[i] += (uint32_t)args[2];
    }
    return at ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* copy(dst, src, n) */
static CUresult run_copy(struct sim_ctx *ctx, const uint64_t *args)
{
    uint32_t *dst = words(ctx, args[0], args[2]);
    const uint32_t *src = words(ctx, args[1], args[2]);
    if (!dst || !src) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    memmove(dst, src, args[2] * sizeof *dst);
    return CUDA_SUCCESS;
}

/* spin(ns) */
static CUresult run_spin(struct sim_ctx *ctx, const uint64_t *args)
{
    (void)ctx;
    pause_ns((uint64_t)((double)args[0] * sim_time_scale()));
    return CUDA_SUCCESS;
}

/* signal(flag): sets it to 1 */
static CUresult run_signal(struct sim_ctx *ctx, const uint64_t *args)
{
    uint32_t *flag = words(ctx, args[0], 1);
    if (!flag) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

/* waitflag(flag, how, limit_ns): *how is 1 if the flag was seen set in time, else 2 */
static CUresult run_waitflag(struct sim_ctx *ctx, const uint64_t *args)
{
    uint32_t *flag = words(ctx, args[0], 1);
    uint32_t *how = words(ctx, args[1], 1);
    if (!flag || !how) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    uint64_t limit = sim_now_ns() + args[2];
    bool seen = false;
    do {
        seen = __atomic_load_n(flag, __ATOMIC_SEQ_CST) != 0;
        if (!seen) {
            pause_ns(20000);
        }
    } while (!seen && sim_now_ns() < limit);
    __atomic_store_n(how, seen ? 1 : 2, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

/* fault(): writes where nothing is */
static CUresult run_fault(struct sim_ctx *ctx, const uint64_t *args)
{
    (void)ctx;
    (void)args;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* trap(): stops with an error of the kernel's own */
static CUresult run_trap(struct sim_ctx *ctx, const uint64_t *args)
{
    (void)ctx;
    (void)args;
    return CUDA_ERROR_LAUNCH_FAILED;
}

/* assertion(): an assert() that does not hold */
static CUresult run_assertion(struct sim_ctx *ctx, const uint64_t *args)
{
    (void)ctx;
    (void)args;
    return CUDA_ERROR_ASSERT;
}

/* timeout(): runs for longer than the watchdog of a display allows */
static CUresult run_timeout(struct sim_ctx *ctx, const uint64_t *args)
{
    (void)ctx;
    (void)args;
    return CUDA_ERROR_LAUNCH_TIMEOUT;
}

static const struct sim_kernel kernels[] = {
    {"fill", run_fill},           {"check", run_check},     {"add", run_add},
    {"copy", run_copy},           {"spin", run_spin},       {"signal", run_signal},
    {"waitflag", run_waitflag},   {"fault", run_fault},     {"trap", run_trap},
    {"assertion", run_assertion}, {"timeout", run_timeout},
};

const struct sim_kernel *sim_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            return &kernels[i];
        }
    }
    return NULL;
}
