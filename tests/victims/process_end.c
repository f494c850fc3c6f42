/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the many ways in which a process ends, each in a child whose standard error is read here:
 * its exit code is the native one, and libzone's report is there once, or not at all where no
 * destructor runs. Usage: process_end [WAY].
 */
#include "tools.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_FROM = 512, HELD = 4 };

static char *self;
static void *held[HELD];
static int late_code = -1; /* what the destructor below has to see */

static void allocate(int times)
{
    for (int i = 0; i < times; i++) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, i % 2 ? 2 * MIB : 4 * KIB));
        OK(cuMemFree(ptr));
    }
}

static void return_from_main(void)
{
}

static void leave_at_once(void)
{
    _exit(5);
}

static void run_another(void)
{
    execl(self, self, "return", (char *)NULL);
}

static void fork_and_exit(void)
{
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr ptr;
        exit(cuMemAlloc(&ptr, 4096) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void allocate_for_ever(void *data)
{
    uint32_t *rounds = data;
    for (;;) {
        CUdeviceptr ptr = 0;
        /* While the process goes down the driver may refuse. */
        if (cuMemAlloc(&ptr, 4 * KIB) == CUDA_SUCCESS) {
            cuMemFree(ptr);
        }
        __atomic_fetch_add(rounds, 1, __ATOMIC_SEQ_CST);
    }
}

/* They are in the middle of it when the process goes. */
static void with_threads(void)
{
    static struct worker workers[3];
    static uint32_t rounds[3];
    for (int i = 0; i < 3; i++) {
        worker_start(&workers[i], allocate_for_ever, &rounds[i]);
    }
    for (int i = 0; i < 3; i++) {
        while (read_word(&rounds[i]) < 30) {
            sleep_ms(0.1);
        }
    }
}

static void exit_in_handler(int signal)
{
    (void)signal;
    exit(7);
}

static void in_a_handler(void)
{
    signal(SIGUSR1, exit_in_handler);
    raise(SIGUSR1);
}

static void close_stderr(void)
{
    close(STDERR_FILENO);
}

/* The program closes everything and then uses the numbers for a file of its own. */
static void reuse_descriptors(void)
{
    char path[] = "/tmp/victim-end-XXXXXX";
    for (int fd = 3; fd < KEPT_FROM + 64; fd++) {
        close(fd);
    }
    int file = mkstemp(path);
    unlink(path);
    for (int fd = KEPT_FROM; fd < KEPT_FROM + 64; fd++) {
        CHECK(dup2(file, fd) == fd);
    }
    pid_t child = fork(); /* looks at the file after the process has gone */
    if (child == 0) {
        while (getppid() != 1 && lseek(file, 0, SEEK_END) == 0 && kill(getppid(), 0) == 0) {
            sleep_ms(1);
        }
        off_t bytes = lseek(file, 0, SEEK_END);
        CHECK(bytes == 0, "%ld bytes in the program's own file", (long)bytes);
        _exit(0);
    }
}

static void free_held(void)
{
    for (int i = 0; i < HELD; i++) {
        int code = (int)cudaFree(held[i]);
        if (code != late_code) {
            static const char message[] = "a late free gave another code\n";
            ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
            _exit(written < 0 ? 2 : 1);
        }
    }
}

/* After main and after all exit handlers: the driver is no longer there. */
__attribute__((destructor)) static void at_the_very_end(void)
{
    if (late_code >= 0) {
        free_held();
    }
}

static void hold(int code)
{
    late_code = code;
    for (int i = 0; i < HELD; i++) {
        OK(cudaMalloc(&held[i], i % 2 ? 4 * KIB : 2 * MIB));
    }
}

static void in_a_destructor(void)
{
    hold(cudaErrorCudartUnloading);
}

/* This exit handler runs before the driver's, works as ever, and ends the process once more. */
static void work_and_exit(void)
{
    allocate(10);
    free_held();
    late_code = -1;
    exit(9);
}

static void in_an_exit_handler(void)
{
    hold(cudaSuccess);
    atexit(work_and_exit);
}

static void quickly(void)
{
    at_quick_exit(free_held);
    hold(cudaSuccess);
    quick_exit(6);
}

static void by_signal(int number)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    with_threads();
    kill(getpid(), number);
    for (;;) {
        sleep_ms(100);
    }
}

static void aborted(void)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    abort();
}

static void terminated(void)
{
    by_signal(SIGTERM);
}

static void killed(void)
{
    by_signal(SIGKILL);
}

static const struct {
    const char *name;
    void (*end)(void);
    int code;    /* or the signal */
    int reports; /* under libzone, natively none */
} ways[] = {
    {"return", return_from_main, 0, 1},
    {"_exit", leave_at_once, 5, 0},
    {"quick_exit", quickly, 6, 0},
    {"abort", aborted, SIGABRT, 0},
    {"SIGTERM", terminated, SIGTERM, 0},
    {"SIGKILL", killed, SIGKILL, 0},
    {"exec", run_another, 0, 1},
    {"fork", fork_and_exit, 0, 1},
    {"threads", with_threads, 0, 1},
    {"signal handler", in_a_handler, 7, 1},
    {"exit handler", in_an_exit_handler, 9, 1},
    {"destructor", in_a_destructor, 0, 1},
    {"stderr closed", close_stderr, 0, 1},
    {"descriptors reused", reuse_descriptors, 0, 0},
};

int main(int argc, char **argv)
{
    self = argv[0];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (argc == 1) {
            int status = -1;
            int count = reports_of_child(self, ways[i].name, &status);
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
            int expected = pooled() ? ways[i].reports : 0;
            CHECK(code == ways[i].code, "%s: status %x", ways[i].name, (unsigned)status);
            CHECK(count == expected, "%s: %d reports, not %d", ways[i].name, count, expected);
        } else if (strcmp(argv[1], ways[i].name) == 0) {
            victim_start();
            allocate(40);
            ways[i].end();
        }
    }
    return 0;
}
