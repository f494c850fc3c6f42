/* SPDX-License-Identifier: Apache-2.0
 *
 * See round.h. The main thread starts the workers, replaces those that end, and watches that all of
 * them go on.
 */
#include "round.h"

#include "claim.h"
#include "ops.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_OPS = 32 };
/* A thread that makes no step for so long hangs. Two allocations in a row may wait for what is
 * busy as long as the settings say. */
#define HANG_NS UINT64_C(30000000000)

struct stress stress;
_Thread_local struct thread *me;

static const struct op *ops[MOST_OPS];
static unsigned op_count;
static unsigned op_weight;

static void ops_add(const struct op *row)
{
    for (; row->name; row++) {
        if (!row->when || row->when(&stress.plan)) {
            REQUIRE(op_count < MOST_OPS, "too many operations");
            ops[op_count++] = row;
            op_weight += row->weight;
        }
    }
}

void ops_start(void)
{
    ops_add(ops_shared);
    ops_add(ops_alone);
    ops_add(ops_handover);
    ops_add(ops_bounds);
}

const struct op *ops_any(struct rng *rng)
{
    unsigned at = rng_below(rng, op_weight);
    unsigned i = 0;
    while (at >= ops[i]->weight) {
        at -= ops[i++]->weight;
    }
    return ops[i];
}

static void step(struct thread *thread)
{
    uint64_t number = atomic_fetch_add(&thread->step, 1) + 1;
    thread->rng = rng_at(stress.plan.seed, thread->index + 1, number);
    const struct op *op = ops_any(&thread->rng);
    thread->op = op->name;
    if (op->alone) {
        world_stop();
    } else {
        world_enter();
    }
    leaving_poll(thread);
    check_poll(thread, false);
    op->run(thread);
    world_leave();
}

static void *worker(void *arg)
{
    struct thread *thread = arg;
    me = thread;
    /* Threads come and go, and their per-thread streams with them. */
    while (!atomic_load(&stress.stop) && (atomic_load(&thread->step) + 1) % 4000 != 0) {
        step(thread);
    }
    if (!atomic_load(&stress.stop)) {
        step(thread);
    }
    atomic_store(&thread->done, true);
    return NULL;
}

static void start_worker(struct thread *thread)
{
    atomic_store(&thread->done, false);
    REQUIRE(pthread_create(&thread->id, NULL, worker, thread) == 0, "cannot start a thread");
}

/* How far a thread had come when it was last seen. */
struct seen {
    uint64_t step;
    uint64_t ns;
    bool joined;
};

static void look_at(struct thread *thread, struct seen *seen, uint64_t hang_ns)
{
    uint64_t step_now = atomic_load(&thread->step);
    uint64_t now = now_ns();
    if (atomic_load(&thread->done)) {
        pthread_join(thread->id, NULL);
        seen->joined = atomic_load(&stress.stop);
        if (!seen->joined) {
            start_worker(thread);
        }
    }
    if (seen->joined || step_now != seen->step || seen->ns == 0) {
        *seen = (struct seen){.step = step_now, .ns = now, .joined = seen->joined};
    }
    REQUIRE(now - seen->ns < hang_ns, "thread %u hangs in step %llu (%s)", thread->index,
            (unsigned long long)step_now, thread->op);
}

/* Until the time is up and all threads have returned, or only the former if the process is to exit
 * under them. */
static void watch(double seconds)
{
    const char *slow = getenv("VICTIM_SLOW");
    uint64_t hang_ns = HANG_NS * (uint64_t)(slow ? strtoul(slow, NULL, 10) : 1);
    uint64_t start = now_ns();
    struct seen *seen = calloc(stress.thread_count, sizeof *seen);
    REQUIRE(seen, "no host memory");
    for (unsigned running = stress.thread_count; running > 0;) {
        sleep_us(2000);
        if ((double)(now_ns() - start) >= seconds * 1e9) {
            if (stress.plan.ending == END_ABRUPT) {
                break;
            }
            atomic_store(&stress.stop, true);
        }
        running = 0;
        for (unsigned i = 0; i < stress.thread_count; i++) {
            if (!seen[i].joined) {
                look_at(&stress.threads[i], &seen[i], hang_ns);
                running += !seen[i].joined;
            }
        }
    }
    free(seen);
}

static bool free_visit(struct block *block, void *arg)
{
    if (block->filled) {
        block_check(arg, block);
    }
    block_free(arg, block);
    return true;
}

static bool forget_visit(struct block *block, void *arg)
{
    (void)arg;
    block_forget(block);
    return true;
}

/* Everything is given back, one way or the other. */
static void finish(struct round_result *result)
{
    struct thread *first = &stress.threads[0];
    me = first;
    first->op = "the end";
    first->rng = rng_at(stress.plan.seed, 0, 1);
    if (stress.plan.ending == END_TIDY) {
        blocks_each(free_visit, first);
        for (unsigned i = 0; i < PLACES; i++) {
            place_use(&stress.places[i]);
            MUST(cuCtxSynchronize());
        }
        for (unsigned t = 0; t < stress.thread_count; t++) {
            check_poll(&stress.threads[t], true);
            while (stress.threads[t].leaving_count > 0) {
                leaving_poll(&stress.threads[t]); /* a question may fail by injection */
            }
        }
        result->tidy = true;
    } else {
        blocks_each(forget_visit, NULL);
        for (unsigned i = 0; i < PLACES; i++) {
            place_end(&stress.places[i], (uint32_t)rng_next(&first->rng));
            for (unsigned t = 0; t < stress.thread_count; t++) {
                check_forget(&stress.threads[t], &stress.places[i]);
                leaving_forget(&stress.threads[t], &stress.places[i]);
            }
        }
        /* What a stream gives back and graphs hold may take a moment. */
        for (int i = 0; i < 1000 && zsim_bytes() > 0; i++) {
            sleep_us(1000);
        }
        REQUIRE(stress.plan.async || zsim_bytes() == 0,
                "%zu bytes are taken after all contexts have ended", zsim_bytes());
    }
    REQUIRE(claim_held() == 0, "the program's own book is wrong: %zu chunks", claim_held());
}

static struct round_result *result_map(int fd)
{
    static struct round_result none;
    if (fd < 0) {
        return &none;
    }
    void *map = mmap(NULL, sizeof(struct round_result), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED, "cannot share the result");
    return map;
}

static void prepare(const struct round_options *options)
{
    stress.seed = options->seed;
    stress.plan = plan_make(options->seed, options->round);
    stress.conf = conf_read();
    stress.thread_count = options->threads;
    stress.threads = calloc(options->threads, sizeof *stress.threads);
    stress.zone = dlsym(RTLD_DEFAULT, "zone_version") != NULL;
    stress.simulated = zsim("zsim_calls") != NULL;
    stress.conf.pools = stress.conf.pools && stress.zone;
    REQUIRE(stress.threads, "no host memory");
}

int round_run(const struct round_options *options)
{
    prepare(options);
    struct round_result *result = result_map(options->result_fd);
    if (!places_start()) {
        return 77;
    }
    result->reports = stress.zone && !getenv("ZONE_DISABLE");
    ops_start();
    size_t chunks = stress_capacity() / (2 * MIB);
    /* The modules of both places. */
    claim_init(chunks - PLACES);
    if (!stress.simulated || stress.plan.async || stress.plan.inject || !stress.conf.fits) {
        claim_disturb(1);
    }
    for (unsigned i = 0; i < options->threads; i++) {
        stress.threads[i].index = i;
        check_start(&stress.threads[i]);
    }
    for (unsigned i = 0; i < options->threads; i++) {
        start_worker(&stress.threads[i]);
    }
    watch(options->seconds);
    for (unsigned i = 0; i < options->threads; i++) {
        result->steps += atomic_load(&stress.threads[i].step);
    }
    if (stress.plan.ending == END_ABRUPT) {
        /* As a program ends whose main function returns while its threads work; but not under an
         * operation that has to join threads of its own. */
        world_enter();
        atomic_store(&stress.over, true);
        return 0;
    }
    finish(result);
    result->allocs = atomic_load(&stress.allocs);
    result->faults = stress.faults;
    return 0;
}
