/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of another API, imported as a file descriptor. A buffer of it is a mapping of that file,
 * and takes no memory of the device.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_external {
    int fd;
    size_t size;
};

CUresult sim_cuImportExternalMemory(CUexternalMemory *extMem_out,
                                    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
    struct sim_ctx *ctx;
    struct stat info;
    if (!extMem_out || !memHandleDesc ||
        memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
        fstat(memHandleDesc->handle.fd, &info) != 0 || memHandleDesc->size == 0 ||
        (size_t)info.st_size < memHandleDesc->size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    struct sim_external *external = sim_calloc(1, sizeof *external);
    external->fd = fcntl(memHandleDesc->handle.fd, F_DUPFD_CLOEXEC, 3);
    external->size = memHandleDesc->size;
    sim_handle_add(external, SIM_EXTERNAL, NULL);
    *extMem_out = (CUexternalMemory)external;
    sim_unlock();
    close(memHandleDesc->handle.fd); /* it is the driver's from here on */
    return CUDA_SUCCESS;
}

CUresult sim_cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
    struct sim_ctx *ctx;
    const struct sim_external *external = (const struct sim_external *)extMem;
    CUresult rc = devPtr && bufferDesc ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(external, SIM_EXTERNAL)) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (bufferDesc->size == 0 || bufferDesc->offset % 4096 != 0 ||
               bufferDesc->offset + bufferDesc->size > external->size) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        void *mapped = mmap(NULL, bufferDesc->size, PROT_READ | PROT_WRITE, MAP_SHARED,
                            external->fd, (off_t)bufferDesc->offset);
        if (mapped == MAP_FAILED) {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            size_t bytes = (bufferDesc->size + 4095) & ~(size_t)4095;
            sim_block_add((uintptr_t)mapped, bufferDesc->size, bytes, SIM_BUFFER, ctx);
            *devPtr = (CUdeviceptr)(uintptr_t)mapped;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuDestroyExternalMemory(CUexternalMemory extMem)
{
    struct sim_external *external = (struct sim_external *)extMem;
    sim_lock();
    bool known = sim_handle_is(external, SIM_EXTERNAL);
    if (known) {
        sim_handle_drop(external);
        close(external->fd);
        free(external);
    }
    sim_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
