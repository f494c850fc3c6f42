/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of the simulated driver in its process: the one lock, initialisation, fork, exit, the ZSIM_*
 * knobs, call counters and scripted failures. sim_enter() is the gate of every exported call and
 * takes no lock, so that it also answers in a forked child.
 */
#include "sim.h"
#include "zsim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_NEW, LIFE_RUNNING, LIFE_OVER };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static unsigned waiters; /* under lock */
static atomic_int life;
static atomic_int init_pid;
static atomic_uint_least64_t calls[SIM_SYMBOLS];
/* Scripted failures: number of the call << 32 | symbol << 16 | code, 0 where there is none. */
static atomic_uint_least64_t failures[512];
static atomic_uint failure_count;
static bool logging;
static pthread_once_t once = PTHREAD_ONCE_INIT;

__thread struct sim_thread sim_self;

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void sim_wait_progress(void)
{
    waiters++;
    pthread_cond_wait(&progress, &lock);
    waiters--;
}

void sim_progress(void)
{
    if (waiters > 0) {
        pthread_cond_broadcast(&progress);
    }
}

pthread_mutex_t *sim_lock_for_wait(void)
{
    return &lock;
}

static void die(const char *what)
{
    fprintf(stderr, "zsim: %s\n", what);
    abort();
}

void *sim_calloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        die("out of host memory");
    }
    return memory;
}

void *sim_grow(void *array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room) {
        return array;
    }
    size_t wanted = needed * 2 < 16 ? 16 : needed * 2;
    void *bigger = realloc(array, wanted * size);
    if (!bigger) {
        die("out of host memory");
    }
    *room = wanted;
    return bigger;
}

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double knob(const char *name, double fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtod(text, NULL) : fallback;
}

size_t sim_memory_mb(void)
{
    return (size_t)knob("ZSIM_MEMORY_MB", 4096);
}

size_t sim_neighbours_mb(void)
{
    size_t sum = 0;
    const char *text = getenv("ZSIM_NEIGHBOURS");
    while (text && (text = strchr(text, ':')) != NULL) {
        sum += strtoul(++text, NULL, 10);
    }
    return sum;
}

int sim_device_count(void)
{
    return (int)knob("ZSIM_DEVICES", 1);
}

int sim_driver_version(void)
{
    static atomic_int version;
    int known = atomic_load_explicit(&version, memory_order_relaxed);
    if (known == 0) {
        known = (int)knob("ZSIM_DRIVER", 13000);
        atomic_store_explicit(&version, known, memory_order_relaxed);
    }
    return known;
}

double sim_time_scale(void)
{
    return knob("ZSIM_SCALE", 1.0);
}

void sim_latency(void)
{
    static atomic_long pause_us = -1;
    long us = atomic_load_explicit(&pause_us, memory_order_relaxed);
    if (us < 0) {
        us = (long)knob("ZSIM_LATENCY_US", 0);
        atomic_store_explicit(&pause_us, us, memory_order_relaxed);
    }
    if (us > 0) {
        const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
}

static int find_symbol(const char *name, size_t length)
{
    for (int i = 0; i < SIM_SYMBOLS; i++) {
        const char *known = sim_symbol_name((enum sim_symbol)i);
        if (strncmp(known, name, length) == 0 && known[length] == '\0') {
            return i;
        }
    }
    return -1;
}

static bool add_failure(const char *name, size_t length, uint64_t nth, int code)
{
    int symbol = find_symbol(name, length);
    uint64_t failure = nth << 32 | (uint64_t)symbol << 16 | (uint64_t)code;
    for (size_t i = 0; symbol >= 0 && i < sizeof failures / sizeof failures[0]; i++) {
        uint_least64_t none = 0;
        if (atomic_compare_exchange_strong(&failures[i], &none, failure)) {
            atomic_fetch_add(&failure_count, 1);
            return true;
        }
    }
    return false;
}

/* ZSIM_FAIL is NAME:NTH=CODE,…; anything else is a mistake in a test, so it stops the test. */
static void read_failures(void)
{
    const char *text = getenv("ZSIM_FAIL");
    while (text && *text) {
        const char *colon = strchr(text, ':');
        char *end = NULL;
        if (!colon) {
            die("ZSIM_FAIL: expected NAME:NTH=CODE");
        }
        unsigned long long nth = strtoull(colon + 1, &end, 10);
        if (*end != '=') {
            die("ZSIM_FAIL: expected NAME:NTH=CODE");
        }
        long code = strtol(end + 1, &end, 10);
        if (!add_failure(text, (size_t)(colon - text), nth, (int)code)) {
            die("ZSIM_FAIL: unknown name or too many");
        }
        text = *end == ',' ? end + 1 : end;
    }
}

static void read_knobs(void)
{
    read_failures();
    logging = getenv("ZSIM_LOG") != NULL;
}

static void at_exit(void)
{
    atomic_store(&life, LIFE_OVER);
    sim_neighbours_exit();
}

/* These work at any time: before cuInit, after a fork and while the process exits. */
static bool always_allowed(enum sim_symbol symbol)
{
    return symbol == SIM_cuDriverGetVersion || symbol == SIM_cuGetErrorName ||
           symbol == SIM_cuGetErrorString || symbol == SIM_cuGetProcAddress ||
           symbol == SIM_cuGetProcAddress_v2 || symbol == SIM_cuGetExportTable;
}

/* The codes after which a real context is lost for good. */
static bool loses_context(CUresult code)
{
    switch ((int)code) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

/* The failure scripted for this call, which is then used up. */
static CUresult scripted(enum sim_symbol symbol, uint64_t nth)
{
    uint64_t mine = nth << 32 | (uint64_t)symbol << 16;
    CUresult code = CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        uint_least64_t failure = atomic_load(&failures[i]);
        if (failure >> 16 == (uint64_t)symbol && failure != 0) {
            code = (CUresult)(failure & 0xffff); /* of each call */
            break;
        }
        if ((failure & ~UINT64_C(0xffff)) == mine &&
            atomic_compare_exchange_strong(&failures[i], &failure, 0)) {
            atomic_fetch_sub(&failure_count, 1);
            code = (CUresult)(failure & 0xffff);
            break;
        }
    }
    struct sim_ctx *ctx;
    if (loses_context(code)) {
        sim_lock();
        if (sim_current(&ctx) == CUDA_SUCCESS) {
            sim_ctx_fault(ctx, code);
        }
        sim_unlock();
    }
    return code;
}

CUresult sim_enter(enum sim_symbol symbol, bool implemented)
{
    pthread_once(&once, read_knobs);
    sim_jitter();
    uint64_t nth = atomic_fetch_add_explicit(&calls[symbol], 1, memory_order_relaxed) + 1;
    if (!always_allowed(symbol)) {
        int pid = atomic_load_explicit(&init_pid, memory_order_relaxed);
        if (pid != 0 && pid != (int)getpid()) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        int state = atomic_load_explicit(&life, memory_order_relaxed);
        if (state == LIFE_OVER) {
            return CUDA_ERROR_DEINITIALIZED;
        }
        if (state == LIFE_NEW && symbol != SIM_cuInit) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        if (sim_self.in_callback) {
            return CUDA_ERROR_NOT_PERMITTED;
        }
    }
    if (atomic_load(&failure_count) > 0) {
        CUresult code = scripted(symbol, nth);
        if (code != CUDA_SUCCESS) {
            return code;
        }
    }
    if (!implemented || sim_symbol_version(symbol) > sim_driver_version()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

void sim_leave(enum sim_symbol symbol, CUresult rc)
{
    if (logging) {
        char line[160];
        int length = snprintf(line, sizeof line, "zsim[%d] %s = %d\n", (int)getpid(),
                              sim_symbol_name(symbol), (int)rc);
        if (write(STDERR_FILENO, line, (size_t)length) < 0) {
            logging = false;
        }
    }
    sim_jitter();
}

CUresult sim_cuInit(unsigned int Flags)
{
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    if (atomic_load(&life) == LIFE_NEW) {
        if (sim_device_count() < 1) {
            sim_unlock();
            return CUDA_ERROR_NO_DEVICE;
        }
        atexit(at_exit);
        atomic_store(&init_pid, (int)getpid());
        atomic_store(&life, LIFE_RUNNING);
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult sim_cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = sim_driver_version();
    return CUDA_SUCCESS;
}

uint64_t zsim_calls(const char *name)
{
    int symbol = find_symbol(name, strlen(name));
    return symbol < 0 ? 0 : atomic_load(&calls[symbol]);
}

int zsim_fail(const char *name, uint64_t in_calls, int code)
{
    int symbol = find_symbol(name, strlen(name));
    if (symbol < 0) {
        return -1;
    }
    sim_lock();
    uint64_t nth = in_calls > 0 ? atomic_load(&calls[symbol]) + in_calls : 0;
    bool added = add_failure(name, strlen(name), nth, code);
    sim_unlock();
    return added ? 0 : -1;
}

void zsim_fail_none(void)
{
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        if (atomic_exchange(&failures[i], 0) != 0) {
            atomic_fetch_sub(&failure_count, 1);
        }
    }
}
