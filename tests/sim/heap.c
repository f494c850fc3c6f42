/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses and physical chunks of one device: a reserved range over one memory file. Allocations
 * from 2 MiB up have chunks of their own and are zeroed; smaller ones share chunks of their owner
 * (a context or a pool) in steps of 512 bytes and keep the old bytes. Free chunks are not mapped.
 */
#include "sim.h"
#include "zsim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNITS (SIM_CHUNK / SIM_UNIT)

enum chunk_state { CHUNK_FREE, CHUNK_LARGE, CHUNK_SLAB };

struct slab {
    size_t chunk;
    void *owner;
    size_t used;
    unsigned char unit[UNITS];
    struct slab *next;
};

struct sim_heap {
    uintptr_t base;
    size_t chunks;
    unsigned char *state; /* enum chunk_state of each chunk */
    unsigned char *dirty; /* held an allocation before */
    int fd;
    struct slab *slabs;
};

static __attribute__((noreturn)) void fail(const char *what)
{
    perror(what);
    abort();
}

/* Addresses are never the scarce thing on a GPU, so there are many more than chunks; fewer where
 * the process has little room for them (valgrind). */
static void *reserve(const struct sim_device *device, size_t *ret_chunks)
{
    for (size_t times = 16; times > 0; times /= 2) {
        size_t bytes = device->chunks * times * SIM_CHUNK;
        void *range = mmap(NULL, bytes + SIM_CHUNK, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range != MAP_FAILED) {
            *ret_chunks = device->chunks * times;
            return range;
        }
    }
    fail("zsim: addresses of the device");
}

void sim_heap_init(struct sim_device *device)
{
    struct sim_heap *heap = sim_calloc(1, sizeof *heap);
    void *range = reserve(device, &heap->chunks);
    size_t bytes = heap->chunks * SIM_CHUNK;
    heap->fd = memfd_create("zsim-device", MFD_CLOEXEC);
    if (heap->fd < 0 || ftruncate(heap->fd, (off_t)bytes) != 0) {
        fail("zsim: memory of the device");
    }
    heap->base = ((uintptr_t)range + SIM_CHUNK - 1) & ~(SIM_CHUNK - 1);
    if (mmap((void *)heap->base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, heap->fd,
             0) == MAP_FAILED) {
        fail("zsim: mapping the device");
    }
    heap->state = sim_calloc(heap->chunks, 1);
    heap->dirty = sim_calloc(heap->chunks, 1);
    device->heap = heap;
}

bool sim_chunks_take(struct sim_device *device, size_t count)
{
    if (count > device->chunks - device->used_chunks || !sim_neighbours_take(device, count)) {
        return false;
    }
    device->used_chunks += count;
    return true;
}

void sim_chunks_give(struct sim_device *device, size_t count)
{
    device->used_chunks -= count;
    sim_neighbours_give(device, count);
}

uint64_t zsim_chunks(int ordinal)
{
    sim_lock();
    const struct sim_device *device = sim_device_at(ordinal);
    uint64_t count = device ? device->used_chunks : 0;
    sim_unlock();
    return count;
}

/* First fit, so that a freed address is soon used again, as on the driver. */
static bool chunks_find(struct sim_heap *heap, size_t count, size_t *ret_first)
{
    size_t run = 0;
    for (size_t i = 0; i < heap->chunks; i++) {
        run = heap->state[i] == CHUNK_FREE ? run + 1 : 0;
        if (run == count) {
            *ret_first = i + 1 - count;
            return true;
        }
    }
    return false;
}

static bool chunks_map(struct sim_device *device, size_t count, enum chunk_state state, bool zero,
                       size_t *ret_first)
{
    struct sim_heap *heap = device->heap;
    if (!chunks_find(heap, count, ret_first) || !sim_chunks_take(device, count)) {
        return false;
    }
    size_t first = *ret_first;
    for (size_t i = first; i < first + count; i++) {
        if (zero && heap->dirty[i]) {
            fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(i * SIM_CHUNK),
                      (off_t)SIM_CHUNK);
        }
        heap->state[i] = (unsigned char)state;
        heap->dirty[i] = 1;
    }
    if (mprotect((void *)(heap->base + first * SIM_CHUNK), count * SIM_CHUNK,
                 PROT_READ | PROT_WRITE) != 0) {
        fail("zsim: mapping chunks");
    }
    return true;
}

static void chunks_unmap(struct sim_device *device, size_t first, size_t count)
{
    struct sim_heap *heap = device->heap;
    memset(heap->state + first, CHUNK_FREE, count);
    mprotect((void *)(heap->base + first * SIM_CHUNK), count * SIM_CHUNK, PROT_NONE);
    sim_chunks_give(device, count);
}

static bool slab_take(struct slab *slab, size_t units, size_t *ret_first)
{
    if (units > UNITS - slab->used) {
        return false;
    }
    size_t run = 0;
    for (size_t i = 0; i < UNITS; i++) {
        run = slab->unit[i] ? 0 : run + 1;
        if (run == units) {
            *ret_first = i + 1 - units;
            memset(slab->unit + *ret_first, 1, units);
            slab->used += units;
            return true;
        }
    }
    return false;
}

static bool small_alloc(struct sim_device *device, void *owner, size_t bytes,
                        uintptr_t *ret_address)
{
    struct sim_heap *heap = device->heap;
    size_t unit = 0;
    struct slab *slab = heap->slabs;
    while (slab && (slab->owner != owner || !slab_take(slab, bytes / SIM_UNIT, &unit))) {
        slab = slab->next;
    }
    if (!slab) {
        size_t chunk;
        if (!chunks_map(device, 1, CHUNK_SLAB, false, &chunk)) {
            return false;
        }
        slab = sim_calloc(1, sizeof *slab);
        slab->chunk = chunk;
        slab->owner = owner;
        slab->next = heap->slabs;
        heap->slabs = slab;
        slab_take(slab, bytes / SIM_UNIT, &unit);
    }
    *ret_address = heap->base + slab->chunk * SIM_CHUNK + unit * SIM_UNIT;
    return true;
}

CUresult sim_heap_alloc(struct sim_device *device, void *owner, size_t size, bool zero,
                        uintptr_t *ret_address, size_t *ret_bytes)
{
    size_t capacity = device->chunks * SIM_CHUNK;
    if (size > capacity) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t bytes = (size + SIM_UNIT - 1) & ~(SIM_UNIT - 1);
    if (bytes < SIM_LARGE) {
        if (!small_alloc(device, owner, bytes, ret_address)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (zero) {
            memset((void *)*ret_address, 0, bytes);
        }
    } else {
        bytes = (size + SIM_CHUNK - 1) & ~(SIM_CHUNK - 1);
        size_t first;
        if (!chunks_map(device, bytes / SIM_CHUNK, CHUNK_LARGE, true, &first)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *ret_address = device->heap->base + first * SIM_CHUNK;
    }
    *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

static void small_free(struct sim_device *device, uintptr_t offset, size_t bytes)
{
    struct slab **link = &device->heap->slabs;
    while ((*link)->chunk != offset / SIM_CHUNK) {
        link = &(*link)->next;
    }
    struct slab *slab = *link;
    memset(slab->unit + offset % SIM_CHUNK / SIM_UNIT, 0, bytes / SIM_UNIT);
    slab->used -= bytes / SIM_UNIT;
    if (slab->used == 0) {
        *link = slab->next;
        chunks_unmap(device, slab->chunk, 1);
        free(slab);
    }
}

void sim_heap_free(struct sim_device *device, void *owner, uintptr_t address, size_t bytes)
{
    (void)owner;
    uintptr_t offset = address - device->heap->base;
    if (bytes < SIM_LARGE) {
        small_free(device, offset, bytes);
    } else {
        chunks_unmap(device, offset / SIM_CHUNK, bytes / SIM_CHUNK);
    }
}

bool sim_heap_touches(const struct sim_device *device, uintptr_t address)
{
    const struct sim_heap *heap = device->heap;
    return address >= heap->base && address - heap->base < heap->chunks * SIM_CHUNK;
}

bool sim_heap_mapped(const struct sim_device *device, uintptr_t address, size_t bytes)
{
    const struct sim_heap *heap = device->heap;
    if (bytes == 0) {
        return true;
    }
    size_t first = (address - heap->base) / SIM_CHUNK;
    size_t last = (address - heap->base + bytes - 1) / SIM_CHUNK;
    for (size_t i = first; i <= last; i++) {
        if (i >= heap->chunks || heap->state[i] == CHUNK_FREE) {
            return false;
        }
    }
    return true;
}

int sim_heap_fd(const struct sim_device *device, uintptr_t address, size_t *ret_offset)
{
    *ret_offset = address - device->heap->base;
    return device->heap->fd;
}
