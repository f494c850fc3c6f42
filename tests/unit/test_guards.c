/* SPDX-License-Identifier: Apache-2.0
 *
 * How many instructions a malloc and a free take that call nothing of the device: counted by
 * stepping a child through them, so that the number is the same on every machine. The limits are
 * the measured numbers and a tenth: who passes one by has made the fast path longer, and should say
 * so here. Skipped where stepping is impossible or would count a checker's own instructions.
 */
#include "pool_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define GUARDS_SKIP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GUARDS_SKIP 1
#endif
#endif
#if !defined(__x86_64__) && !defined(GUARDS_SKIP)
#define GUARDS_SKIP 1
#endif

enum { BLOCKS = 16, SMALL = 4096, LARGE = 4 << 20 };

enum stage { STAGE_BEFORE, STAGE_MALLOC, STAGE_FREE, STAGE_LARGE_MALLOC, STAGES };

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
}

static void child(void)
{
    zone_addr_t addr = 0;
    prepare();
    /* Once unseen: the first time binds functions and fills caches of nothing that counts. */
    for (unsigned round = 0; round < 2; round++) {
        if (round == 1) {
            ptrace(PTRACE_TRACEME, 0, NULL, NULL);
            raise(SIGSTOP);
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
        stage = STAGE_BEFORE;
        if (rc != 0 || calls() != before) {
            _exit(1);
        }
    }
    _exit(0);
}

/* Steps through the child; false if it did not get through. */
static bool count_steps(pid_t pid, long counts[STAGES])
{
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        return false;
    }
    for (;;) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid) {
            return false;
        }
        if (!WIFSTOPPED(status)) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        errno = 0;
        long now = ptrace(PTRACE_PEEKDATA, pid, (void *)(uintptr_t)&stage, NULL);
        if (errno != 0 || now < 0 || now >= STAGES) {
            return false;
        }
        counts[now]++;
    }
}

static bool cannot_count(void)
{
#ifdef GUARDS_SKIP
    return true;
#else
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
#endif
}

static const struct {
    enum stage stage;
    const char *name;
    long limit;
} limits[] = {
    {STAGE_MALLOC, "malloc, small", 158},
    {STAGE_FREE, "free, small", 122},
    {STAGE_LARGE_MALLOC, "malloc, large", 175},
};

START_TEST(instructions)
{
    static long steps[STAGES];
    pid_t pid = fork();
    if (pid == 0) {
        child();
    }
    ck_assert(count_steps(pid, steps));
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

/* Containers may forbid it. */
static bool can_step(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0 ? 0 : 1);
    }
    bool can = pid > 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) &&
               ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
               WIFSTOPPED(status);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    return can;
}

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
    if (cannot_count() || !can_step()) {
        printf("1..0 # SKIP a checker, no optimisation, not x86-64, or ptrace is forbidden\n");
        return EXIT_SUCCESS;
    }
    return unit_main(guards_suite());
}
