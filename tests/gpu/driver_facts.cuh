/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver_facts programs share: the context, streams, the default pool, a waiting kernel,
 * and the choice of a part. Names that end in _rc are the driver's codes.
 */
#pragma once

#include <cuda.h>
#include <string.h>
#include "spin.cuh"

static CUcontext context;
static CUdevice device;

static __global__ void spin(long long cycles)
{
    spin_until(clock64(), cycles);
}

/* Ends when the flag is set or after the limit; says which. */
static __global__ void wait_flag(volatile int *flag, long long limit, int *ret_gave_up)
{
    long long start = clock64();
    while (!*flag) {
        if (clock64() - start > limit) {
            *ret_gave_up = 1;
            return;
        }
    }
}

static void put_rc(const char *name, CUresult rc)
{
    printf("%s_rc=%d\n", name, (int)rc);
}

static CUstream new_stream(int priority)
{
    CUstream stream;
    CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
    return stream;
}

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    CU(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

static void keep_memory(void)
{
    cuuint64_t all = ~(cuuint64_t)0;
    CU(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

static double pool_mib(CUmemPool_attribute what)
{
    cuuint64_t value = 0;
    CU(cuMemPoolGetAttribute(default_pool(), what, &value));
    return (double)value / 1048576.0;
}

struct part {
    const char *name;
    void (*function)(void);
};

/* Runs the part that the program's argument names, in the primary context. */
static int run_part(const struct part *parts, size_t count, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            RT(cudaFree(NULL));
            CU(cuInit(0));
            CU(cuDeviceGet(&device, 0));
            CU(cuCtxGetCurrent(&context));
            parts[i].function();
            return 0;
        }
    }
    printf("usage: %s PART\n", argv[0]);
    return 2;
}
