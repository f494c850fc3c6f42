/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations about who is given a block next: it is freed at the worst of moments, and the next
 * owner must not find that the last one's work still writes to it. The world is stopped.
 */
#include "ops.h"

#include <sched.h>
#include <stdatomic.h>

enum { NEXT = 3 };

/* Who is given memory of one size next. */
struct next {
    struct block *blocks[NEXT];
    unsigned count;
};

/* Sizes that nothing else asks for: little but the block in question is there to be given out. */
static size_t small_size(struct rng *rng)
{
    return 8 * KIB + 512 * (size_t)(1 + rng_below(rng, 200));
}

static size_t large_size(struct rng *rng)
{
    return MIB + 512 * (size_t)(1 + rng_below(rng, 12));
}

static void next_take(struct thread *thread, struct place *place, size_t bytes, struct next *next)
{
    struct block *block;
    while (next->count < NEXT && (block = block_new(thread, place, PLAIN, bytes)) != NULL) {
        next->blocks[next->count++] = block;
    }
    for (unsigned i = 0; i < next->count; i++) {
        block_write(thread, next->blocks[i]);
    }
}

/* They must not find that a kernel of the last owner, on the stream, still writes to it. */
static void next_check(struct thread *thread, struct place *place, CUstream stream,
                       struct next *next)
{
    place_use(place);
    MUST(cuStreamSynchronize(stream));
    while (next->count > 0) {
        struct block *block = next->blocks[--next->count];
        block_read(thread, block);
        block_free(thread, block);
    }
    place_use(place);
}

/* The newest record is of work that is done, as is all that it can tell about; then a block is
 * freed while a kernel is about to write to it. A small one records nothing, a large one's record
 * may fail. */
static void op_late(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    CUstream stream = place->streams[2];
    struct next next = {.count = 0};
    size_t bytes =
        rng_once_in(&thread->rng, 2) ? small_size(&thread->rng) : large_size(&thread->rng);
    struct block *before = block_new(thread, place, PLAIN, MIB);
    struct block *block = block_new(thread, place, PLAIN, bytes);
    place_use(place);
    MUST(cuCtxSynchronize());
    if (before) {
        block_free_now(before);
    }
    if (!block) {
        return;
    }
    submit_spin(place, stream, 2000);
    submit_fill(place, stream, block->ptr, block->bytes, block_tag(thread));
    if (stress.plan.inject) {
        fail_call("cuCtxRecordEvent", 1);
    }
    block_free_now(block);
    next_take(thread, place, bytes, &next);
    next_check(thread, place, stream, &next);
}

struct duet {
    atomic_bool ready;
    atomic_bool go;
    struct thread *thread; /* whose random numbers the second thread draws meanwhile */
    struct place *place;
    CUstream stream;
    struct block *block;
    struct next next;
    uint32_t tag;
};

/* Both spin: one that sleeps wakes up when the other is done. */
static void spin_until(atomic_bool *flag)
{
    while (!atomic_load(flag)) {
        sched_yield();
    }
}

static void *duet_thread(void *arg)
{
    struct duet *duet = arg;
    size_t bytes = duet->block->bytes;
    place_use(duet->place);
    atomic_store(&duet->ready, true);
    spin_until(&duet->go);
    submit_spin(duet->place, duet->stream, 1000);
    submit_fill(duet->place, duet->stream, duet->block->ptr, duet->block->bytes, duet->tag);
    block_free_now(duet->block);
    next_take(duet->thread, duet->place, bytes, &duet->next);
    return NULL;
}

/* One thread frees a large block and so records, now sooner and now later, while another one
 * launches work on a small block, frees it, which records nothing, and asks for such blocks. */
static void duet_play(struct thread *thread, struct duet *duet, struct block *large)
{
    pthread_t other;
    uint64_t pause_ns = rng_below(&thread->rng, 60000);
    REQUIRE(pthread_create(&other, NULL, duet_thread, duet) == 0, "cannot start a thread");
    spin_until(&duet->ready);
    atomic_store(&duet->go, true);
    for (uint64_t start = now_ns(); now_ns() - start < pause_ns;) {
    }
    block_free_now(large);
    pthread_join(other, NULL);
}

/* Does the record of the one cover the work of the other? */
static void op_duet(struct thread *thread)
{
    enum { TIMES = 12 };
    struct place *place = place_any(&thread->rng);
    for (unsigned i = 0; i < TIMES; i++) {
        size_t bytes = small_size(&thread->rng);
        struct duet duet = {.thread = thread, .place = place, .stream = place->streams[3]};
        struct next later = {.count = 0};
        struct block *large = block_new(thread, place, PLAIN, MIB);
        duet.block = block_new(thread, place, PLAIN, bytes);
        duet.tag = block_tag(thread);
        place_use(place);
        MUST(cuCtxSynchronize());
        if (large && duet.block) {
            duet_play(thread, &duet, large);
            next_take(thread, place, bytes, &later);
            next_check(thread, place, duet.stream, &duet.next);
            next_check(thread, place, duet.stream, &later);
        } else if (large || duet.block) {
            block_free_now(large ? large : duet.block);
        }
    }
}

const struct op ops_handover[] = {
    {"late", 6, op_late, true, NULL},
    {"duet", 4, op_duet, true, NULL},
    {NULL, 0, NULL, false, NULL},
};
