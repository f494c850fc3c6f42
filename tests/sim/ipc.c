/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing with other processes: legacy IPC handles name the exporter's memory file and the place of
 * the block in it, dma-buf descriptors are that file; shareable handles are a file of their own.
 */
#include "vmm.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6d697363u

/* Size, chunk and place in the chunk stand where an H200's driver 580 has them. */
struct wire {
    uint32_t magic;
    int32_t device, pid, fd;
    uint64_t size;
    uint32_t pages;  /* of the chunk, 4 KiB each */
    uint32_t inside; /* offset in the chunk */
    uint64_t chunk;  /* offset of the chunk in the file */
};

static uint64_t wire_offset(const struct wire *wire)
{
    return wire->chunk + wire->inside;
}

static uint64_t wire_bytes(const struct wire *wire)
{
    return (wire->size + 511) & ~(uint64_t)511;
}

_Static_assert(sizeof(struct wire) == 40, "no padding: programs compare handles byte by byte");
_Static_assert(offsetof(struct wire, size) == 16, "as in the driver's handle");
_Static_assert(sizeof(struct wire) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct sim_ctx *ctx;
    CUresult rc = pHandle ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_at(dptr);
    if (!block || block->memory != SIM_DEVICE || block->leaving) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        size_t offset;
        struct wire wire = {.magic = MAGIC,
                            .pid = (int32_t)getpid(),
                            .device = block->device->ordinal,
                            .size = block->size};
        wire.fd = sim_heap_fd(block->device, block->address, &offset);
        wire.inside = offset % SIM_CHUNK;
        wire.chunk = offset - wire.inside;
        wire.pages =
            (uint32_t)((wire.inside + block->bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK >> 12);
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &wire, sizeof wire);
    }
    sim_unlock();
    return rc;
}

static struct sim_block *import_of(const struct wire *wire)
{
    for (struct sim_block *block = NULL; (block = sim_block_each(block));) {
        if (block->memory == SIM_IMPORT && !block->of_pool && block->import_pid == wire->pid &&
            block->import_offset == wire_offset(wire) && block->device->ordinal == wire->device) {
            return block;
        }
    }
    return NULL;
}

static CUresult import(const struct wire *wire, struct sim_ctx *ctx, struct sim_block **ret_block)
{
    char path[64];
    struct sim_device *device = sim_device_at(wire->device);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", wire->pid, wire->fd);
    int fd = device ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    size_t inside = wire->inside;
    size_t bytes = (inside + wire_bytes(wire) + SIM_CHUNK - 1) & ~(SIM_CHUNK - 1);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        (off_t)wire->chunk);
    close(fd);
    if (mapped == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_block *block =
        sim_block_add((uintptr_t)mapped + inside, wire->size, wire_bytes(wire), SIM_IMPORT, ctx);
    block->device = device;
    block->owner = mapped;
    block->import_pid = wire->pid;
    block->import_offset = wire_offset(wire);
    block->import_mapped = bytes;
    *ret_block = block;
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct wire wire;
    struct sim_ctx *ctx;
    memcpy(&wire, &handle, sizeof wire);
    if (!pdptr || wire.magic != MAGIC || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_block *block = import_of(&wire);
    if (wire.pid == (int32_t)getpid()) {
        rc = CUDA_ERROR_INVALID_CONTEXT; /* the driver does not open a process's own memory */
    } else if (!block) {
        rc = import(&wire, ctx, &block);
    }
    if (rc == CUDA_SUCCESS) {
        block->refs++;
        *pdptr = block->address;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return sim_cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

void sim_import_unmap(struct sim_block *block)
{
    munmap(block->owner, block->import_mapped);
    sim_block_remove(block);
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_block *block = sim_block_from(dptr);
    if (!block || block->memory != SIM_IMPORT || block->of_pool) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (--block->refs == 0) {
        sim_ctx_drain(ctx->owner);
        sim_import_unmap(block);
    }
    sim_unlock();
    return rc;
}

/* A descriptor for whole host pages only. */
CUresult sim_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                           CUmemRangeHandleType handleType,
                                           unsigned long long flags)
{
    struct sim_ctx *ctx;
    if (!handle || size == 0 || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1 ||
        dptr % 4096 != 0 || size % 4096 != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_at(dptr);
    if (!block || block->memory != SIM_DEVICE || dptr + size > block->address + block->bytes) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        size_t offset;
        *(int *)handle = fcntl(sim_heap_fd(block->device, dptr, &offset), F_DUPFD_CLOEXEC, 3);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemExportToShareableHandle(void *shareableHandle,
                                          CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    sim_lock();
    const struct sim_physical *physical = sim_physical_of(handle);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (shareableHandle && physical && physical->fd >= 0 && flags == 0 &&
        handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        *(int *)shareableHandle = fcntl(physical->fd, F_DUPFD_CLOEXEC, 3);
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

/* The device is the importer's current one; the exporter's number is not in the descriptor. */
CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                            CUmemAllocationHandleType shHandleType)
{
    struct sim_ctx *ctx;
    struct stat info;
    int fd = (int)(intptr_t)osHandle;
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fstat(fd, &info) != 0 || info.st_size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_physical *physical = sim_calloc(1, sizeof *physical);
    physical->device = ctx->device;
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->prop.location.id = ctx->device->ordinal;
    physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    physical->imported = true;
    physical->bytes = (size_t)info.st_size;
    physical->handles = 1;
    sim_handle_add(physical, SIM_PHYSICAL, NULL);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    sim_unlock();
    return CUDA_SUCCESS;
}
