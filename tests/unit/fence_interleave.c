/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence's protocol in every order of two threads that launch work, free and allocate blocks of
 * one size class, on the real pool/fence.c. The device is adversarial: work ends only when an event
 * that covers it is seen complete or waited for, and whether a question finds its event complete is
 * tried both ways. Broken are: a block handed out while work of its former owner runs, a call about
 * an event that others have recorded again or that is not recorded, a wait for work that came after
 * the free, and a fence that is not empty at the end.
 */
#include "fence_world.h"
#include "interleave_hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fence_world w;
struct zone_fence fence;
static bool failing_records; /* of this scenario */

/* The lock: a section under it is one step. */

void interleave_lock(zone_lock_t *lock)
{
    interleave_step("lock");
    if (atomic_exchange(lock, 1) != 0) {
        interleave_fail("the lock is held across a step");
    }
}

void interleave_unlock(zone_lock_t *lock)
{
    atomic_store(lock, 0);
    for (unsigned i = 0; i < w.made; i++) {
        w.events[i].changed[interleave_thread()] = false;
    }
}

/* The device */

static bool covered_complete(const struct event *event)
{
    for (unsigned i = 0; i < event->covers; i++) {
        if (!w.work[i].complete) {
            return false;
        }
    }
    return true;
}

static void complete(const struct event *event)
{
    for (unsigned i = 0; i < event->covers; i++) {
        w.work[i].complete = true;
    }
}

static int device_event_create(void *ctx, void **ret_event)
{
    (void)ctx;
    if (w.made == EVENTS) {
        interleave_fail("more events than marks");
        return 2;
    }
    w.events[w.made] = (struct event){.state = EVENT_NEW};
    *ret_event = &w.events[w.made++];
    return 0;
}

static int device_record(void *ctx, void *arg)
{
    struct event *event = arg;
    (void)ctx;
    interleave_step("record");
    if (event->state == EVENT_DEAD) {
        interleave_fail("an event of a dead context is recorded");
    }
    w.actors[interleave_thread()].may_await = w.works;
    if (failing_records && interleave_choose(2, "… fails")) {
        event->state = EVENT_FAILED;
        return ZONE_GPU_REFUSED;
    }
    *event = (struct event){EVENT_RECORDED, w.works, {true, true}};
    interleave_step("recorded");
    return 0;
}

/* The event is still what it was when the thread chose it under the lock. */
static void check_event(const struct event *event, const char *call)
{
    if (event->state == EVENT_DEAD) {
        interleave_fail("%s of an event of a dead context", call);
    } else if (event->state != EVENT_RECORDED) {
        interleave_fail("%s of an event that is not recorded", call);
    } else if (event->changed[interleave_thread()]) {
        interleave_fail("%s of an event that was recorded again meanwhile", call);
    }
}

static int device_query(void *arg)
{
    struct event *event = arg;
    interleave_step("query");
    check_event(event, "query");
    if (!covered_complete(event)) {
        if (!interleave_choose(2, "… is complete")) {
            return ZONE_GPU_NOT_READY;
        }
        complete(event);
    }
    return 0;
}

static int device_wait(void *arg)
{
    struct event *event = arg;
    interleave_step("wait");
    check_event(event, "wait");
    if (event->covers > w.actors[interleave_thread()].may_await) {
        interleave_fail("a free waits for work that came after it");
    }
    complete(event);
    return 0;
}

static uint64_t device_now(void)
{
    return 0;
}

static const struct zone_gpu device = {
    .event_create = device_event_create,
    .record = device_record,
    .query = device_query,
    .wait = device_wait,
    .now_ns = device_now,
};

/* What the threads do */

static void op_launch(int thread, int arg)
{
    (void)arg;
    int block = w.actors[thread].held;
    interleave_step("launch");
    if (block >= 0 && w.actors[thread].held == block) {
        w.work[w.works++] = (struct work){block, false};
    }
}

/* The block goes to the end of the bin, unless its context died meanwhile. */
static void push(int block, uint64_t stamp, unsigned generation)
{
    interleave_step("push");
    if (block >= 0 && generation == w.generation) {
        w.blocks[block] = (struct block){BLOCK_FREED, stamp};
        w.queue[w.queued++] = block;
    }
}

static int let_go(int thread)
{
    int block = w.actors[thread].held;
    w.actors[thread].held = -1;
    return block;
}

/* A small free: no record. */
static void op_stamp(int thread, int arg)
{
    (void)arg;
    unsigned generation = w.generation;
    int block = let_go(thread);
    interleave_step("stamp");
    push(block, zone_fence_stamp(&fence), generation);
}

/* A free that records; arg says whether it also waits until nothing is pending. */
static void op_free(int thread, int arg)
{
    struct zone_ticket ticket;
    unsigned generation = w.generation;
    int block = let_go(thread);
    w.actors[thread].may_await = w.works;
    zone_fence_close(&fence, &device, &w, 1, true, &ticket);
    push(block, ticket.epoch, generation);
    if (arg && generation == w.generation) {
        uint64_t waited;
        zone_fence_settle_to(&fence, &device, &ticket, 0, &waited);
    }
    w.actors[thread].may_await = 0;
}

/* Takes the head of the bin if it is ready. */
static bool take_head(int thread, uint64_t *ret_stamp)
{
    interleave_step("take");
    *ret_stamp = 0;
    if (w.queued == 0) {
        return false;
    }
    int block = w.queue[0];
    if (w.blocks[block].stamp > zone_fence_ready(&fence)) {
        *ret_stamp = w.blocks[block].stamp;
        return false;
    }
    memmove(w.queue, w.queue + 1, --w.queued * sizeof(w.queue[0]));
    for (unsigned i = 0; i < w.works; i++) {
        if (w.work[i].block == block && !w.work[i].complete) {
            interleave_fail("block %d is handed out while work %u still uses it", block, i);
        }
    }
    w.blocks[block].state = BLOCK_HELD;
    w.actors[thread].held = block;
    return true;
}

/* As zone_pool_alloc: a ready block, ask once, grow. */
static void op_alloc(int thread, int arg)
{
    uint64_t stamp;
    int fault = 0;
    (void)arg;
    if (take_head(thread, &stamp)) {
        return;
    }
    if (stamp > 0 && zone_fence_ask(&fence, &device, stamp, &fault) && take_head(thread, &stamp)) {
        return;
    }
    interleave_step("grow");
    for (int i = 0; i < BLOCKS; i++) {
        if (w.blocks[i].state == BLOCK_NONE) {
            w.blocks[i].state = BLOCK_HELD;
            w.actors[thread].held = i;
            return;
        }
    }
    interleave_fail("the scenario needs more blocks");
}

/* The context dies, and its pool is used for another one as soon as no thread is in it. */
static void op_reset(int thread, int arg)
{
    (void)thread;
    (void)arg;
    if (!zone_fence_is_quiet(&fence)) {
        return;
    }
    zone_fence_init(&fence);
    for (unsigned i = 0; i < w.works; i++) {
        w.work[i].complete = true;
    }
    for (unsigned i = 0; i < w.made; i++) {
        w.events[i].state = EVENT_DEAD;
    }
    memset(w.blocks, 0, sizeof(w.blocks));
    for (int i = 0; i < INTERLEAVE_THREADS; i++) {
        w.actors[i].held = -1;
        w.actors[i].may_await =
            WORK; /* a free beside the end of its context is the program's race */
    }
    w.queued = 0;
    w.generation++;
}

/* Scenarios */

static void begin(void)
{
    memset(&w, 0, sizeof(w));
    zone_fence_init(&fence);
    for (int i = 0; i < INTERLEAVE_THREADS; i++) {
        w.actors[i].held = i;
        w.blocks[i].state = BLOCK_HELD;
    }
}

/* Nothing is lost: whatever was freed becomes ready with one more free. */
static void finish(void)
{
    for (uint64_t i = fence.head; i < fence.tail; i++) {
        if (fence.marks[i % ZONE_FENCE_MARKS].users != 0) {
            interleave_fail("a mark is in use by nobody");
        }
    }
    if (fence.recording != 0 || fence.lock != 0) {
        interleave_fail("a thread left something behind");
    }
    for (uint64_t i = fence.head; i < fence.tail; i++) {
        const struct zone_mark *mark = &fence.marks[i % ZONE_FENCE_MARKS];
        if (mark->epoch >= fence.open) {
            interleave_fail("a mark has an epoch that is not closed");
        }
    }
    for (unsigned i = 0; i < w.queued; i++) {
        if (w.blocks[w.queue[i]].stamp > fence.open) {
            interleave_fail("a block waits for an epoch that nobody will record");
        }
    }
    if (fence.ready >= fence.open) {
        interleave_fail("an open epoch is ready");
    }
}

#define LAUNCH                                                                                     \
    {                                                                                              \
        op_launch, 0, "LAUNCH"                                                                     \
    }
#define STAMP                                                                                      \
    {                                                                                              \
        op_stamp, 0, "FREE small"                                                                  \
    }
#define FREE                                                                                       \
    {                                                                                              \
        op_free, 0, "FREE"                                                                         \
    }
#define FREE_WAIT                                                                                  \
    {                                                                                              \
        op_free, 1, "FREE and wait"                                                                \
    }
#define ALLOC                                                                                      \
    {                                                                                              \
        op_alloc, 0, "ALLOC"                                                                       \
    }
#define RESET                                                                                      \
    {                                                                                              \
        op_reset, 0, "RESET"                                                                       \
    }

#define SCENARIO(name, ...)                                                                        \
    {                                                                                              \
        name, {__VA_ARGS__}, begin, fence_world_hash, finish                                       \
    }
#define SCRIPT(...)                                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const struct {
    bool failing_records;
    struct interleave_scenario scenario;
} scenarios[] = {
    {false, SCENARIO("free and small free", SCRIPT(LAUNCH, FREE, ALLOC, LAUNCH, FREE),
                     SCRIPT(LAUNCH, STAMP, ALLOC, LAUNCH, STAMP, ALLOC))},
    {false, SCENARIO("two recording frees", SCRIPT(LAUNCH, FREE, ALLOC, LAUNCH, FREE),
                     SCRIPT(LAUNCH, FREE, ALLOC, LAUNCH, STAMP))},
    {false, SCENARIO("events used again", SCRIPT(FREE, ALLOC, FREE, ALLOC, FREE, ALLOC),
                     SCRIPT(FREE, ALLOC))},
    {false,
     SCENARIO("free that waits beside free and alloc", SCRIPT(LAUNCH, FREE_WAIT, ALLOC, FREE),
              SCRIPT(LAUNCH, FREE, ALLOC, LAUNCH, FREE))},
    {false, SCENARIO("two frees that wait", SCRIPT(LAUNCH, FREE_WAIT, ALLOC, LAUNCH, FREE_WAIT),
                     SCRIPT(LAUNCH, FREE_WAIT))},
    {true, SCENARIO("records that fail", SCRIPT(LAUNCH, FREE, ALLOC, FREE_WAIT),
                    SCRIPT(LAUNCH, STAMP, FREE))},
    {false, SCENARIO("a context that dies", SCRIPT(LAUNCH, FREE_WAIT, ALLOC, LAUNCH, FREE),
                     SCRIPT(RESET, ALLOC, LAUNCH, FREE, ALLOC))},
};

/* Its checks of memory do not understand stacks that are looked at from outside. */
static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

/* All runs in one thread, and the checker does not know coroutines. */
static bool under_thread_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

int main(void)
{
    enum { SKIPPED = 77 };
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool failed = false;
    if (under_valgrind() || under_thread_sanitizer()) {
        printf("skipped: coroutines under a checker\n");
        return SKIPPED;
    }
    for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]) && !failed; i++) {
        failing_records = scenarios[i].failing_records;
        struct interleave_counts counts = interleave_explore(&scenarios[i].scenario);
        failed = counts.failed;
        printf("%s: %llu states, %llu runs, %llu steps: %s\n", scenarios[i].scenario.name,
               (unsigned long long)counts.states, (unsigned long long)counts.runs,
               (unsigned long long)counts.steps, counts.failed ? counts.failure : "ok");
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
