/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_program.c, a seed a test. FUZZ_SEEDS=FIRST:COUNT in the environment runs others, or more.
 */
#include "pool_fixture.h"
#include "pool_program.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 2500, SEEDS = 66 };

struct source {
    uint64_t seed;
    unsigned steps;
};

static unsigned below(void *arg, unsigned n)
{
    struct source *source = arg;
    source->seed = source->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(source->seed >> 33) % n;
}

static bool more(void *arg)
{
    struct source *source = arg;
    return source->steps++ < STEPS;
}

static unsigned first_seed, seed_count = SEEDS;

START_TEST(random_program)
{
    unsigned seed = first_seed + (unsigned)_i;
    struct source source = {.seed = seed};
    pool_program_run(&(struct pool_choices){below, more, &source}, seed);
}
END_TEST

static void read_seeds(void)
{
    const char *text = getenv("FUZZ_SEEDS");
    if (text && sscanf(text, "%u:%u", &first_seed, &seed_count) < 1) {
        fprintf(stderr, "FUZZ_SEEDS is FIRST:COUNT\n");
        exit(EXIT_FAILURE);
    }
}

int main(void)
{
    read_seeds();
    Suite *suite = suite_create("fuzz pool");
    TCase *tcase = tcase_create("fuzz pool");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_loop_test(tcase, random_program, 0, (int)seed_count);
    suite_add_tcase(suite, tcase);
    return unit_main(suite);
}
