/* SPDX-License-Identifier: Apache-2.0
 *
 * See steps.h.
 */
#include "steps.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
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

void steps_begin(void)
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
}

bool steps_count(pid_t pid, const volatile long *stage, long *counts, long stages)
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
        long now = ptrace(PTRACE_PEEKDATA, pid, (void *)(uintptr_t)stage, NULL);
        if (errno != 0 || now < 0 || now >= stages) {
            return false;
        }
        counts[now]++;
    }
}

static bool steps_skipped(void)
{
#ifdef GUARDS_SKIP
    return true;
#else
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
#endif
}

/* Containers may forbid it. */
static bool steps_allowed(void)
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

bool steps_possible(void)
{
    if (steps_skipped() || !steps_allowed()) {
        printf("1..0 # SKIP a checker, no optimisation, not x86-64, or ptrace is forbidden\n");
        return false;
    }
    return true;
}
