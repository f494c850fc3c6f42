/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool under many threads, on a device whose work is done by threads of its own: each thread
 * allocates, launches work, frees in both ways, frees what others allocated, frees twice, taints. A
 * block that is handed out too early is seen by the work that still used it; two owners of one
 * block by its mark. At the end every byte is accounted for. Usage: stress_pool CONF REFUSE_EVERY
 * SECONDS SEED, all may be left out from the end.
 */
#include "pool.h"
#include "ptrmap.h"
#include "registry.h"
#include "thread_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, HELD = 24, BOXES = 16 };

struct held {
    zone_addr_t addr;
    uint64_t mark;
};

/* Where threads leave blocks for others to free. */
struct box {
    pthread_mutex_t lock;
    struct held held;
};

static char context;
static struct zone_options options;
static struct zone_process process;
static struct zone_pool *pool;
static struct box boxes[BOXES];
static _Atomic bool stop;
static _Atomic unsigned long wrong, served, refused, doubles;
static _Atomic uint64_t next_mark = 1;

static void complain(const char *what, zone_addr_t addr)
{
    if (atomic_fetch_add(&wrong, 1) < 10) {
        printf("%s: %llx\n", what, (unsigned long long)addr);
    }
}

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
}

static size_t random_size(uint64_t *seed)
{
    static const size_t sizes[] = {512,      1000,         4096,         100000,
                                   ZONE_MIB, 2 * ZONE_MIB, 5 * ZONE_MIB, 16 * ZONE_MIB};
    uint64_t pick = random_next(seed);
    return sizes[pick % (pick % 3 ? 4 : 8)];
}

static bool allocate(uint64_t *seed, struct held *ret)
{
    zone_addr_t addr = 0;
    size_t bytes = random_size(seed);
    if (zone_pool_alloc(pool, bytes, &addr) != ZONE_GPU_OK) {
        atomic_fetch_add(&refused, 1);
        return false;
    }
    struct zone_block *block = zone_ptrmap_get(addr);
    if (!block || block->addr != addr || block->req_bytes != bytes ||
        atomic_load(&block->state) != ZONE_BLOCK_LIVE) {
        complain("a block that was handed out is not live", addr);
        return false;
    }
    if (pool->fill.on && options.junk_fill && thread_gpu_marked(addr) != THREAD_GPU_FILLED) {
        complain("a block was handed out before its fill", addr);
    }
    *ret = (struct held){addr, atomic_fetch_add(&next_mark, 1)};
    thread_gpu_mark(addr, ret->mark);
    atomic_fetch_add(&served, 1);
    return true;
}

static void release(uint64_t *seed, const struct held *held)
{
    struct zone_block *block = zone_ptrmap_get(held->addr);
    uint64_t pick = random_next(seed);
    if (!block || !zone_block_claim(block)) {
        complain("a live block cannot be freed", held->addr);
        return;
    }
    if (pick % 97 == 0) {
        zone_pool_taint(block);
    }
    int rc = zone_pool_free(block, pick % 5 == 0 ? ZONE_FREE_BY_STREAM : ZONE_FREE_BY_FREE);
    if (rc != ZONE_GPU_OK) {
        complain("a free failed", held->addr);
    }
}

/* A block that is surely freed, because nobody else knows its address yet, is freed again. */
static void free_twice(uint64_t *seed)
{
    struct held held;
    if (!allocate(seed, &held)) {
        return;
    }
    struct zone_block *block = zone_ptrmap_get(held.addr);
    bool first = zone_block_claim(block);
    bool second = zone_block_claim(block);
    if (!first || second) {
        complain("a double free was not noticed", held.addr);
    }
    zone_pool_free(block, ZONE_FREE_BY_FREE);
    atomic_fetch_add(&doubles, 1);
}

/* Puts a block into a box and takes out what was there. */
static struct held exchange(uint64_t *seed, struct held held)
{
    struct box *box = &boxes[random_next(seed) % BOXES];
    pthread_mutex_lock(&box->lock);
    struct held other = box->held;
    box->held = held;
    pthread_mutex_unlock(&box->lock);
    return other;
}

static void one_step(uint64_t *seed, struct held *slot, unsigned thread)
{
    uint64_t pick = random_next(seed) % 100;
    if (slot->addr == 0) {
        if (pick < 2) {
            free_twice(seed);
        } else {
            allocate(seed, slot);
        }
    } else if (pick < 45) {
        /* Mostly on its own stream, at times on another. */
        unsigned stream = pick < 40 ? thread : (unsigned)random_next(seed);
        thread_gpu_launch(stream, slot->addr, slot->mark);
    } else if (pick < 60) {
        *slot = exchange(seed, *slot);
    } else {
        release(seed, slot);
        slot->addr = 0;
    }
}

struct thread_start {
    unsigned number;
    uint64_t seed;
    pthread_t thread;
};

static void *thread_main(void *arg)
{
    struct thread_start *start = arg;
    uint64_t seed = start->seed * 1000 + start->number;
    struct held held[HELD] = {{0}};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        one_step(&seed, &held[random_next(&seed) % HELD], start->number);
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (held[i].addr != 0) {
            release(&seed, &held[i]);
        }
    }
    return NULL;
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("%s\n", line);
}

/* Everything was freed: what is reserved is cached, and is what the device has given out. */
static void check_end(uint64_t seed)
{
    struct zone_counters counters;
    for (unsigned i = 0; i < BOXES; i++) {
        if (boxes[i].held.addr != 0) {
            release(&seed, &boxes[i].held);
        }
    }
    zone_counters_init(&counters);
    zone_pool_count(pool, &counters);
    const char *text = zone_counters_check(&counters);
    if (text) {
        printf("does not add up: %s\n", text);
        atomic_fetch_add(&wrong, 1);
    }
    if (counters.allocated_bytes.current != 0 || counters.requested_bytes.current != 0 ||
        counters.allocation.current != 0) {
        complain("all was freed, but something is allocated", 0);
    }
    if (counters.reserved_bytes.current != thread_gpu_used() ||
        counters.segment.current != thread_gpu_segments()) {
        complain("what is reserved is not what the device gave out", 0);
    }
    if (counters.reserved_bytes.current != zone_limit_used(0) ||
        thread_gpu_peak() > zone_limit_bytes(0)) {
        complain("a limit was passed, or what counts is not what is reserved", 0);
    }
    uint64_t deadline = 0;
    size_t cached = zone_ledger_cached(&pool->ledger);
    /* A refused record leaves its blocks to the next one. */
    for (unsigned i = 0; i < 100 && zone_ledger_cached(&pool->ledger) > 0; i++) {
        cached -= zone_pool_rescue(pool, &deadline);
    }
    if (cached != 0 || thread_gpu_used() != 0 || !zone_fence_is_quiet(&pool->fence)) {
        complain("not all can be given back", 0);
    }
}

static int run(const char *conf, unsigned refuse_every, double seconds, uint64_t seed)
{
    static struct thread_start starts[THREADS];
    struct zone_context_facts facts = {.ctx = &context, .primary = true};
    thread_gpu_start(&(struct thread_gpu_setup){
        .streams = THREADS, .capacity = 512 * ZONE_MIB, .refuse_every = refuse_every});
    zone_options_init(&options);
    if (zone_options_parse(&options, "CONF", conf, say, NULL) != 0) {
        return EXIT_FAILURE;
    }
    process.gpu = thread_gpu();
    process.options = &options;
    pool = zone_registry_make(&process, &facts);
    for (unsigned i = 0; i < BOXES; i++) {
        pthread_mutex_init(&boxes[i].lock, NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        starts[i].number = i;
        starts[i].seed = seed;
        if (pthread_create(&starts[i].thread, NULL, thread_main, &starts[i]) != 0) {
            return EXIT_FAILURE;
        }
    }
    uint64_t until = process.gpu->now_ns() + (uint64_t)(seconds * 1e9);
    while (process.gpu->now_ns() < until && atomic_load(&wrong) == 0) {
        process.gpu->sleep_ns(10000000);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(starts[i].thread, NULL);
    }
    check_end(seed);
    unsigned long changed = thread_gpu_stop();
    printf("%lu allocations, %lu refused, %lu double frees; %lu faults, %lu blocks changed under "
           "running work\n",
           atomic_load(&served), atomic_load(&refused), atomic_load(&doubles), atomic_load(&wrong),
           changed);
    return atomic_load(&wrong) == 0 && changed == 0 && atomic_load(&served) > 0 ? EXIT_SUCCESS
                                                                                : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const char *conf = argc > 1 ? argv[1] : "";
    unsigned refuse_every = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 1;
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    return run(conf, refuse_every, seconds, seed);
}
