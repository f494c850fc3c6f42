/* SPDX-License-Identifier: Apache-2.0
 *
 * A bump allocator over anonymous mappings. Its one lock is held for a few instructions, or for an
 * mmap when a chunk is used up.
 */
#include "meta.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { META_CHUNK = 1 << 18, META_ALIGN = 64 };

static pthread_mutex_t meta_lock = PTHREAD_MUTEX_INITIALIZER;
static char *meta_next;
static size_t meta_left;
static _Atomic size_t meta_bytes;

size_t zone_meta_bytes(void)
{
    return atomic_load_explicit(&meta_bytes, memory_order_relaxed);
}

static void *meta_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    atomic_fetch_add_explicit(&meta_bytes, bytes, memory_order_relaxed);
    return memory;
}

void *zone_meta_alloc(size_t bytes)
{
    bytes = (bytes + META_ALIGN - 1) & ~(size_t)(META_ALIGN - 1);
    if (bytes >= META_CHUNK) {
        return meta_map(bytes);
    }
    pthread_mutex_lock(&meta_lock);
    if (meta_left < bytes) {
        char *chunk = meta_map(META_CHUNK);
        meta_left = chunk ? META_CHUNK : 0;
        meta_next = chunk;
    }
    void *memory = NULL;
    if (meta_left >= bytes) {
        memory = meta_next;
        meta_next += bytes;
        meta_left -= bytes;
    }
    pthread_mutex_unlock(&meta_lock);
    return memory;
}
