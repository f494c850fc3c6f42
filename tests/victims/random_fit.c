/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: random programs that hold up to 95 % of 4 GiB. Whatever completes without libzone
 * completes with it, by default. The same programs with PyTorch's rules for cutting are only
 * counted. Usage: random_fit COUNT; as `random_fit COUNT -` it is one such run, which prints a
 * digit a program.
 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM ((size_t)4096 * MIB)
#define MOST (ROOM / 100 * 95)

enum { BLOCKS = 20000, STEPS = 300, MOST_PROGRAMS = 1000 };

struct held {
    CUdeviceptr ptr;
    size_t bytes;
};

static struct held held[BLOCKS];
static size_t count, live;
static uint64_t seed;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(seed >> 33) % n;
}

/* From 2^low to 2^high, each power as often as any other. */
static size_t by_powers(unsigned low, unsigned high)
{
    size_t power = (size_t)1 << (low + below(high - low));
    return power + below(power);
}

/* How large blocks are, and which goes first: drawn for each program. */
static size_t next_bytes(unsigned kind, size_t step)
{
    switch (kind) {
    case 0:
        return by_powers(9, 28);
    case 1:
        return MIB + below(100 * MIB);
    case 2:
        return below(8) == 0 ? by_powers(27, 30) : by_powers(10, 23);
    case 3:
        return MIB * (1 + step) + below(MIB); /* ever larger */
    default:
        return by_powers(21, 26) / (2 * MIB) * (2 * MIB);
    }
}

static void drop(unsigned order)
{
    size_t which = order == 0 ? count - 1 : order == 1 ? 0 : below(count);
    OK(cuMemFree(held[which].ptr));
    live -= held[which].bytes;
    count--;
    if (order == 1) {
        memmove(held, held + 1, count * sizeof held[0]); /* first in, first out */
    } else {
        held[which] = held[count];
    }
}

static bool completes(unsigned number, CUstream stream)
{
    seed = number * UINT64_C(0x9E3779B97F4A7C15) + 1;
    unsigned kind = (unsigned)below(5);
    unsigned order = (unsigned)below(3);
    bool good = true;
    for (size_t step = 0; step < STEPS && good; step++) {
        size_t bytes = next_bytes(kind, step);
        while (count > 0 && (live + bytes > MOST || count == BLOCKS)) {
            drop(order);
        }
        CUresult rc = cuMemAlloc(&held[count].ptr, bytes);
        CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "%d", (int)rc);
        good = rc == CUDA_SUCCESS;
        if (good) {
            OK(cuMemsetD8Async(held[count].ptr, 1, bytes < 256 ? bytes : 256, stream));
            held[count].bytes = bytes;
            live += bytes;
            count++;
        }
    }
    while (count > 0) {
        drop(order);
    }
    return good;
}

static int run_all(unsigned programs)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    leave_free(ROOM);
    for (unsigned i = 0; i < programs; i++) {
        putchar(completes(i, stream) ? '1' : '0');
    }
    fflush(stdout);
    return 0;
}

/* The run with a variable of the environment set, its digits in ret_digits. How many completed. */
static unsigned run_with(char *self, char *programs, const char *variable, const char *value,
                         char *ret_digits)
{
    int ends[2];
    int status;
    size_t got = 0;
    unsigned good = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        if (variable) {
            setenv(variable, value, 1);
        }
        execl(self, self, programs, "-", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], ret_digits + got, MOST_PROGRAMS - got)) > 0;) {
        got += (size_t)n;
    }
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    CHECK(got > 0 && (slowness() > 1 || got == strtoul(programs, NULL, 10)), "%zu programs", got);
    for (size_t i = 0; i < got; i++) {
        good += ret_digits[i] == '1';
    }
    return good;
}

int main(int argc, char **argv)
{
    static char native[MOST_PROGRAMS + 1];
    static char pooled_run[MOST_PROGRAMS + 1];
    static char cut[MOST_PROGRAMS + 1];
    static char few[] = "20";
    char *programs = argc > 1 ? argv[1] : few;
    unsigned number = (unsigned)strtoul(programs, NULL, 10);
    CHECK(number > 0 && number <= MOST_PROGRAMS);
    if (argc > 2) {
        return run_all(number / slowness() > 0 ? number / slowness() : 1);
    }
    unsigned natively = run_with(argv[0], programs, "ZONE_DISABLE", "1", native);
    printf("programs=%u\ncomplete_natively=%u\n", number, natively);
    if (!under_zone()) {
        return 0;
    }
    unsigned good = run_with(argv[0], programs, NULL, NULL, pooled_run);
    unsigned split =
        run_with(argv[0], programs, "ZONE_ALLOC_CONF", "large_segment_size_mb:20", cut);
    unsigned lost = 0;
    for (unsigned i = 0; i < number; i++) {
        lost += native[i] == '1' && pooled_run[i] != '1';
    }
    printf("complete_with_libzone=%u\ncomplete_when_cut=%u\nlost=%u\n", good, split, lost);
    CHECK(lost == 0, "complete natively and not with libzone: %u", lost);
    return 0;
}
