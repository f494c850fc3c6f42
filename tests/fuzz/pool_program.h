/* SPDX-License-Identifier: Apache-2.0
 *
 * The random program of pool_program.c: who makes its choices is the caller's, a seed (seeds.c) or
 * the bytes of an input (fuzz_pool.c).
 */
#pragma once

#include <stdbool.h>

struct pool_choices {
    unsigned (*below)(void *arg, unsigned n); /* from 0 to n - 1 */
    bool (*more)(void *arg);                  /* another step? */
    void *arg;
};

/* Runs it on a new device, under the settings with this number. */
void pool_program_run(const struct pool_choices *choices, unsigned conf);
