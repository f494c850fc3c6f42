/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of allocations, sorted by address, and what work may touch.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct sim_block **blocks;
static size_t count, room;
static unsigned long long last_id;

/* Index of the first block that starts above the address. */
static size_t above(uintptr_t address)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct sim_block *sim_block_add(uintptr_t address, size_t size, size_t bytes,
                                enum sim_memory memory, struct sim_ctx *ctx)
{
    struct sim_block *block = sim_calloc(1, sizeof *block);
    block->address = address;
    block->size = size;
    block->bytes = bytes;
    block->memory = memory;
    block->ctx = ctx ? ctx->owner : NULL;
    block->device = ctx ? ctx->device : NULL;
    block->id = ++last_id;
    size_t at = above(address);
    blocks = sim_grow(blocks, &room, count + 1, sizeof *blocks);
    memmove(blocks + at + 1, blocks + at, (count - at) * sizeof(struct sim_block *));
    blocks[at] = block;
    count++;
    return block;
}

struct sim_block *sim_block_at(uintptr_t address)
{
    size_t at = above(address);
    struct sim_block *block = at > 0 ? blocks[at - 1] : NULL;
    return block && address - block->address < block->bytes ? block : NULL;
}

struct sim_block *sim_block_from(uintptr_t address)
{
    struct sim_block *block = sim_block_at(address);
    return block && block->address == address ? block : NULL;
}

void sim_block_remove(struct sim_block *block)
{
    size_t at = above(block->address) - 1;
    memmove(blocks + at, blocks + at + 1, (count - at - 1) * sizeof(struct sim_block *));
    count--;
    free(block);
}

void sim_block_release(struct sim_block *block)
{
    switch (block->memory) {
    case SIM_DEVICE:
        sim_heap_free(block->device, block->owner, block->address, block->bytes);
        break;
    case SIM_ASYNC:
        sim_pool_release(block);
        return;
    case SIM_RANGE:
        sim_range_unmap(block);
        return;
    case SIM_IMPORT:
        sim_import_unmap(block);
        return;
    case SIM_MANAGED:
    case SIM_BUFFER:
        munmap((void *)block->address, block->bytes);
        break;
    case SIM_HOST:
        if (!block->registered) {
            sim_host_release(block->address, block->bytes);
        }
        break;
    }
    sim_block_remove(block);
}

/* Stream-ordered memory and mapped ranges belong to the device and outlive a context. */
void sim_block_release_ctx(struct sim_ctx *ctx)
{
    for (size_t i = count; i > 0; i--) {
        struct sim_block *block = blocks[i - 1];
        if (block->ctx == ctx && block->memory != SIM_ASYNC && block->memory != SIM_RANGE) {
            sim_block_release(block);
        }
    }
}

struct sim_block *sim_block_each(struct sim_block *after)
{
    size_t at = after ? above(after->address) : 0;
    return at < count ? blocks[at] : NULL;
}

static bool reaches(const struct sim_ctx *ctx, const struct sim_device *device)
{
    return ctx->device == device || (ctx->owner->peers & ((uint64_t)1 << device->ordinal));
}

static struct sim_device *heap_of(uintptr_t address)
{
    struct sim_device *device;
    for (int i = 0; (device = sim_device_at(i)); i++) {
        if (sim_heap_touches(device, address)) {
            return device;
        }
    }
    return NULL;
}

static bool may_touch(const struct sim_ctx *ctx, uintptr_t address, size_t bytes)
{
    const struct sim_device *device = heap_of(address);
    if (device) {
        /* Inside a mapped chunk the hardware does not know one allocation from the next. */
        return reaches(ctx, device) && sim_heap_mapped(device, address, bytes);
    }
    while (bytes > 0) {
        const struct sim_block *block = sim_block_at(address);
        if (!block) {
            return false;
        }
        if (block->memory == SIM_RANGE &&
            !(block->access & ((uint64_t)1 << ctx->device->ordinal))) {
            return false;
        }
        size_t here = block->address + block->bytes - address;
        here = here < bytes ? here : bytes;
        address += here;
        bytes -= here;
    }
    return true;
}

bool sim_may_touch(struct sim_ctx *ctx, const void *address, size_t bytes)
{
    sim_lock();
    bool allowed = may_touch(ctx, (uintptr_t)address, bytes);
    sim_unlock();
    return allowed;
}

bool sim_copyable(const void *address, size_t bytes)
{
    sim_lock();
    const struct sim_device *device = heap_of((uintptr_t)address);
    bool fine = !device || sim_heap_mapped(device, (uintptr_t)address, bytes);
    sim_unlock();
    return fine;
}

bool sim_copy_allowed(const struct sim_ctx *ctx, const void *address, size_t bytes)
{
    uintptr_t at = (uintptr_t)address;
    while (bytes > 0) {
        const struct sim_block *block = sim_block_at(at);
        if (!block || (block->memory == SIM_RANGE &&
                       !(block->access & ((uint64_t)1 << ctx->device->ordinal)))) {
            return false;
        }
        size_t here = block->address + block->bytes - at;
        here = here < bytes ? here : bytes;
        at += here;
        bytes -= here;
    }
    return true;
}

size_t sim_block_count(void)
{
    return count;
}

bool sim_on_device(const void *address)
{
    const struct sim_block *block = sim_block_at((uintptr_t)address);
    return block && block->memory != SIM_HOST && block->memory != SIM_MANAGED;
}

bool sim_is_pageable(const void *address)
{
    return !sim_block_at((uintptr_t)address) && !heap_of((uintptr_t)address);
}
