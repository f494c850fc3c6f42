/* SPDX-License-Identifier: Apache-2.0
 *
 * How many instructions a malloc and a free, plain or in stream order, take that call nothing of
 * the device: counted by stepping a child through them, so that the number is the same on every
 * machine. The limits are the measured numbers and a tenth: who passes one by has made the fast
 * path longer, and should say so here. Skipped where stepping is impossible or would count a
 * checker's own instructions.
 */
#include "pool_fixture.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 16, SMALL = 4096, LARGE = 4 << 20, ORDERED = 8192 };

enum stage {
    STAGE_BEFORE,
    STAGE_MALLOC,
    STAGE_FREE,
    STAGE_LARGE_MALLOC,
    STAGE_STREAM_MALLOC,
    STAGE_STREAM_FREE,
    STAGES
};

/* The child says here what it is doing; the parent reads it after every step. */
static volatile long stage;
static zone_addr_t small[BLOCKS], large[BLOCKS];

/* Blocks of both classes that are known to be ready, and a count of frees that is not yet due. */
static void prepare(void)
{
    pool_setup();
    model_set_check(NULL);
    for (unsigned i = 0; i < BLOCKS; i++) {
        small[i] = take(SMALL);
        large[i] = take(LARGE);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        give(small[i]);
        give(large[i]);
    }
    take(SMALL);
    take(LARGE);
    for (unsigned i = 0; i < BLOCKS; i++) {
        small[i] = take_on(1, ORDERED);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        give_on(1, small[i]);
    }
}

static void child(void)
{
    zone_addr_t addr = 0;
    prepare();
    struct zone_stream *stream = stream_of(1);
    /* Once unseen: the first time binds functions and fills caches of nothing that counts. */
    for (unsigned round = 0; round < 2; round++) {
        if (round == 1) {
            steps_begin();
        }
        unsigned before = calls();
        stage = STAGE_MALLOC;
        int rc = zone_pool_alloc(pool, SMALL, &addr);
        stage = STAGE_BEFORE;
        struct zone_block *block = zone_ptrmap_get(addr);
        stage = STAGE_FREE;
        rc |= !zone_block_claim(block);
        rc |= zone_pool_free(block, ZONE_FREE_BY_FREE);
        stage = STAGE_LARGE_MALLOC;
        rc |= zone_pool_alloc(pool, LARGE, &addr);
        stage = STAGE_STREAM_MALLOC;
        rc |= !zone_stream_serve(stream, ORDERED, &addr);
        stage = STAGE_BEFORE;
        block = zone_ptrmap_get(addr);
        stage = STAGE_STREAM_FREE;
        rc |= !zone_block_claim(block);
        rc |= zone_stream_free(stream, model_stream(1), block);
        stage = STAGE_BEFORE;
        if (rc != 0 || calls() != before) {
            _exit(1);
        }
    }
    _exit(0);
}

static const struct {
    enum stage stage;
    const char *name;
    long limit;
} limits[] = {
    {STAGE_MALLOC, "malloc, small", 158},
    {STAGE_FREE, "free, small", 122},
    {STAGE_LARGE_MALLOC, "malloc, large", 175},
    {STAGE_STREAM_MALLOC, "malloc in stream order", 142},
    {STAGE_STREAM_FREE, "free in stream order", 150},
};

START_TEST(instructions)
{
    static long steps[STAGES];
    pid_t pid = fork();
    if (pid == 0) {
        child();
    }
    ck_assert(steps_count(pid, &stage, steps, STAGES));
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        fprintf(stderr, "%s: %ld instructions\n", limits[i].name, steps[limits[i].stage]);
    }
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        long count = steps[limits[i].stage];
        ck_assert_msg(count > 0 && count <= limits[i].limit, "%s: %ld instructions, at most %ld",
                      limits[i].name, count, limits[i].limit);
    }
}
END_TEST

static Suite *guards_suite(void)
{
    Suite *suite = suite_create("guards");
    TCase *tcase = tcase_create("guards");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, instructions);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return steps_possible() ? unit_main(guards_suite()) : EXIT_SUCCESS;
}
