/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs two "threads" (coroutines) in every order of their steps. A run is a list of choices: which
 * thread takes the next step, and what interleave_choose asks. Every run starts anew and repeats
 * the choices up to the one that changes; a state that was seen before is not followed again. A
 * thread's state is what it shares (the test's hash) and its own stack and registers.
 */
#pragma once

#include "base.h"

enum { INTERLEAVE_THREADS = 2, INTERLEAVE_OPS = 8 };

struct interleave_op {
    void (*run)(int thread, int arg); /* NULL: the end of the script */
    int arg;
    const char *name;
};

struct interleave_scenario {
    const char *name;
    struct interleave_op script[INTERLEAVE_THREADS][INTERLEAVE_OPS];
    void (*begin)(void);    /* a fresh world */
    uint64_t (*hash)(void); /* of all that threads share */
    void (*finish)(void);   /* all threads have ended */
};

struct interleave_counts {
    uint64_t runs;
    uint64_t states;
    uint64_t steps;
    bool failed;
    const char *failure; /* valid until the next scenario */
};

/* Follows every order, up to the first failure, whose steps are printed. */
struct interleave_counts interleave_explore(const struct interleave_scenario *scenario);

/* In a thread: the next step begins here. what appears in the list of steps. */
void interleave_step(const char *what);

/* In a thread: one of n things happens. */
unsigned interleave_choose(unsigned n, const char *what);

/* In a thread or in finish: the rule that is broken. The run ends. */
ZONE_PRINTF(1, 2) void interleave_fail(const char *format, ...);

/* The thread that runs. */
int interleave_thread(void);

/* Adds bytes to a hash. */
uint64_t interleave_mix(uint64_t hash, const void *data, size_t bytes);
