/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools shared between processes: a descriptor of a pool is the device's memory file, and what a
 * pointer is exported as names its place in it. An imported pool only imports pointers.
 */
#include "pool.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6c6f6f706d6973ull

struct wire {
    uint64_t magic, offset, size, bytes;
};

_Static_assert(sizeof(struct wire) <= sizeof(CUmemPoolPtrExportData), "64 bytes are exported");

CUresult sim_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_pool *pool = (const struct sim_pool *)handle;
    if (handle_out && flags == 0 && handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        sim_handle_is(pool, SIM_POOL) && pool->exportable) {
        size_t offset;
        *(int *)handle_out = fcntl(sim_heap_fd(pool->device, 0, &offset), F_DUPFD_CLOEXEC, 3);
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

/* The device is the importer's current one; the exporter's number is not in the descriptor. */
CUresult sim_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                CUmemAllocationHandleType handleType,
                                                unsigned long long flags)
{
    struct sim_ctx *ctx;
    struct stat info;
    int fd = (int)(intptr_t)handle;
    if (!pool_out || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fstat(fd, &info) != 0 || info.st_size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        struct sim_pool *pool = sim_pool_new(ctx->device);
        pool->imported = true;
        pool->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        *pool_out = (CUmemoryPool)pool;
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;
    CUresult rc = shareData_out ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_from(ptr);
    const struct sim_pool *pool = block && block->memory == SIM_ASYNC ? block->owner : NULL;
    if (!pool || !pool->exportable) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        size_t offset;
        sim_heap_fd(block->device, block->address, &offset);
        struct wire wire = {MAGIC, offset, block->size, block->bytes};
        memset(shareData_out, 0, sizeof *shareData_out);
        memcpy(shareData_out, &wire, sizeof wire);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool handle,
                                    CUmemPoolPtrExportData *shareData)
{
    struct sim_ctx *ctx;
    struct wire wire = {0};
    if (ptr_out && shareData) {
        memcpy(&wire, shareData, sizeof wire);
    }
    CUresult rc = wire.magic == MAGIC ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_pool *pool = (const struct sim_pool *)handle;
    if (!sim_handle_is(pool, SIM_POOL) || !pool->imported) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        size_t inside = wire.offset % SIM_CHUNK;
        size_t bytes = (inside + wire.bytes + SIM_CHUNK - 1) & ~(SIM_CHUNK - 1);
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            pool->fd, (off_t)(wire.offset - inside));
        if (mapped == MAP_FAILED) {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            struct sim_block *block =
                sim_block_add((uintptr_t)mapped + inside, wire.size, wire.bytes, SIM_IMPORT, ctx);
            block->owner = mapped;
            block->import_mapped = bytes;
            block->of_pool = true;
            *ptr_out = block->address;
        }
    }
    sim_unlock();
    return rc;
}
