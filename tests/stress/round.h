/* SPDX-License-Identifier: Apache-2.0
 *
 * One round: the child process in which the threads run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What the child tells its parent, in shared memory. */
struct round_result {
    uint64_t steps;
    uint64_t allocs; /* successful calls of cuMemAlloc */
    bool reports;    /* libzone is there and must write a report */
    bool faults;     /* kernels faulted in contexts that have ended since */
    bool tidy;       /* it gave everything back and ended so */
};

struct round_options {
    uint64_t seed;
    unsigned round;
    unsigned threads;
    double seconds;
    int result_fd; /* -1: nobody asks */
};

/* Runs the round; returns the exit code of the process, if it returns. */
int round_run(const struct round_options *options);
