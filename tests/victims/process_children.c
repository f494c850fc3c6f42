/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the ways in which a process gets children: fork, vfork, clone past the C library,
 * posix_spawn, a daemon's two forks. A child is refused by the driver or runs another program; it
 * leaves the parent's memory alone and says nothing in the parent's name. Usage: process_children
 * [WAY].
 */
#include "tools.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 1024, STACK = 64 * 1024 };

static char *self;
static CUdeviceptr inherited;

static void wait_for(pid_t child, int code)
{
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code, "status %x", (unsigned)status);
}

/* 0 if the driver refuses everything, the parent's memory too. */
static int ask_the_driver(void)
{
    CUdeviceptr ptr = 77;
    size_t bytes = 0;
    int wrong = 0;
    wrong += cuMemAlloc(&ptr, 4 * KIB) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuMemAlloc(&ptr, 2 * MIB) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuMemFree(inherited) != CUDA_ERROR_NOT_INITIALIZED;
    wrong += cuMemGetInfo(&bytes, NULL) != CUDA_ERROR_NOT_INITIALIZED;
    return wrong + !is_untouched(ptr, 77);
}

static void by_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        exit(ask_the_driver());
    }
    wait_for(child, 0);
}

/* The children of children are no better off. */
static void by_two_forks(void)
{
    pid_t child = fork();
    if (child == 0) {
        pid_t daemon = fork();
        if (daemon == 0) {
            setsid();
            exit(ask_the_driver());
        }
        wait_for(daemon, 0);
        exit(ask_the_driver());
    }
    wait_for(child, 0);
}

static void by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        _exit(4);
    }
    wait_for(child, 4);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(99);
    }
    wait_for(child, 0);
}

/* No handler that the C library keeps for forks runs here, and a real driver may lean on one. */
static void by_clone(void)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        if (!simulated()) {
            _exit(0);
        }
        exit(ask_the_driver());
    }
    wait_for(child, 0);
}

static int run_true(void *unused)
{
    (void)unused;
    execl("/bin/true", "true", (char *)NULL);
    _exit(99);
}

/* In the parent's own memory, as subprocess and system() do it. */
static void by_clone_in_our_memory(void)
{
    static char stack[STACK] __attribute__((aligned(16)));
    wait_for(clone(run_true, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), 0);
}

extern char **environ;

static void by_spawn(void)
{
    char idle[] = "idle";
    char *arguments[] = {self, idle, NULL};
    pid_t child = 0;
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    wait_for(child, 0);
    CHECK(system("exit 5") == 5 << 8);
}

/* The child is a CUDA program of its own, with its own report. */
static void by_spawn_with_cuda(void)
{
    char plain[] = "plain";
    char *arguments[] = {self, plain, NULL};
    pid_t child = 0;
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    wait_for(child, 0);
}

static void nothing(void)
{
}

static const struct {
    const char *name;
    void (*run)(void);
    int reports; /* under libzone; a child of each of the three rounds may have its own */
} ways[] = {
    {"plain", nothing, 1},          {"fork", by_fork, 1},
    {"two forks", by_two_forks, 1}, {"vfork", by_vfork, 1},
    {"clone", by_clone, 1},         {"clone in our memory", by_clone_in_our_memory, 1},
    {"posix_spawn", by_spawn, 1},   {"posix_spawn with CUDA", by_spawn_with_cuda, 4},
};

static void pair(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 2 * MIB));
    OK(cuMemFree(ptr));
    OK(cuCtxSynchronize());
}

/* The parent holds memory, makes its children, and goes on as before. */
static void parent(void (*run)(void))
{
    victim_start();
    OK(cuMemAlloc(&inherited, WORDS * 4));
    launch_fill(NULL, inherited, WORDS, 77);
    OK(cuCtxSynchronize());
    pair();
    for (int i = 0; i < 3; i++) {
        uint64_t allocs = driver_allocs();
        run();
        pair();
        CHECK(driver_allocs() == allocs || !pooled(), "not served from the pool afterwards");
    }
    CHECK(count_wrong(NULL, inherited, WORDS, 77) == 0);
    OK(cuMemFree(inherited));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(inherited));
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1 && strcmp(argv[1], "idle") == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (argc == 1) {
            int status = -1;
            int expected = pooled() ? ways[i].reports : 0;
            int count = reports_of_child(self, ways[i].name, &status);
            CHECK(status == 0, "%s: status %x", ways[i].name, (unsigned)status);
            CHECK(count == expected, "%s: %d reports, not %d", ways[i].name, count, expected);
        } else if (strcmp(argv[1], ways[i].name) == 0) {
            parent(ways[i].run);
        }
    }
    return 0;
}
