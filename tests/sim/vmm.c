/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management: reserved addresses, physical handles on a memory file of the device,
 * mappings with real aliasing. Nothing here waits for running work, as on the driver.
 */
#include "vmm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_physical_space {
    int fd;
    size_t chunks;
    unsigned char *taken;
};

struct range {
    uintptr_t base;
    size_t size;
    struct range *next;
};

static struct range *ranges;

static struct sim_physical_space *space_of(struct sim_device *device)
{
    if (!device->physical) {
        struct sim_physical_space *space = sim_calloc(1, sizeof *space);
        space->chunks = device->chunks * 16;
        space->taken = sim_calloc(space->chunks, 1);
        space->fd = memfd_create("zsim-physical", MFD_CLOEXEC);
        if (space->fd < 0 || ftruncate(space->fd, (off_t)(space->chunks * SIM_CHUNK)) != 0) {
            perror("zsim: physical memory");
            abort();
        }
        device->physical = space;
    }
    return device->physical;
}

static bool space_take(struct sim_physical_space *space, size_t count, size_t *ret_first)
{
    size_t run = 0;
    for (size_t i = 0; i < space->chunks; i++) {
        run = space->taken[i] ? 0 : run + 1;
        if (run == count) {
            *ret_first = i + 1 - count;
            memset(space->taken + *ret_first, 1, count);
            return true;
        }
    }
    return false;
}

void sim_physical_free(struct sim_physical *physical)
{
    if (physical->handles > 0 || physical->mappings > 0) {
        return;
    }
    size_t count = physical->bytes / SIM_CHUNK;
    if (physical->fd >= 0) {
        close(physical->fd);
        sim_chunks_give(physical->device, physical->imported ? 0 : count);
        free(physical);
        return;
    }
    struct sim_physical_space *space = physical->device->physical;
    memset(space->taken + physical->first, 0, count);
    fallocate(space->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)(physical->first * SIM_CHUNK), (off_t)physical->bytes);
    sim_chunks_give(physical->device, count);
    free(physical);
}

static bool may_export(const CUmemAllocationProp *prop)
{
    return prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/* A range of the device's file, or a file of its own for one that may be exported. */
static struct sim_physical *physical_new(struct sim_device *device, size_t size,
                                         const CUmemAllocationProp *prop)
{
    size_t first = 0;
    int fd = -1;
    if (may_export(prop)) {
        fd = memfd_create("zsim-shareable", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
            close(fd);
            fd = -1;
        }
        if (fd < 0) {
            return NULL;
        }
    } else if (!space_take(space_of(device), size / SIM_CHUNK, &first)) {
        return NULL;
    }
    struct sim_physical *physical = sim_calloc(1, sizeof *physical);
    physical->device = device;
    physical->prop = *prop;
    physical->first = first;
    physical->fd = fd;
    physical->bytes = size;
    physical->handles = 1;
    sim_handle_add(physical, SIM_PHYSICAL, NULL);
    return physical;
}

CUresult sim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option)
{
    (void)option;
    if (!granularity || !prop) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = SIM_CHUNK;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                         const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (!handle || !prop || size == 0 || size % SIM_CHUNK != 0 || flags != 0 ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim_lock();
    struct sim_device *device = sim_device_at(prop->location.id);
    CUresult rc = CUDA_ERROR_INVALID_DEVICE;
    if (device) {
        struct sim_physical *physical = NULL;
        rc = sim_chunks_take(device, size / SIM_CHUNK) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (rc == CUDA_SUCCESS && !(physical = physical_new(device, size, prop))) {
            sim_chunks_give(device, size / SIM_CHUNK);
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (physical) {
            *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
        }
    }
    sim_unlock();
    return rc;
}

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
    void *physical = (void *)(uintptr_t)handle;
    return sim_handle_is(physical, SIM_PHYSICAL) ? physical : NULL;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    sim_lock();
    struct sim_physical *physical = sim_physical_of(handle);
    if (physical && --physical->handles == 0) {
        sim_handle_drop(physical);
        sim_physical_free(physical);
    }
    sim_unlock();
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                    CUmemGenericAllocationHandle handle)
{
    sim_lock();
    const struct sim_physical *physical = sim_physical_of(handle);
    if (physical && prop) {
        *prop = physical->prop;
    }
    sim_unlock();
    return physical && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    if (!handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    const struct sim_block *block = sim_block_at((uintptr_t)addr);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (block && block->memory == SIM_RANGE) {
        struct sim_physical *physical = block->owner;
        if (physical->handles++ == 0) {
            sim_handle_add(physical, SIM_PHYSICAL, NULL);
        }
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                 unsigned long long flags)
{
    (void)addr; /* a wish that the driver need not grant */
    if (!ptr || size == 0 || size % SIM_CHUNK != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t align = alignment < SIM_CHUNK ? SIM_CHUNK : alignment;
    void *raw =
        mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uintptr_t base = ((uintptr_t)raw + align - 1) & ~(align - 1);
    if (base > (uintptr_t)raw) {
        munmap(raw, base - (uintptr_t)raw);
    }
    size_t rest = (uintptr_t)raw + size + align - (base + size);
    if (rest > 0) {
        munmap((void *)(base + size), rest);
    }
    struct range *range = sim_calloc(1, sizeof *range);
    range->base = base;
    range->size = size;
    sim_lock();
    range->next = ranges;
    ranges = range;
    sim_unlock();
    *ptr = base;
    return CUDA_SUCCESS;
}

/* The first mapping that overlaps [at, at + size), if any. */
static struct sim_block *mapping_in(uintptr_t at, size_t size)
{
    struct sim_block *block = sim_block_at(at);
    if (!block) {
        struct sim_block probe = {.address = at};
        block = sim_block_each(&probe);
    }
    return block && block->address < at + size ? block : NULL;
}

CUresult sim_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct range **link = &ranges;
    while (*link && ((*link)->base != ptr || (*link)->size != size)) {
        link = &(*link)->next;
    }
    if (*link && !mapping_in(ptr, size)) {
        struct range *range = *link;
        *link = range->next;
        munmap((void *)range->base, range->size);
        free(range);
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

static bool reserved(uintptr_t at, size_t size)
{
    for (const struct range *range = ranges; range; range = range->next) {
        if (at >= range->base && at + size <= range->base + range->size) {
            return true;
        }
    }
    return false;
}

CUresult sim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    sim_lock();
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    struct sim_physical *physical = sim_physical_of(handle);
    if (physical && ptr % SIM_CHUNK == 0 && size > 0 && flags == 0 && reserved(ptr, size) &&
        !mapping_in(ptr, size)) {
        if (size != physical->bytes || offset != 0) {
            rc = CUDA_ERROR_NOT_SUPPORTED; /* a handle maps whole or not at all */
        } else if (mmap((void *)(uintptr_t)ptr, size, PROT_NONE,
                        MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                        physical->fd >= 0 ? physical->fd : physical->device->physical->fd,
                        (off_t)(physical->first * SIM_CHUNK)) == MAP_FAILED) {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            struct sim_block *block = sim_block_add(ptr, size, size, SIM_RANGE, NULL);
            block->device = physical->device;
            block->owner = physical;
            physical->mappings++;
            rc = CUDA_SUCCESS;
        }
    }
    sim_unlock();
    return rc;
}

void sim_range_unmap(struct sim_block *block)
{
    struct sim_physical *physical = block->owner;
    if (mmap((void *)block->address, block->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        abort();
    }
    sim_block_remove(block);
    physical->mappings--;
    sim_physical_free(physical);
}

/* Whether [ptr, ptr + size) is made of whole mappings without a gap. */
static bool whole_mappings(uintptr_t ptr, size_t size)
{
    uintptr_t at = ptr;
    while (at < ptr + size) {
        const struct sim_block *block = sim_block_from(at);
        if (!block || block->memory != SIM_RANGE || at + block->bytes > ptr + size) {
            return false;
        }
        at += block->bytes;
    }
    return size > 0;
}

CUresult sim_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (whole_mappings(ptr, size)) {
        struct sim_block *block;
        while ((block = mapping_in(ptr, size))) {
            sim_range_unmap(block);
        }
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (desc && count > 0 && whole_mappings(ptr, size)) {
        for (uintptr_t at = ptr; at < ptr + size;) {
            struct sim_block *block = sim_block_from(at);
            for (size_t i = 0; i < count; i++) {
                uint64_t bit = (uint64_t)1 << desc[i].location.id;
                block->access = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE
                                    ? block->access & ~bit
                                    : block->access | bit;
            }
            mprotect((void *)at, block->bytes, block->access ? PROT_READ | PROT_WRITE : PROT_NONE);
            at += block->bytes;
        }
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr ptr)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_block *block = sim_block_at(ptr);
    if (flags && location && block && block->memory == SIM_RANGE) {
        bool allowed = block->access & ((uint64_t)1 << location->id);
        *flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        rc = CUDA_SUCCESS;
    }
    sim_unlock();
    return rc;
}
