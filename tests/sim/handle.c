/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of live handles, so that a stale or foreign one is answered with an error code, as the
 * driver does, and not followed. A hash table with open addressing, under the one lock.
 */
#include "sim.h"

#include <stdlib.h>

struct entry {
    void *handle;
    enum sim_kind kind;
    struct sim_ctx *ctx;
};

static struct entry *table;
static size_t slots, used; /* used counts tombstones too */

static char tombstone;

static size_t slot_of(const void *handle, size_t count)
{
    return (size_t)(((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15u >> 20) & (count - 1);
}

static struct entry *find(const void *handle)
{
    if (!handle || slots == 0) {
        return NULL;
    }
    for (size_t i = slot_of(handle, slots); table[i].handle; i = (i + 1) & (slots - 1)) {
        if (table[i].handle == handle) {
            return &table[i];
        }
    }
    return NULL;
}

static void insert(struct entry entry)
{
    size_t i = slot_of(entry.handle, slots);
    while (table[i].handle) {
        i = (i + 1) & (slots - 1);
    }
    table[i] = entry;
    used++;
}

static void rehash(void)
{
    struct entry *old = table;
    size_t old_slots = slots;
    size_t live = 0;
    for (size_t i = 0; i < old_slots; i++) {
        live += old[i].handle && old[i].handle != &tombstone;
    }
    slots = 64;
    while (slots < live * 4) {
        slots *= 2;
    }
    table = sim_calloc(slots, sizeof *table);
    used = 0;
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i].handle && old[i].handle != &tombstone) {
            insert(old[i]);
        }
    }
    free(old);
}

void sim_handle_add(void *handle, enum sim_kind kind, struct sim_ctx *ctx)
{
    if ((used + 1) * 2 > slots) {
        rehash();
    }
    insert((struct entry){handle, kind, ctx});
}

void sim_handle_drop(void *handle)
{
    struct entry *entry = find(handle);
    if (entry) {
        *entry = (struct entry){.handle = &tombstone};
    }
}

bool sim_handle_is(const void *handle, enum sim_kind kind)
{
    const struct entry *entry = find(handle);
    return entry && entry->kind == kind;
}

size_t sim_handle_count(enum sim_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < slots; i++) {
        count += table[i].handle && table[i].handle != &tombstone && table[i].kind == kind;
    }
    return count;
}

void *sim_handle_of_ctx(const struct sim_ctx *ctx, enum sim_kind *ret_kind)
{
    for (size_t i = 0; i < slots; i++) {
        if (table[i].handle && table[i].handle != &tombstone && table[i].ctx == ctx) {
            *ret_kind = table[i].kind;
            return table[i].handle;
        }
    }
    return NULL;
}
