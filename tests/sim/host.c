/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned host memory. Freed blocks are kept for the next request of their size with the bytes they
 * hold, as the driver does. A free waits for all running work of the process.
 */
#include "sim.h"

#include <sys/mman.h>

#define PAGE ((size_t)4096)

struct spare {
    uintptr_t address;
    size_t bytes;
};

static struct spare spares[64];
static size_t spare_count;

void sim_host_release(uintptr_t address, size_t bytes)
{
    if (spare_count < sizeof spares / sizeof spares[0]) {
        spares[spare_count++] = (struct spare){address, bytes};
    } else {
        munmap((void *)address, bytes);
    }
}

static uintptr_t host_take(size_t bytes)
{
    for (size_t i = spare_count; i > 0; i--) {
        if (spares[i - 1].bytes == bytes) {
            uintptr_t address = spares[i - 1].address;
            spares[i - 1] = spares[--spare_count];
            return address;
        }
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? 0 : (uintptr_t)memory;
}

CUresult sim_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct sim_ctx *ctx;
    unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || bytesize == 0 || (Flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_capture_check_unsafe();
    rc = rc == CUDA_SUCCESS ? sim_gate(ctx) : rc;
    if (rc == CUDA_SUCCESS) {
        size_t bytes = (bytesize + PAGE - 1) & ~(PAGE - 1);
        uintptr_t address = bytes < bytesize ? 0 : host_take(bytes);
        if (address) {
            struct sim_block *block = sim_block_add(address, bytesize, bytes, SIM_HOST, ctx);
            block->host_flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP;
            *pp = (void *)address;
        } else {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return sim_cuMemHostAlloc(pp, bytesize, 0);
}

static void drain_all(void)
{
    for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        if (ctx->alive && ctx->owner == ctx) {
            sim_ctx_drain(ctx);
        }
    }
}

CUresult sim_cuMemFreeHost(void *p)
{
    sim_lock();
    struct sim_ctx *current;
    CUresult rc = sim_current(&current);
    if (rc == CUDA_ERROR_INVALID_CONTEXT || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        rc = CUDA_SUCCESS;
    }
    rc = rc == CUDA_SUCCESS ? sim_capture_check_unsafe() : rc;
    struct sim_block *block = sim_block_from((uintptr_t)p);
    if (rc == CUDA_SUCCESS &&
        (!block || block->memory != SIM_HOST || block->registered || block->leaving)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (rc == CUDA_SUCCESS) {
        struct sim_ctx *ctx = block->ctx;
        block->leaving = true;
        ctx->frees_waiting++;
        drain_all();
        ctx->frees_waiting--;
        sim_progress();
        sim_block_release(block);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct sim_ctx *ctx;
    if (!p || bytesize == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = sim_capture_check_unsafe();
    if (rc == CUDA_SUCCESS &&
        (sim_block_at((uintptr_t)p) || sim_block_at((uintptr_t)p + bytesize - 1))) {
        rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (rc == CUDA_SUCCESS) {
        struct sim_block *block = sim_block_add((uintptr_t)p, bytesize, bytesize, SIM_HOST, ctx);
        block->registered = true;
        block->host_flags = (Flags & 3u) | CU_MEMHOSTALLOC_DEVICEMAP;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemHostUnregister(void *p)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_block *block = sim_block_from((uintptr_t)p);
    if (!block || block->memory != SIM_HOST || !block->registered) {
        rc = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    } else {
        sim_ctx_drain(ctx->owner);
        sim_block_remove(block);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct sim_ctx *ctx;
    if (!pdptr || Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_at((uintptr_t)p);
    if (!block || block->memory != SIM_HOST) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        *pdptr = (CUdeviceptr)(uintptr_t)p;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct sim_ctx *ctx;
    CUresult rc = pFlags ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_at((uintptr_t)p);
    if (!block || block->memory != SIM_HOST) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        *pFlags = block->host_flags;
    }
    sim_unlock();
    return rc;
}
