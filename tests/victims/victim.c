/* SPDX-License-Identifier: Apache-2.0
 *
 * The victims' harness; see victim.h.
 */
#include "victim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CONTEXTS 512

static struct {
    CUcontext context;
    CUmodule module;
} loaded[MAX_CONTEXTS];
static size_t loaded_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void victim_fail(const char *file, int line, const char *what, const char *format, ...)
{
    char text[512] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: %s:%s\n", file, line, what, text);
    /* No destructors: the GPU may still be busy with whatever went wrong. */
    fflush(NULL);
    _Exit(1);
}

void victim_expect(const char *file, int line, const char *what, int expected, int got)
{
    if (got != expected) {
        const char *name = NULL;
        cuGetErrorName((CUresult)got, &name);
        victim_fail(file, line, what, " expected %d, got %d (%s)", expected, got,
                    name ? name : "?");
    }
}

void victim_skip(const char *why)
{
    fprintf(stderr, "skipped: %s\n", why);
    fflush(NULL);
    _Exit(77);
}

static CUmodule module_of(CUcontext context)
{
    CUmodule module = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < loaded_count; i++) {
        if (loaded[i].context == context) {
            module = loaded[i].module;
        }
    }
    if (!module) {
        CHECK(loaded_count < MAX_CONTEXTS);
        OK(cuModuleLoadData(&module, victim_ptx));
        loaded[loaded_count].context = context;
        loaded[loaded_count++].module = module;
    }
    pthread_mutex_unlock(&lock);
    return module;
}

void victim_load_kernels(void)
{
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    CHECK(context, "no context is current");
    module_of(context);
}

void victim_forget_kernels(void)
{
    pthread_mutex_lock(&lock);
    loaded_count = 0;
    pthread_mutex_unlock(&lock);
}

void victim_start(void)
{
    CUcontext context;
    CUresult rc = cuInit(0);
    if (rc == CUDA_ERROR_NO_DEVICE) {
        victim_skip("no GPU");
    }
    OK(rc);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    victim_load_kernels();
}

bool under_zone(void)
{
    return dlsym(RTLD_DEFAULT, "zone_version") != NULL;
}

/* A program that has only the runtime linked finds the driver by its name. */
void *zsim(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : NULL;
}

bool simulated(void)
{
    return zsim("zsim_calls") != NULL;
}

unsigned slowness(void)
{
    const char *text = getenv("VICTIM_SLOW");
    int number = text ? atoi(text) : 1;
    return number > 1 ? (unsigned)number : 1;
}

double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

void sleep_ms(double ms)
{
    struct timespec pause = {(time_t)(ms / 1e3), 0};
    pause.tv_nsec = (long)((ms - (double)pause.tv_sec * 1e3) * 1e6);
    nanosleep(&pause, NULL);
}

static CUresult launch(const char *name, unsigned blocks, CUstream stream, void **params)
{
    CUcontext context;
    CUfunction function;
    OK(cuCtxGetCurrent(&context));
    OK(cuModuleGetFunction(&function, module_of(context), name));
    unsigned threads = blocks > 1 ? 256 : 1;
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

static unsigned blocks_for(uint64_t count)
{
    uint64_t blocks = count / 1024 + 2;
    return blocks > 264 ? 264 : (unsigned)blocks;
}

void launch_fill(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value)
{
    void *params[] = {&ptr, &count, &value};
    OK(launch("fill", blocks_for(count), stream, params));
}

void launch_check(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value, CUdeviceptr bad)
{
    void *params[] = {&ptr, &count, &value, &bad};
    OK(launch("check", blocks_for(count), stream, params));
}

void launch_add(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value)
{
    void *params[] = {&ptr, &count, &value};
    OK(launch("add", blocks_for(count), stream, params));
}

void launch_copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, uint64_t count)
{
    void *params[] = {&dst, &src, &count};
    OK(launch("copy", blocks_for(count), stream, params));
}

CUresult try_launch_spin(CUstream stream, double ms)
{
    uint64_t ns = (uint64_t)(ms * 1e6);
    void *params[] = {&ns};
    return launch("spin", 1, stream, params);
}

void launch_spin(CUstream stream, double ms)
{
    OK(try_launch_spin(stream, ms));
}

void launch_signal(CUstream stream, CUdeviceptr flag)
{
    void *params[] = {&flag};
    OK(launch("signal", 1, stream, params));
}

void launch_waitflag(CUstream stream, CUdeviceptr flag, CUdeviceptr how, double limit_ms)
{
    uint64_t limit_ns = (uint64_t)(limit_ms * 1e6);
    void *params[] = {&flag, &how, &limit_ns};
    OK(launch("waitflag", 1, stream, params));
}

void launch_fault(CUstream stream)
{
    void *params[] = {NULL};
    OK(launch("fault", 1, stream, params));
}

void launch_trap(CUstream stream)
{
    void *params[] = {NULL};
    OK(launch("trap", 1, stream, params));
}

void launch_bad(CUstream stream, const char *kernel)
{
    void *params[] = {NULL};
    OK(launch(kernel, 1, stream, params));
}

CUstream new_stream(unsigned flags)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

CUcontext new_context(CUdevice device)
{
    /* The headers name only the newest form, which older drivers lack. */
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    void *found = zsim("cuCtxCreate_v2");
    CUcontext context;
    CHECK(found);
    memcpy(&create, &found, sizeof create);
    OK(create(&context, 0, device));
    /* The handle may be that of an earlier context, whose kernels went with it. */
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < loaded_count; i++) {
        if (loaded[i].context == context) {
            loaded[i] = loaded[--loaded_count];
        }
    }
    pthread_mutex_unlock(&lock);
    victim_load_kernels();
    return context;
}

uint32_t *host_words(size_t count)
{
    void *words;
    OK(cuMemHostAlloc(&words, count * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
    memset(words, 0, count * sizeof(uint32_t));
    return words;
}

uint32_t read_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

uint32_t count_wrong(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value)
{
    uint32_t *bad = host_words(1);
    launch_check(stream, ptr, count, value, (CUdeviceptr)(uintptr_t)bad);
    OK(cuStreamSynchronize(stream));
    uint32_t wrong = read_word(bad);
    OK(cuMemFreeHost(bad));
    return wrong;
}

int victim_answers(const struct answer *rows, size_t count)
{
    int different = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t got = rows[i].get();
        bool same = got == rows[i].native || (rows[i].when == RECYCLED && under_zone());
        printf("%s = %lld%s\n", rows[i].name, (long long)got, same ? "" : "   <<< not as natively");
        if (!same) {
            fprintf(stderr, "%s: natively %lld, got %lld\n", rows[i].name,
                    (long long)rows[i].native, (long long)got);
            different++;
        }
    }
    return different;
}
