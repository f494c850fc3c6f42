/* SPDX-License-Identifier: Apache-2.0
 *
 * Which streams a pool has lists for: found by the driver's number of the stream, which is never
 * used twice, in buckets that are only ever added to. Lists that are nobody's any more serve a
 * later stream of the same bucket. See stream.h.
 */
#include "stream.h"

#include "meta.h"

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER; /* to add to a bucket */

static uint64_t stream_id(const struct zone_stream *stream)
{
    return atomic_load_explicit(&stream->id, memory_order_acquire);
}

struct zone_stream_table *zone_stream_table_new(size_t slots)
{
    struct zone_stream_table *table =
        zone_meta_alloc(sizeof(*table) + slots * sizeof(table->slots[0]));
    if (table) {
        table->mask = slots - 1;
    }
    return table;
}

/* Lists of nobody in the bucket, or new ones. */
static struct zone_stream *stream_spare_locked(struct zone_pool *pool,
                                               struct zone_stream *_Atomic *bucket)
{
    struct zone_stream *first = atomic_load_explicit(bucket, memory_order_relaxed);
    for (struct zone_stream *stream = first; stream; stream = stream->next) {
        if (stream_id(stream) == 0) {
            return stream;
        }
    }
    struct zone_stream *stream = zone_meta_alloc(sizeof(*stream));
    struct zone_stream_table *table = zone_stream_table_new(ZONE_STREAM_CLASSES);
    if (!stream || !table) {
        return NULL;
    }
    stream->pool = pool;
    atomic_store_explicit(&stream->table, table, memory_order_relaxed);
    stream->next = first;
    atomic_store_explicit(bucket, stream, memory_order_release);
    return stream;
}

static struct zone_stream *stream_look(struct zone_stream *_Atomic *bucket, uint64_t id)
{
    struct zone_stream *stream = atomic_load_explicit(bucket, memory_order_acquire);
    while (stream && stream_id(stream) != id) {
        stream = stream->next;
    }
    return stream;
}

struct zone_stream *zone_stream_look(struct zone_pool *pool, uint64_t id)
{
    return id != 0 ? stream_look(&pool->stream_buckets[id % ZONE_STREAM_BUCKETS], id) : NULL;
}

struct zone_stream *zone_stream_find(struct zone_pool *pool, uint64_t id, void *ctx)
{
    struct zone_stream *_Atomic *bucket = &pool->stream_buckets[id % ZONE_STREAM_BUCKETS];
    struct zone_stream *stream = id != 0 ? stream_look(bucket, id) : NULL;
    if (stream || id == 0) {
        return stream;
    }
    pthread_mutex_lock(&stream_lock);
    stream = stream_look(bucket, id);
    if (!stream) {
        stream = stream_spare_locked(pool, bucket);
        if (stream) {
            zone_lock(&stream->lock);
            for (unsigned i = 0; i < ZONE_STREAM_MARKS && stream->ctx != ctx; i++) {
                stream->marks[i].event = NULL; /* of another context */
            }
            stream->ctx = ctx;
            stream->foreign = ctx != pool->ctx;
            stream->gone = false;
            stream->unmarked = 0;
            zone_unlock(&stream->lock);
            atomic_store_explicit(&stream->id, id, memory_order_release);
            atomic_store_explicit(&pool->streams.any, true, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&stream_lock);
    return stream;
}

void zone_streams_each(struct zone_pool *pool, void (*visit)(struct zone_stream *stream, void *arg),
                       void *arg)
{
    if (!atomic_load_explicit(&pool->streams.any, memory_order_relaxed)) {
        return;
    }
    for (unsigned i = 0; i < ZONE_STREAM_BUCKETS; i++) {
        struct zone_stream *stream =
            atomic_load_explicit(&pool->stream_buckets[i], memory_order_acquire);
        for (; stream; stream = stream->next) {
            if (atomic_load_explicit(&stream->id, memory_order_acquire) != 0) {
                visit(stream, arg);
            }
        }
    }
}

static void largest_visit(struct zone_stream *stream, void *arg)
{
    size_t *largest = arg;
    zone_lock(&stream->lock);
    const struct zone_stream_table *table = zone_stream_table(stream);
    for (size_t i = 0; i <= table->mask; i++) {
        const struct zone_stream_class *slot = &table->slots[i];
        size_t bytes = slot->head ? zone_stream_slot_bytes(slot) : 0;
        *largest = bytes > *largest ? bytes : *largest;
    }
    zone_unlock(&stream->lock);
}

size_t zone_streams_largest(struct zone_pool *pool)
{
    size_t largest = 0;
    zone_streams_each(pool, largest_visit, &largest);
    return largest;
}

/* No block is anybody's: those of a dead context have left the map. */
static void stream_empty(struct zone_stream *stream)
{
    zone_lock(&stream->lock);
    struct zone_stream_table *table = zone_stream_table(stream);
    for (size_t i = 0; i <= table->mask; i++) {
        table->slots[i].head = NULL;
    }
    stream->blocks = 0;
    stream->unmarked = 0;
    stream->head = stream->tail;
    stream->gone = true;
    zone_unlock(&stream->lock);
    atomic_store_explicit(&stream->id, 0, memory_order_release);
}

static void empty_visit(struct zone_stream *stream, void *arg)
{
    (void)arg;
    stream_empty(stream);
}

void zone_streams_forget(struct zone_pool *pool)
{
    zone_streams_each(pool, empty_visit, NULL);
    atomic_store_explicit(&pool->streams.used.now, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->streams.reserved.now, 0, memory_order_relaxed);
}

/* Counts and events of the context before are forgotten with it. */
void zone_streams_init(struct zone_pool *pool)
{
    for (unsigned i = 0; i < ZONE_STREAM_BUCKETS; i++) {
        struct zone_stream *stream =
            atomic_load_explicit(&pool->stream_buckets[i], memory_order_acquire);
        for (; stream; stream = stream->next) {
            stream_empty(stream);
            zone_lock(&stream->lock);
            struct zone_stream_table *table = zone_stream_table(stream);
            for (size_t k = 0; k <= table->mask; k++) {
                atomic_store_explicit(&table->slots[k].bytes, 0, memory_order_relaxed);
                atomic_store_explicit(&table->slots[k].hits, 0, memory_order_relaxed);
                atomic_store_explicit(&table->slots[k].requested, 0, memory_order_relaxed);
            }
            stream->classes = 0;
            stream->newest = 0;
            stream->ready = 0;
            for (unsigned k = 0; k < ZONE_STREAM_MARKS; k++) {
                stream->marks[k].event = NULL;
            }
            zone_unlock(&stream->lock);
        }
    }
}

static uint64_t load(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* Not locked: at exit a thread may have been stopped while it held the lock. */
static void count_lists(const struct zone_stream *stream, struct zone_counters *ret,
                        uint64_t *ret_served, uint64_t *ret_requested)
{
    struct zone_stream_table *table = atomic_load_explicit(&stream->table, memory_order_acquire);
    for (size_t i = 0; i <= table->mask; i++) {
        const struct zone_stream_class *slot = &table->slots[i];
        size_t bytes = atomic_load_explicit(&slot->bytes, memory_order_acquire);
        if (bytes == 0) {
            continue;
        }
        uint64_t hits = load(&slot->hits);
        uint64_t misses = load(&slot->bin->misses);
        ret->hits += hits;
        ret->stream_hits += hits;
        ret->saved_ns += misses > 0 ? hits * (load(&slot->bin->miss_ns) / misses) : 0;
        *ret_served += hits * bytes;
        *ret_requested += load(&slot->requested);
    }
}

/* Also of lists that are nobody's by now. */
void zone_streams_count(struct zone_pool *pool, struct zone_counters *ret, uint64_t *ret_served,
                        uint64_t *ret_requested)
{
    for (unsigned i = 0; i < ZONE_STREAM_BUCKETS; i++) {
        const struct zone_stream *stream =
            atomic_load_explicit(&pool->stream_buckets[i], memory_order_acquire);
        for (; stream; stream = stream->next) {
            count_lists(stream, ret, ret_served, ret_requested);
        }
    }
}
