/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: ZSIM_JITTER_US. The program's own nanosleep stands before the C
 * library's, and keeps what it is asked for. Each setting has a child process of its own, as the
 * variables are read once.
 */
#include "../victims/victim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, LAUNCHES = 100 };

struct pauses {
    uint64_t own;     /* of the thread that calls */
    uint64_t own_sum; /* which depends on the order too */
    uint64_t of_streams;
    uint64_t longest_us;
};

static bool watching;
static pid_t caller;
static uint64_t own, own_sum, longest_us;
static atomic_uint_least64_t of_streams;

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (watching) {
        uint64_t us = (uint64_t)wanted->tv_sec * 1000000 + (uint64_t)wanted->tv_nsec / 1000;
        if (gettid() == caller) {
            own++;
            own_sum = own_sum * 31 + us;
            longest_us = us > longest_us ? us : longest_us;
        } else {
            atomic_fetch_add(&of_streams, 1);
        }
    }
    return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
}

static void child(int fd, const char *us, const char *seed)
{
    CUstream stream;
    int version;
    setenv("ZSIM_JITTER_US", us, 1);
    setenv("ZSIM_JITTER_SEED", seed, 1);
    caller = gettid();
    watching = true;
    for (unsigned i = 0; i < CALLS; i++) {
        OK(cuDriverGetVersion(&version));
    }
    struct pauses pauses = {.own = own, .own_sum = own_sum, .longest_us = longest_us};
    victim_start();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < LAUNCHES; i++) {
        launch_spin(stream, 0);
    }
    OK(cuStreamSynchronize(stream));
    pauses.of_streams = atomic_load(&of_streams);
    CHECK(write(fd, &pauses, sizeof pauses) == sizeof pauses);
    _exit(0);
}

static struct pauses run(const char *us, const char *seed)
{
    struct pauses pauses;
    int fds[2];
    int status;
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        child(fds[1], us, seed);
    }
    CHECK(read(fds[0], &pauses, sizeof pauses) == sizeof pauses);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    close(fds[0]);
    close(fds[1]);
    return pauses;
}

int main(void)
{
    struct pauses none = run("0", "1");
    struct pauses some = run("40", "1");
    struct pauses again = run("40", "1");
    struct pauses other = run("40", "2");
    CHECK(none.own == 0);
    CHECK(some.own > CALLS / 100 && some.own < CALLS, "%llu pauses", (unsigned long long)some.own);
    CHECK(some.of_streams > none.of_streams); /* spin kernels sleep too */
    CHECK(some.longest_us > 20 && some.longest_us <= 40, "%llu us",
          (unsigned long long)some.longest_us);
    CHECK(again.own == some.own && again.own_sum == some.own_sum, "the same seed, other pauses");
    CHECK(other.own_sum != some.own_sum, "another seed, the same pauses");
    return 0;
}
