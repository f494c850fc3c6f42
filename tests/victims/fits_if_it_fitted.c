/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: whatever fits natively has to fit with a pool in between: memory that it keeps, or that
 * is freed but still in use by the GPU, is given back before anybody is told "out of memory". And
 * what natively does not fit is refused with the native code, without a hang.
 */
#include "victim.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t free_now(void)
{
    size_t bytes;
    size_t total;
    OK(cuMemGetInfo(&bytes, &total));
    CHECK(bytes <= total);
    return bytes;
}

/* A real driver clears large memory that it got back before it has it to give, so natively a call
 * may be refused for a moment; and one of three quarters of a card may be refused for good after
 * the card was filled in three pieces, though all of it is free. Under libzone the call itself
 * takes the moment, and what is then refused is a failure. */
static bool again(CUresult rc, const char *call, int *naps)
{
    if (rc != CUDA_ERROR_OUT_OF_MEMORY || under_zone() || simulated()) {
        CHECK(rc == CUDA_SUCCESS, "%d from %s", rc, call);
        return false;
    }
    if (++*naps > 200) {
        printf("natively this does not fit: %s\n", call);
        exit(77);
    }
    usleep(10000);
    return true;
}

#define SOON(call)                                                                                 \
    do {                                                                                           \
        int naps = 0;                                                                              \
        while (again((call), #call, &naps)) {                                                      \
        }                                                                                          \
    } while (0)

/* Takes nearly all memory in blocks of this size and frees it again. */
static void fill_and_free(size_t block, size_t bytes)
{
    size_t count = bytes / block;
    CUdeviceptr *ptr = calloc(count, sizeof *ptr);
    for (size_t i = 0; i < count; i++) {
        SOON(cuMemAlloc(&ptr[i], block));
    }
    for (size_t i = 0; i < count; i++) {
        OK(cuMemFree(ptr[i]));
    }
    free(ptr);
}

static void larger_than_what_is_cached(size_t most)
{
    CUdeviceptr ptr;
    fill_and_free(most / 16, most);
    SOON(cuMemAlloc(&ptr, most));
    OK(cuMemFree(ptr));
    fill_and_free(most / 3, most);
    SOON(cuMemAlloc(&ptr, most));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&ptr, most));
    OK(cuMemFree(ptr));
}

/* Natively the free waits for the kernel, so the next allocation fits. */
static void freed_but_in_use(size_t most)
{
    CUdeviceptr ptr;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    SOON(cuMemAlloc(&ptr, most));
    launch_spin(stream, 30);
    launch_fill(stream, ptr, 1024, 1);
    OK(cuMemFree(ptr));
    SOON(cuMemAlloc(&ptr, most - 4 * MIB));
    launch_fill(stream, ptr, 1024, 2);
    CHECK(count_wrong(stream, ptr, 1024, 2) == 0);
    OK(cuMemFree(ptr));
    OK(cuStreamDestroy(stream));
}

/* Other calls that need memory of the device find it. */
static void others(size_t most)
{
    CUdeviceptr ptr;
    size_t pitch;
    CUmodule module;
    CUarray array;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {0};
    size_t rows = most / 8 / 4096 < 16384 ? most / 8 / 4096 : 16384;
    CUDA_ARRAY_DESCRIPTOR descriptor = {1024, rows, CU_AD_FORMAT_FLOAT, 1};
    fill_and_free(most / 8, most);
    SOON(cuMemAllocPitch(&ptr, &pitch, 4096, most / 2 / 4096, 4));
    OK(cuMemFree(ptr));
    fill_and_free(most / 8, most);
    SOON(cuMemAllocAsync(&ptr, most / 2, NULL));
    OK(cuMemFreeAsync(ptr, NULL));
    OK(cuCtxSynchronize());
    fill_and_free(most / 8, most);
    SOON(cuArrayCreate(&array, &descriptor));
    OK(cuArrayDestroy(array));
    fill_and_free(most / 8, most);
    SOON(cuModuleLoadData(&module, victim_ptx));
    OK(cuModuleUnload(module));
    fill_and_free(most / 8, most);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    SOON(cuMemCreate(&handle, most / 4 / (2 * MIB) * (2 * MIB), &prop, 0));
    OK(cuMemRelease(handle));
}

/* A program that sizes its next step by what cuMemGetInfo says gets it. */
static void what_is_reported_can_be_had(size_t most)
{
    CUdeviceptr ptr;
    fill_and_free(most / 8, most);
    size_t bytes = free_now() / 20 * 19;
    CHECK(bytes > most / 2, "only %zu of %zu bytes are reported free", bytes, most);
    SOON(cuMemAlloc(&ptr, bytes));
    OK(cuMemFree(ptr));
}

int main(void)
{
    victim_start();
    OK(cuCtxSynchronize());
    /* So much that it does not fit twice, and so little that one piece of it fits again natively.
     */
    size_t most = free_now() / 4 * 3 / (16 * MIB) * (16 * MIB);
    larger_than_what_is_cached(most);
    freed_but_in_use(most);
    others(most);
    what_is_reported_can_be_had(most);
    return 0;
}
