/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: see interleave.h. Each operation of a script runs in a coroutine on a stack that
 * was cleared before, so that equal states look equal.
 */
#include "interleave.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

/* Locals must lie on the stack that is hashed, not in the sanitizer's own memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=0";
}

enum {
    STACK = 1 << 18,
    STACK_CLEARED = 1 << 14, /* more than any operation uses; with sanitizers, most of it */
    STACK_BELOW = 1 << 10,
    STACK_RED = 128, /* below the stack pointer, but in use */
    CHOICES_MAX = 256,
    SEEN_BITS = 22,
};

struct thread {
    ucontext_t context;
    unsigned op;
    bool inside; /* an operation is under way */
    char stack[STACK] __attribute__((aligned(64)));
};

struct choice {
    unsigned taken, of;
};

struct trace {
    int thread;
    const char *what;
};

static struct thread threads[INTERLEAVE_THREADS];
static ucontext_t scheduler;
static const struct interleave_scenario *scenario;
static struct interleave_counts counts;
static int running;
static char failure[256];

static struct choice choices[CHOICES_MAX];
static unsigned choices_known; /* repeated in this run */
static unsigned choices_used;  /* made so far in this run */
static struct trace trace[CHOICES_MAX * 4];
static unsigned traces;

static uint64_t seen[1 << SEEN_BITS];

/* States */

uint64_t interleave_mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 29;
}

/* Reads what belongs to no variable, too. */
__attribute__((no_sanitize("address"))) static uint64_t mix_stack(uint64_t hash, const char *low,
                                                                  const char *high)
{
    for (const char *at = low; at < high; at += sizeof(uint64_t)) {
        hash = (hash ^ *(const volatile uint64_t *)(const void *)at) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

#if defined(__x86_64__)
/* The others are dead across a call. */
static const int kept[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15, REG_RSP};
#endif

/* The lowest address of its stack that a thread uses. */
static const char *stack_low(const struct thread *thread)
{
#if defined(__x86_64__)
    uintptr_t low = (uintptr_t)thread->context.uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    uintptr_t low = thread->context.uc_mcontext.sp;
#else
    uintptr_t low = (uintptr_t)thread->stack;
#endif
    return (const char *)(low & ~(uintptr_t)7);
}

static uint64_t registers_hash(uint64_t hash, const mcontext_t *registers)
{
#if defined(__x86_64__)
    for (unsigned i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        hash = interleave_mix(hash, &registers->gregs[kept[i]], sizeof(greg_t));
    }
    return hash;
#else
    return interleave_mix(hash, registers, sizeof(*registers));
#endif
}

/* A coroutine begins with the scheduler's own registers, which differ from run to run. */
static void registers_clear(mcontext_t *registers)
{
#if defined(__x86_64__)
    for (unsigned i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        registers->gregs[kept[i]] = 0;
    }
#elif defined(__aarch64__)
    memset(registers->regs, 0, sizeof(registers->regs));
#else
    (void)registers;
#endif
}

static uint64_t state_hash(void)
{
    uint64_t hash = scenario->hash();
    for (int i = 0; i < INTERLEAVE_THREADS; i++) {
        const struct thread *thread = &threads[i];
        hash = interleave_mix(hash, &thread->op, sizeof(thread->op));
        hash = interleave_mix(hash, &thread->inside, sizeof(thread->inside));
        if (thread->inside) {
            hash = mix_stack(hash, stack_low(thread), thread->stack + STACK);
            hash = registers_hash(hash, &thread->context.uc_mcontext);
        }
    }
    return hash ? hash : 1;
}

/* True if the state is new. */
static bool state_enter(uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        uint64_t *slot = &seen[i & ((1 << SEEN_BITS) - 1)];
        if (*slot == hash) {
            return false;
        }
        if (*slot == 0) {
            *slot = hash;
            if (++counts.states > (1 << SEEN_BITS) / 2) {
                fprintf(stderr, "too many states\n");
                exit(EXIT_FAILURE);
            }
            return true;
        }
    }
}

/* Coroutines */

__attribute__((no_sanitize("address"))) static void clear_stack(const char *low, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        *(volatile uint64_t *)(uintptr_t)(low + i) = 0;
    }
}

static void note(const char *what)
{
    if (traces < sizeof(trace) / sizeof(trace[0])) {
        trace[traces++] = (struct trace){running, what};
    }
}

static void to_scheduler(struct thread *thread)
{
    swapcontext(&thread->context, &scheduler);
}

static void thread_main(void)
{
    struct thread *thread = &threads[running];
    const struct interleave_op *op = &scenario->script[running][thread->op];
    op->run(running, op->arg);
    thread->inside = false;
    thread->op++;
    to_scheduler(thread);
}

/* Lets a thread take one step: up to its next interleave_step, or the end of its operation. */
static void thread_run(int index)
{
    struct thread *thread = &threads[index];
    running = index;
    if (!thread->inside) {
        clear_stack(thread->stack + STACK - STACK_CLEARED, STACK_CLEARED);
        getcontext(&thread->context);
        registers_clear(&thread->context.uc_mcontext);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = STACK;
        thread->context.uc_link = NULL;
        makecontext(&thread->context, thread_main, 0);
        thread->inside = true;
        note(scenario->script[index][thread->op].name);
    }
    swapcontext(&scheduler, &thread->context);
    if (thread->inside) {
        /* What calls have left below, and would shine through in later ones. */
        clear_stack(stack_low(thread) - STACK_RED - STACK_BELOW, STACK_BELOW);
    }
    counts.steps++;
}

void interleave_step(const char *what)
{
    to_scheduler(&threads[running]);
    note(what);
}

int interleave_thread(void)
{
    return running;
}

/* Choices */

static unsigned choose(unsigned n)
{
    if (choices_used == choices_known) {
        if (choices_known == CHOICES_MAX) {
            fprintf(stderr, "a run without end\n");
            exit(EXIT_FAILURE);
        }
        choices[choices_known++] = (struct choice){0, n};
    }
    return choices[choices_used++].taken;
}

unsigned interleave_choose(unsigned n, const char *what)
{
    unsigned taken = choose(n);
    if (taken > 0) {
        note(what);
    }
    return taken;
}

/* The next list of choices; false after the last. */
static bool choices_next(void)
{
    choices_known = choices_used;
    while (choices_known > 0 &&
           choices[choices_known - 1].taken + 1 == choices[choices_known - 1].of) {
        choices_known--;
    }
    if (choices_known == 0) {
        return false;
    }
    choices[choices_known - 1].taken++;
    return true;
}

void interleave_fail(const char *format, ...)
{
    if (failure[0]) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(failure, sizeof(failure), format, args);
    va_end(args);
}

/* Runs */

static void print_failure(void)
{
    printf("%s: these steps lead to a broken rule:\n", scenario->name);
    for (unsigned i = 0; i < traces; i++) {
        printf("  %*s%c %s\n", 30 * trace[i].thread, "", 'A' + trace[i].thread, trace[i].what);
    }
}

static bool thread_has_more(int index)
{
    const struct thread *thread = &threads[index];
    return thread->inside ||
           (thread->op < INTERLEAVE_OPS && scenario->script[index][thread->op].run);
}

/* One run: to its end, to a state that was seen, or to a failure. */
static void run(void)
{
    choices_used = 0;
    traces = 0;
    for (int i = 0; i < INTERLEAVE_THREADS; i++) {
        threads[i].op = 0;
        threads[i].inside = false;
    }
    scenario->begin();
    counts.runs++;
    while (!failure[0]) {
        int ready[INTERLEAVE_THREADS];
        unsigned count = 0;
        for (int i = 0; i < INTERLEAVE_THREADS; i++) {
            if (thread_has_more(i)) {
                ready[count++] = i;
            }
        }
        if (count == 0) {
            running = 0;
            scenario->finish();
            return;
        }
        if (choices_used == choices_known && !state_enter(state_hash())) {
            return;
        }
        thread_run(ready[count > 1 ? choose(count) : 0]);
    }
}

struct interleave_counts interleave_explore(const struct interleave_scenario *what)
{
    scenario = what;
    counts = (struct interleave_counts){0};
    memset(seen, 0, sizeof(seen));
    choices_known = 0;
    failure[0] = '\0';
    do {
        run();
    } while (!failure[0] && choices_next());
    if (failure[0]) {
        counts.failed = true;
        counts.failure = failure;
        print_failure();
    }
    return counts;
}
