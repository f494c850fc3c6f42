/* SPDX-License-Identifier: Apache-2.0
 *
 * The device: see thread_gpu.h. A stream is a ring of work with two counters; an event is a copy of
 * the submitted counters, complete when the finished counters have passed it. Fills have a stream
 * of their own behind the program's.
 */
#include "thread_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STREAMS_MAX = 16,
    RING = 256,
    SLOTS = 1 << 15, /* allocations at a time */
    EVENTS = 1 << 12,
    WORKERS = 2,
    SLOT_BITS = 24, /* address of a slot: its number shifted by so much */
};

struct work {
    zone_addr_t addr;
    uint64_t mark;
};

struct stream {
    pthread_mutex_t lock; /* of those who submit */
    pthread_mutex_t turn; /* of those who work */
    _Atomic uint64_t submitted;
    _Atomic uint64_t finished;
    struct work ring[RING];
};

struct slot {
    _Atomic uint64_t mark;
    _Atomic size_t bytes; /* 0: free */
};

struct event {
    uint64_t covers[STREAMS_MAX];
};

static struct thread_gpu_setup setup;
static struct stream streams[STREAMS_MAX];
static struct slot slots[SLOTS];
static unsigned free_slots[SLOTS];
static unsigned free_count;
static size_t used, segments, peak;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS];
static _Atomic unsigned events_made;
static pthread_t workers[WORKERS];
static _Atomic bool stopping;
static _Atomic unsigned long changed;
static _Atomic unsigned calls_seen;

_Noreturn static void broken(const char *what)
{
    fprintf(stderr, "device: %s\n", what);
    abort();
}

/* Memory */

static struct slot *slot_at(zone_addr_t addr)
{
    uint64_t number = addr >> SLOT_BITS;
    if (number == 0 || number > SLOTS || addr != number << SLOT_BITS) {
        broken("no such address");
    }
    return &slots[number - 1];
}

static int gpu_alloc(zone_addr_t *ret_addr, size_t bytes)
{
    int rc = ZONE_GPU_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    if (used + bytes <= setup.capacity && free_count > 0) {
        unsigned number = free_slots[--free_count];
        atomic_store(&slots[number].bytes, bytes);
        *ret_addr = (zone_addr_t)(number + 1) << SLOT_BITS;
        used += bytes;
        peak = used > peak ? used : peak;
        segments++;
        rc = ZONE_GPU_OK;
    }
    pthread_mutex_unlock(&memory_lock);
    return rc;
}

static bool all_finished(const struct event *event)
{
    for (unsigned s = 0; s <= setup.streams; s++) {
        if (atomic_load(&streams[s].finished) < event->covers[s]) {
            return false;
        }
    }
    return true;
}

static void take_snapshot(struct event *event)
{
    for (unsigned s = 0; s <= setup.streams; s++) {
        event->covers[s] = atomic_load(&streams[s].submitted);
    }
}

static void wait_for(const struct event *event)
{
    while (!all_finished(event)) {
        sched_yield();
    }
}

static int gpu_synchronize(void *ctx)
{
    struct event all;
    (void)ctx;
    take_snapshot(&all);
    wait_for(&all);
    return ZONE_GPU_OK;
}

static int gpu_free(zone_addr_t addr)
{
    struct slot *slot = slot_at(addr);
    gpu_synchronize(NULL);
    pthread_mutex_lock(&memory_lock);
    size_t bytes = atomic_exchange(&slot->bytes, 0);
    if (bytes == 0) {
        broken("memory that is not held is given back");
    }
    atomic_store(&slot->mark, 0);
    used -= bytes;
    segments--;
    free_slots[free_count++] = (unsigned)(slot - slots);
    pthread_mutex_unlock(&memory_lock);
    return ZONE_GPU_OK;
}

void thread_gpu_mark(zone_addr_t addr, uint64_t mark)
{
    atomic_store(&slot_at(addr)->mark, mark);
}

size_t thread_gpu_used(void)
{
    return used;
}

size_t thread_gpu_segments(void)
{
    return segments;
}

size_t thread_gpu_peak(void)
{
    return peak;
}

/* Events */

static bool refused(void)
{
    return setup.refuse_every > 0 && atomic_fetch_add(&calls_seen, 1) % setup.refuse_every == 0;
}

static int gpu_event_create(void *ctx, void **ret_event)
{
    unsigned number = atomic_fetch_add(&events_made, 1);
    (void)ctx;
    if (number >= EVENTS) {
        broken("more events than the fence can use");
    }
    *ret_event = &events[number];
    return ZONE_GPU_OK;
}

static int gpu_record(void *ctx, void *event)
{
    (void)ctx;
    if (refused()) {
        return ZONE_GPU_REFUSED;
    }
    take_snapshot(event);
    return ZONE_GPU_OK;
}

static int gpu_query(void *event)
{
    if (refused()) {
        return ZONE_GPU_REFUSED;
    }
    return all_finished(event) ? ZONE_GPU_OK : ZONE_GPU_NOT_READY;
}

static int gpu_wait(void *event)
{
    wait_for(event);
    return ZONE_GPU_OK;
}

static int gpu_mem_info(void *ctx, size_t *ret_free, size_t *ret_total)
{
    (void)ctx;
    pthread_mutex_lock(&memory_lock);
    *ret_free = setup.capacity - used;
    *ret_total = setup.capacity;
    pthread_mutex_unlock(&memory_lock);
    return ZONE_GPU_OK;
}

static uint64_t gpu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void gpu_sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(ns % 1000000000)}, NULL);
}

/* Work */

static void submit(struct stream *to, zone_addr_t addr, uint64_t mark)
{
    pthread_mutex_lock(&to->lock);
    uint64_t number = atomic_load(&to->submitted);
    while (number - atomic_load(&to->finished) >= RING) {
        sched_yield();
    }
    to->ring[number % RING] = (struct work){addr, mark};
    atomic_store(&to->submitted, number + 1);
    pthread_mutex_unlock(&to->lock);
}

void thread_gpu_launch(unsigned stream, zone_addr_t addr, uint64_t mark)
{
    submit(&streams[stream % setup.streams], addr, mark);
}

uint64_t thread_gpu_marked(zone_addr_t addr)
{
    return atomic_load(&slot_at(addr)->mark);
}

static int gpu_fill_open(void *ctx, void **ret_stream)
{
    (void)ctx;
    *ret_stream = &streams[setup.streams];
    return ZONE_GPU_OK;
}

static int gpu_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with)
{
    (void)ctx;
    (void)with;
    if (refused()) {
        return ZONE_GPU_REFUSED;
    }
    if (atomic_load(&slot_at(addr)->bytes) != bytes) {
        broken("a fill of something else than a block");
    }
    submit(stream, addr, THREAD_GPU_FILLED);
    return ZONE_GPU_OK;
}

static int gpu_fill_mark(void *ctx, void *stream, void **event)
{
    int rc = *event ? ZONE_GPU_OK : gpu_event_create(ctx, event);
    if (rc == ZONE_GPU_OK) {
        struct event *all = *event;
        memset(all, 0, sizeof(*all));
        all->covers[setup.streams] = atomic_load(&((struct stream *)stream)->submitted);
    }
    return rc;
}

static int gpu_fill_done(void *event)
{
    return all_finished(event) ? ZONE_GPU_OK : ZONE_GPU_NOT_READY;
}

/* Does one piece of the stream's work if there is any. */
static bool work_once(struct stream *stream)
{
    if (pthread_mutex_trylock(&stream->turn) != 0) {
        return false;
    }
    uint64_t number = atomic_load(&stream->finished);
    bool some = number < atomic_load(&stream->submitted);
    if (some) {
        struct work work = stream->ring[number % RING];
        sched_yield();
        if (work.mark == THREAD_GPU_FILLED) {
            thread_gpu_mark(work.addr, work.mark);
        } else if (atomic_load(&slot_at(work.addr)->mark) != work.mark) {
            atomic_fetch_add(&changed, 1);
        }
        atomic_store(&stream->finished, number + 1);
    }
    pthread_mutex_unlock(&stream->turn);
    return some;
}

/* Streams go ahead unevenly: each worker stays with one for a while. */
static void *worker(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    while (!atomic_load(&stopping)) {
        seed = seed * 1103515245 + 12345;
        struct stream *stream = &streams[(seed >> 16) % (setup.streams + 1)];
        unsigned pieces = (seed >> 8) % 64;
        while (pieces > 0 && work_once(stream)) {
            pieces--;
        }
        sched_yield();
    }
    return NULL;
}

/* Whether a free is allowed now, asked with memory of its own. */
static int gpu_free_nothing(void *ctx)
{
    zone_addr_t own;
    (void)ctx;
    int rc = gpu_alloc(&own, 1);
    return rc == ZONE_GPU_OK ? gpu_free(own) : rc == ZONE_GPU_OUT_OF_MEMORY ? ZONE_GPU_OK : rc;
}

static const struct zone_gpu table = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .free_nothing = gpu_free_nothing,
    .event_create = gpu_event_create,
    .record = gpu_record,
    .query = gpu_query,
    .wait = gpu_wait,
    .synchronize = gpu_synchronize,
    .fill_open = gpu_fill_open,
    .fill = gpu_fill,
    .fill_mark = gpu_fill_mark,
    .fill_done = gpu_fill_done,
    .mem_info = gpu_mem_info,
    .now_ns = gpu_now_ns,
    .sleep_ns = gpu_sleep_ns,
};

const struct zone_gpu *thread_gpu(void)
{
    return &table;
}

void thread_gpu_start(const struct thread_gpu_setup *what)
{
    static unsigned seeds[WORKERS] = {1, 7};
    setup = *what;
    if (setup.streams >= STREAMS_MAX) {
        broken("too many streams");
    }
    free_count = 0;
    for (unsigned i = SLOTS; i > 0; i--) {
        free_slots[free_count++] = i - 1;
    }
    for (unsigned s = 0; s < STREAMS_MAX; s++) {
        pthread_mutex_init(&streams[s].lock, NULL);
        pthread_mutex_init(&streams[s].turn, NULL);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        if (pthread_create(&workers[i], NULL, worker, &seeds[i]) != 0) {
            broken("no thread");
        }
    }
}

unsigned long thread_gpu_stop(void)
{
    gpu_synchronize(NULL);
    atomic_store(&stopping, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        pthread_join(workers[i], NULL);
    }
    return atomic_load(&changed);
}
