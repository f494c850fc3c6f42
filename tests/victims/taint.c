/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory that somebody else may hold by now: exported by legacy IPC, as a dma-buf, or set
 * to synchronous operations for a network card. Its free has to be the driver's, since whoever has
 * it mapped must not see the bytes of a later owner.
 */
#include "tools.h"

#include <unistd.h>

#define BYTES (4 * MIB)

static void export_by_ipc(CUdeviceptr ptr)
{
    CUipcMemHandle handle;
    OK(cuIpcGetMemHandle(&handle, ptr));
}

static void export_interior_by_ipc(CUdeviceptr ptr)
{
    export_by_ipc(ptr + 4096);
}

static void export_by_runtime(CUdeviceptr ptr)
{
    cudaIpcMemHandle_t handle;
    OK(cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)ptr));
}

static void set_sync_memops(CUdeviceptr ptr)
{
    unsigned on = 1;
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
}

static void export_dma_buf(CUdeviceptr ptr)
{
    int fd = -1;
    OK(cuMemGetHandleForAddressRange(&fd, ptr, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    close(fd);
}

static void nothing(CUdeviceptr ptr)
{
    (void)ptr;
}

static const struct {
    const char *name;
    void (*share)(CUdeviceptr ptr);
    bool tainted;
} ways[] = {
    {"nothing", nothing, false},
    {"cuIpcGetMemHandle", export_by_ipc, true},
    {"cuIpcGetMemHandle of an interior pointer", export_interior_by_ipc, true},
    {"cudaIpcGetMemHandle", export_by_runtime, true},
    {"SYNC_MEMOPS", set_sync_memops, true},
    {"a dma-buf", export_dma_buf, true},
};

static void pair(CUdeviceptr *ret)
{
    OK(cuMemAlloc(ret, BYTES));
    OK(cuMemFree(*ret));
    OK(cuCtxSynchronize());
}

int main(void)
{
    victim_start();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        CUdeviceptr ptr;
        pair(&ptr); /* so that the block comes from a pool, if there is one */
        OK(cuMemAlloc(&ptr, BYTES));
        OK(cuMemsetD8(ptr, 0xab, BYTES));
        ways[i].share(ptr);
        uint64_t frees = driver_frees();
        OK(cuMemFree(ptr));
        OK(cuCtxSynchronize());
        bool freed = driver_frees() > frees;
        CHECK(freed == ways[i].tainted || !pooled() || !simulated(), "%s: the driver's free %s",
              ways[i].name, freed ? "ran" : "did not run");
        uint64_t allocs = driver_allocs();
        CUdeviceptr next;
        OK(cuMemAlloc(&next, BYTES));
        bool asked = driver_allocs() > allocs;
        CHECK(asked || !ways[i].tainted || !simulated(), "%s: served from a pool", ways[i].name);
        unsigned char byte = 1;
        OK(cuMemcpyDtoH(&byte, next + BYTES / 2, 1));
        CHECK(byte == 0 || !ways[i].tainted, "%s: the old bytes are there", ways[i].name);
        OK(cuMemFree(next));
    }
    return 0;
}
