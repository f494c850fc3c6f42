/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what programs see of memory calls on a real driver, one row each. The same table holds
 * on the simulated GPU, which it keeps honest, and under libzone, but for the closed list of
 * differences that docs/COMPATIBILITY.md names.
 */
#include "victim.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t runtime_zero(void)
{
    void *ptr = &ptr;
    OK(cudaMalloc(&ptr, 0));
    return ptr != NULL;
}

static int64_t driver_zero(void)
{
    CUdeviceptr ptr = 77;
    int64_t code = cuMemAlloc(&ptr, 0);
    return code * 10 + (ptr != 0);
}

static int64_t null_pointer(void)
{
    return cudaMalloc(NULL, 16) * 100 + cudaGetLastError();
}

/* The code, whether the pointer was left set, the last error, the last error after that. */
static int64_t too_big(size_t bytes)
{
    void *ptr = &ptr;
    int64_t code = cudaMalloc(&ptr, bytes);
    int64_t last = cudaGetLastError();
    return code * 1000 + (ptr != NULL) * 100 + last * 10 + cudaGetLastError();
}

static int64_t one_pib(void)
{
    return too_big((size_t)1 << 50);
}

static int64_t size_max(void)
{
    return too_big(SIZE_MAX);
}

static int64_t free_null(void)
{
    return cudaFree(NULL) + (int64_t)cuMemFree(0) + cudaFreeAsync(NULL, NULL);
}

static int64_t async_zero(void)
{
    void *ptr = &ptr;
    OK(cudaMallocAsync(&ptr, 0, NULL));
    return ptr != NULL;
}

static int64_t bad_free(void *ptr)
{
    int64_t code = cudaFree(ptr);
    return code * 100 + cudaGetLastError() * 10 + cudaGetLastError();
}

static int64_t double_free(void)
{
    void *ptr;
    OK(cudaMalloc(&ptr, 1000));
    OK(cudaFree(ptr));
    return bad_free(ptr);
}

static int64_t interior_free(void)
{
    char *ptr;
    OK(cudaMalloc((void **)&ptr, 4096));
    int64_t answer = bad_free(ptr + 512);
    OK(cudaFree(ptr));
    return answer;
}

static int64_t stack_free(void)
{
    int here = 0;
    return bad_free(&here);
}

static int64_t heap_free(void)
{
    void *ptr = malloc(100);
    int64_t answer = bad_free(ptr);
    free(ptr);
    return answer;
}

static int64_t nonsense_free(void)
{
    return cuMemFree(0x1234);
}

/* How many sizes give an address that is not on the driver's step. */
static int64_t address_steps(void)
{
    int64_t wrong = 0;
    for (size_t size = 1; size <= 4097; size += 63) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, size));
        wrong += ptr % 512 != 0;
        OK(cuMemFree(ptr));
    }
    for (size_t size = 2 * MIB; size <= 32 * MIB; size = size * 3 / 2 + 1) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, size));
        wrong += ptr % (2 * MIB) != 0;
        OK(cuMemFree(ptr));
    }
    return wrong;
}

/* How many sizes are not answered with the pointer and the requested size, twice over, so that the
 * second round may come from a pool. */
static int64_t address_range(void)
{
    const size_t sizes[] = {1, 100, 512, 513, 1000, 5000, MIB - 1, 3 * MIB + 1};
    int64_t wrong = 0;
    for (int i = 0; i < 16; i++) {
        CUdeviceptr ptr;
        CUdeviceptr base;
        size_t size;
        size_t asked = sizes[i % 8] - (size_t)(i / 8 && sizes[i % 8] > 1);
        OK(cuMemAlloc(&ptr, asked));
        OK(cuMemGetAddressRange(&base, &size, ptr + asked / 2));
        wrong += base != ptr || size != asked;
        OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr));
        wrong += size != asked;
        OK(cuMemFree(ptr));
    }
    return wrong;
}

static int64_t buffer_ids(void)
{
    unsigned long long ids[50];
    int64_t repeated = 0;
    for (int i = 0; i < 50; i++) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, 4096));
        OK(cuPointerGetAttribute(&ids[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
        for (int j = 0; j < i; j++) {
            repeated += ids[i] == ids[j];
        }
        OK(cuMemFree(ptr));
    }
    return repeated;
}

static int64_t freed_attributes(void)
{
    struct cudaPointerAttributes attributes;
    void *ptr;
    OK(cudaMalloc(&ptr, 8 * MIB));
    OK(cudaFree(ptr));
    int64_t code = cudaPointerGetAttributes(&attributes, ptr);
    return code * 10 + attributes.type;
}

static int64_t freed_range(void)
{
    CUdeviceptr ptr;
    CUdeviceptr base;
    size_t size;
    OK(cuMemAlloc(&ptr, 8 * MIB));
    OK(cuMemFree(ptr));
    return cuMemGetAddressRange(&base, &size, ptr);
}

/* The first byte of a block freed and allocated again; that expected if the address is another. */
static int64_t reused_byte(size_t bytes, unsigned char expected)
{
    void *ptr;
    void *again;
    void *neighbour;
    unsigned char byte = 0xee;
    OK(cudaMalloc(&neighbour, bytes)); /* keeps the chunk that small blocks share */
    OK(cudaMalloc(&ptr, bytes));
    OK(cudaMemset(ptr, 0xab, bytes));
    OK(cudaFree(ptr));
    OK(cudaMalloc(&again, bytes));
    OK(cudaMemcpy(&byte, again, 1, cudaMemcpyDeviceToHost));
    OK(cudaFree(again));
    OK(cudaFree(neighbour));
    return again == ptr ? byte : expected;
}

static int64_t reused_small(void)
{
    return reused_byte(512, 0xab) == 0xab && reused_byte(512 * KIB, 0xab) == 0xab;
}

static int64_t reused_large(void)
{
    return reused_byte(2 * MIB, 0) + reused_byte(16 * MIB, 0);
}

/* Pinned memory freed and allocated again, beside a live block that keeps its chunk; 1 if the
 * address is another. */
static int64_t reused_pinned(void)
{
    void *neighbour;
    unsigned char *ptr;
    unsigned char *again;
    OK(cudaMallocHost(&neighbour, 64 * KIB));
    OK(cudaMallocHost((void **)&ptr, 64 * KIB));
    memset(ptr, 0xab, 64 * KIB);
    uintptr_t old = (uintptr_t)ptr;
    OK(cudaFreeHost(ptr));
    OK(cudaMallocHost((void **)&again, 64 * KIB));
    int64_t kept = (uintptr_t)again != old || again[1000] == 0xab;
    OK(cudaFreeHost(again));
    OK(cudaFreeHost(neighbour));
    return kept;
}

static int64_t reused_async(void)
{
    unsigned char byte = 0xee;
    void *ptr;
    void *again;
    OK(cudaMallocAsync(&ptr, 4 * MIB, NULL));
    OK(cudaMemsetAsync(ptr, 0xab, 4 * MIB, NULL));
    OK(cudaFreeAsync(ptr, NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaMallocAsync(&again, 4 * MIB, NULL));
    OK(cudaMemcpy(&byte, again, 1, cudaMemcpyDeviceToHost));
    OK(cudaFreeAsync(again, NULL));
    OK(cudaDeviceSynchronize());
    return byte;
}

/* Address range and attribute at the first byte after the last that was asked for. */
static int64_t past_the_end(void)
{
    CUdeviceptr ptr;
    CUdeviceptr base;
    CUcontext context;
    size_t size;
    OK(cuMemAlloc(&ptr, 1000));
    int64_t range = cuMemGetAddressRange(&base, &size, ptr + 1000);
    int64_t asked = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr + 1000);
    OK(cuMemFree(ptr));
    return range * 1000 + asked;
}

static int64_t allowed_handles(void)
{
    unsigned long long types = 77;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 8 * MIB));
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr));
    OK(cuMemFree(ptr));
    return (int64_t)types;
}

/* How many functions cuGetProcAddress gives other than dlsym; then its answers to no name. */
static int64_t resolved(void)
{
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *exported;
    } known[] = {
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemFree", 3020, 0, "cuMemFree_v2"},
        {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"},
        {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"},
        {"cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset"},
        {"cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2"},
    };
    CUdriverProcAddressQueryResult status;
    void *found;
    int64_t other = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        OK(cuGetProcAddress(known[i].name, &found, known[i].version, known[i].flags, &status));
        other += found != zsim(known[i].exported);
    }
    found = &found;
    int64_t code = cuGetProcAddress("", &found, 0, 0, &status);
    return other * 1000 + code * 100 + (int)status * 10 + (found != NULL);
}

static int64_t retained_handle(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 8 * MIB));
    int64_t code = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr);
    OK(cuMemFree(ptr));
    return code;
}

/* Context set, allowed handle types, IPC capable, SYNC_MEMOPS settable. */
static int64_t attributes(void)
{
    CUcontext context = NULL;
    int ipc = 0;
    unsigned on = 1;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 64 * KIB));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    OK(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
    int64_t set = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
    OK(cuMemFree(ptr));
    return (context != NULL) * 100 + ipc * 10 + set;
}

/* The codes for a whole large block and for 4 KiB at an odd place of it. */
static int64_t dma_buf(void)
{
    int fd = -1;
    int other = -1;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 8 * MIB));
    int64_t whole =
        cuMemGetHandleForAddressRange(&fd, ptr, 8 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    int64_t part = cuMemGetHandleForAddressRange(&other, ptr + 512, 4096,
                                                 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    close(fd);
    OK(cuMemFree(ptr));
    return whole * 10 + part;
}

static int64_t host_flags(void)
{
    const unsigned asked[] = {0, CU_MEMHOSTALLOC_DEVICEMAP,
                              CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE};
    void *ptr;
    unsigned flags;
    int64_t answer = 0;
    OK(cudaMallocHost(&ptr, 4096));
    OK(cuMemHostGetFlags(&flags, ptr));
    answer = flags;
    OK(cudaFreeHost(ptr));
    for (int i = 0; i < 3; i++) {
        OK(cuMemHostAlloc(&ptr, 4096, asked[i]));
        OK(cuMemHostGetFlags(&flags, ptr));
        answer = answer * 10 + flags;
        OK(cuMemFreeHost(ptr));
    }
    return answer;
}

static int64_t info_null(void)
{
    size_t total = 0;
    return cuMemGetInfo(NULL, &total) + (total == 0);
}

static int64_t pitches(void)
{
    const size_t widths[] = {1, 100, 513, 4000, 100000};
    const size_t expected[] = {512, 512, 1024, 4096, 100352};
    int64_t wrong = 0;
    for (int i = 0; i < 5; i++) {
        void *ptr;
        size_t pitch;
        OK(cudaMallocPitch(&ptr, &pitch, widths[i], 7));
        wrong += pitch != expected[i];
        OK(cudaFree(ptr));
    }
    return wrong;
}

static int64_t free_async_memory(void)
{
    void *ptr;
    OK(cudaMallocAsync(&ptr, 4096, NULL));
    return cudaFree(ptr);
}

static int64_t free_async_of_plain(void)
{
    void *ptr;
    OK(cudaMalloc(&ptr, 4096));
    int64_t code = cudaFreeAsync(ptr, NULL);
    OK(cudaDeviceSynchronize());
    return code;
}

static const struct answer rows[] = {
    {"cudaMalloc(0): pointer set", runtime_zero, 0, ALWAYS},
    {"cuMemAlloc(0): code, pointer set", driver_zero, 10, ALWAYS},
    {"cudaMalloc(NULL, 16): code, last error", null_pointer, 101, ALWAYS},
    {"cudaMalloc(1 PiB): code, pointer set, last error twice", one_pib, 2020, ALWAYS},
    {"cudaMalloc(SIZE_MAX): the same", size_max, 2020, ALWAYS},
    {"free of NULL in three forms", free_null, 0, ALWAYS},
    {"cudaMallocAsync(0): pointer set", async_zero, 0, ALWAYS},
    {"double free: code, last error twice", double_free, 110, ALWAYS},
    {"free of an interior pointer", interior_free, 110, ALWAYS},
    {"free of stack memory", stack_free, 110, ALWAYS},
    {"free of heap memory", heap_free, 110, ALWAYS},
    {"cuMemFree of nonsense", nonsense_free, 1, ALWAYS},
    {"addresses off the 512 B or 2 MiB step", address_steps, 0, ALWAYS},
    {"address ranges not base and requested size", address_range, 0, ALWAYS},
    {"buffer ids repeated", buffer_ids, 0, ALWAYS},
    {"attributes of freed memory: code, type", freed_attributes, 0, ALWAYS},
    {"address range of freed memory", freed_range, 500, ALWAYS},
    {"small memory keeps its bytes", reused_small, 1, RECYCLED},
    {"large memory reads zero", reused_large, 0, RECYCLED},
    {"pinned memory keeps its bytes", reused_pinned, 1, RECYCLED},
    {"stream-ordered memory reads zero after a wait", reused_async, 0, RECYCLED},
    {"address range, attribute past the last byte", past_the_end, 500001, ALWAYS},
    {"handle types of plain memory", allowed_handles, 0, ALWAYS},
    {"functions other than dlsym's; no name: code, status, found", resolved, 10, ALWAYS},
    {"cuMemRetainAllocationHandle of plain memory", retained_handle, 1, ALWAYS},
    {"context, IPC, SYNC_MEMOPS", attributes, 110, ALWAYS},
    {"dma-buf of a whole block, of an odd part", dma_buf, 1, ALWAYS},
    {"cuMemHostGetFlags in four ways", host_flags, 2227, ALWAYS},
    {"cuMemGetInfo(NULL, &total)", info_null, 0, ALWAYS},
    {"pitches other than the driver's", pitches, 0, ALWAYS},
    {"cudaFree of stream-ordered memory", free_async_memory, 0, ALWAYS},
    {"cudaFreeAsync of plain memory", free_async_of_plain, 0, ALWAYS},
};

int main(void)
{
    victim_start();
    return victim_answers(rows, sizeof rows / sizeof rows[0]) > 0;
}
