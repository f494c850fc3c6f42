/* SPDX-License-Identifier: Apache-2.0
 *
 * try_demo [STEPS]: what scripts/try runs without and with libzone. An ordinary CUDA program that
 * knows nothing of it: each step allocates a few blocks, some through the runtime and some through
 * the driver, fills them, reads a part back into a checksum and frees them. Prints the checksum,
 * which must not depend on libzone, and the time. Opens CUDA at run time, so that one binary serves
 * every machine.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_STEPS 400
#define BLOCKS        12
#define SAMPLE        64

enum { COPY_DEVICE_TO_HOST = 2 }; /* cudaMemcpyDeviceToHost */

/* What the program uses of libcudart. Its codes are ints and 0 is success. */
static struct {
    int (*malloc)(void **ret_address, size_t bytes);
    int (*free)(void *address);
    int (*memset)(void *address, int value, size_t bytes);
    int (*memcpy)(void *to, const void *from, size_t bytes, int kind);
    int (*synchronize)(void);
    int (*device_count)(int *ret_count);
} runtime;

static struct {
    CUresult (*alloc)(CUdeviceptr *ret_address, size_t bytes);
    CUresult (*free)(CUdeviceptr address);
} driver;

/* ISO C has no conversion from data to function pointers; POSIX wants this one to work. */
static bool take(void *library, const char *name, void *ret_function)
{
    void *function = dlsym(library, name);

    memcpy(ret_function, &function, sizeof(function));
    return function != NULL;
}

/* The first runtime that this machine's driver is new enough for. */
static bool open_runtime(void)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *library = dlopen(names[i], RTLD_NOW);
        int count = 0;

        if (library == NULL) {
            continue;
        }
        if (take(library, "cudaMalloc", &runtime.malloc) &&
            take(library, "cudaFree", &runtime.free) &&
            take(library, "cudaMemset", &runtime.memset) &&
            take(library, "cudaMemcpy", &runtime.memcpy) &&
            take(library, "cudaDeviceSynchronize", &runtime.synchronize) &&
            take(library, "cudaGetDeviceCount", &runtime.device_count) &&
            runtime.device_count(&count) == 0 && count > 0) {
            return true;
        }
    }
    return false;
}

static bool open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    return library != NULL && take(library, "cuMemAlloc_v2", &driver.alloc) &&
           take(library, "cuMemFree_v2", &driver.free);
}

static void check(int code, const char *what)
{
    if (code != 0) {
        printf("%s failed with code %d\n", what, code);
        exit(1);
    }
}

/* Sizes repeat as they do in real programs: from 1 KiB to 1.5 MiB, each a few times a step. */
static size_t block_bytes(unsigned step, unsigned block)
{
    return (size_t)(1 + (step * 7 + block * 5) % 3) << (10 + 9 * (block % 2) + block % 3 % 2);
}

static uint64_t add_sample(uint64_t sum, const unsigned char *sample)
{
    for (size_t i = 0; i < SAMPLE; i++) {
        sum = (sum ^ sample[i]) * 1099511628211ULL; /* FNV-1a */
    }
    return sum;
}

static uint64_t run_step(unsigned step, uint64_t sum)
{
    void *blocks[BLOCKS] = {NULL};
    unsigned char sample[SAMPLE] = {0};

    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t bytes = block_bytes(step, i);

        if (i % 4 == 3) {
            CUdeviceptr address = 0;

            check((int)driver.alloc(&address, bytes), "cuMemAlloc");
            blocks[i] = (void *)(uintptr_t)address;
        } else {
            check(runtime.malloc(&blocks[i], bytes), "cudaMalloc");
        }
        check(runtime.memset(blocks[i], (int)((step + i) & 0xff), bytes), "cudaMemset");
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const char *last = (const char *)blocks[i] + block_bytes(step, i) - SAMPLE;

        check(runtime.memcpy(sample, last, SAMPLE, COPY_DEVICE_TO_HOST), "cudaMemcpy");
        sum = add_sample(sum, sample);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % 4 == 3) {
            check((int)driver.free((CUdeviceptr)(uintptr_t)blocks[i]), "cuMemFree");
        } else {
            check(runtime.free(blocks[i]), "cudaFree");
        }
    }
    return sum;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_STEPS;
    uint64_t sum = 14695981039346656037ULL;
    double start = 0;

    if (!open_runtime() || !open_driver()) {
        printf("no CUDA runtime with a device here\n");
        return 77;
    }
    check(runtime.free(NULL), "cudaFree(NULL)"); /* starts CUDA, outside the time */
    sum = run_step(0, sum);
    start = now_s();
    for (unsigned step = 1; step <= steps; step++) {
        sum = run_step(step, sum);
    }
    check(runtime.synchronize(), "cudaDeviceSynchronize");
    printf("checksum %016llx\n", (unsigned long long)sum);
    printf("seconds %.3f for %u allocations\n", now_s() - start, steps * BLOCKS);
    return 0;
}
