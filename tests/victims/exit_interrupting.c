/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a signal handler calls exit() while the thread it interrupts is in the middle of an
 * allocation or a free, and may hold any lock of whoever serves it. Not allowed by POSIX, done by
 * many. Each child must be gone soon, with its own exit code.
 */
#include "tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 60, CODE = 7 };

#define LIMIT_US 4e6

static void leave(int signal)
{
    (void)signal;
    exit(CODE);
}

static void churn(int number)
{
    struct itimerval timer = {{0, 0}, {0, 1000 + number * 37 % 3000}};
    size_t bytes = number % 2 ? 2 * MIB : 4 * KIB;
    CUdeviceptr ptr;
    victim_start();
    OK(cuMemAlloc(&ptr, bytes));
    OK(cuMemFree(ptr));
    signal(SIGALRM, leave);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;) {
        OK(cuMemAlloc(&ptr, bytes));
        OK(cuMemFree(ptr));
    }
}

/* The status of a child that ends in time, else -1. */
static int status_of(pid_t child)
{
    int status = -1;
    double end = now_us() + LIMIT_US * slowness();
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now_us() > end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        sleep_ms(0.5);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        churn(atoi(argv[1]));
    }
    for (unsigned i = 0; i < CHILDREN / slowness(); i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        pid_t child = fork();
        if (child == 0) {
            execl(argv[0], argv[0], number, (char *)NULL);
            _exit(99);
        }
        int status = status_of(child);
        CHECK(status != -1, "child %u hangs", i);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == CODE, "child %u: status %x", i,
              (unsigned)status);
    }
    return 0;
}
