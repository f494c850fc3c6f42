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

struct failure {
    enum sim_symbol symbol;
    uint64_t nth;
    CUresult code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static unsigned waiters; /* under lock */
static atomic_int life;
static atomic_int init_pid;
static atomic_uint_least64_t calls[SIM_SYMBOLS];
static struct failure failures[64]; /* written before failure_count, never changed */
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
    unsigned at = atomic_load(&failure_count);
    if (symbol < 0 || at == sizeof failures / sizeof failures[0]) {
        return false;
    }
    failures[at] = (struct failure){(enum sim_symbol)symbol, nth, (CUresult)code};
    atomic_store(&failure_count, at + 1);
    return true;
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
}

/* These work at any time: before cuInit, after a fork and while the process exits. */
static bool always_allowed(enum sim_symbol symbol)
{
    return symbol == SIM_cuDriverGetVersion || symbol == SIM_cuGetErrorName ||
           symbol == SIM_cuGetErrorString || symbol == SIM_cuGetProcAddress ||
           symbol == SIM_cuGetProcAddress_v2 || symbol == SIM_cuGetExportTable;
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
    unsigned count = atomic_load(&failure_count);
    for (unsigned i = 0; i < count; i++) {
        if (failures[i].symbol == symbol && failures[i].nth == nth) {
            return failures[i].code;
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
    bool added = add_failure(name, strlen(name), atomic_load(&calls[symbol]) + in_calls, code);
    sim_unlock();
    return added ? 0 : -1;
}
