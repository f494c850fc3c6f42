/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the many ways in which a process ends, each in a child whose standard error is read here:
 * its exit code is the native one, and libzone's report is there once, or not at all where no
 * destructor runs. Usage: process_end [WAY].
 */
#include "tools.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_FROM = 512, LIMIT_S = 20 };

static char *self;

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

static const struct {
    const char *name;
    void (*end)(void);
    int code;
    int reports; /* under libzone, natively none */
} ways[] = {
    {"return", return_from_main, 0, 1},    {"_exit", leave_at_once, 5, 0},
    {"exec", run_another, 0, 1},           {"fork", fork_and_exit, 0, 1},
    {"threads", with_threads, 0, 1},       {"handler", in_a_handler, 7, 1},
    {"stderr closed", close_stderr, 0, 1}, {"descriptors reused", reuse_descriptors, 0, 0},
};

/* Runs one way; how often its output has the first line of a report. */
static int reports_of(size_t way)
{
    int ends[2];
    int count = 0;
    int status = -1;
    char line[1024];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        alarm(LIMIT_S);
        execl(self, self, ways[way].name, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    while (output && fgets(line, sizeof line, output)) {
        bool ours = strncmp(line, "zone[", 5) == 0;
        CHECK(ours, "%s: %s", ways[way].name, line);
        count += strstr(line, "] libzone ") != NULL;
    }
    fclose(output);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ways[way].code, "%s: status %x",
          ways[way].name, (unsigned)status);
    return count;
}

int main(int argc, char **argv)
{
    self = argv[0];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (argc == 1) {
            int count = reports_of(i);
            int expected = pooled() ? ways[i].reports : 0;
            CHECK(count == expected, "%s: %d reports, not %d", ways[i].name, count, expected);
        } else if (strcmp(argv[1], ways[i].name) == 0) {
            victim_start();
            allocate(40);
            ways[i].end();
        }
    }
    return 0;
}
