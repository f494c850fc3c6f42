/* SPDX-License-Identifier: Apache-2.0
 *
 * What the victims share: checks that say where and what, kernels by name, time. A victim is one
 * small program for one nasty case; it exits 0 when all is right, 1 with a line on stderr when not,
 * 77 when the machine cannot show the case. It runs natively and under libzone, on the simulated
 * and on a real GPU, and must hold on all four.
 */
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Stops the victim with a message unless the condition holds. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            victim_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                          \
        }                                                                                          \
    } while (0)

/* A driver or runtime call that has to give this code; codes of both are the same numbers. */
#define EXPECT(code, call) victim_expect(__FILE__, __LINE__, #call, (int)(code), (int)(call))
#define OK(call)           EXPECT(0, call)

__attribute__((format(printf, 4, 5), noreturn)) void
victim_fail(const char *file, int line, const char *what, const char *format, ...);
void victim_expect(const char *file, int line, const char *what, int expected, int got);
__attribute__((noreturn)) void victim_skip(const char *why);

/* cuInit, the primary context of device 0 current, kernels loaded. */
void victim_start(void);
/* Loads the kernels into the current context, so that a later launch loads nothing. */
void victim_load_kernels(void);
/* After a context went away: its kernels are loaded again when next used. */
void victim_forget_kernels(void);

bool under_zone(void);
/* The simulator's own functions (tests/sim/zsim.h), NULL on a real GPU. */
void *zsim(const char *name);
bool simulated(void);
/* Is value what a failed call leaves of before? A real driver may clear an output. */
static inline bool is_untouched(unsigned long long value, unsigned long long before)
{
    return value == before || (value == 0 && !simulated());
}
/* VICTIM_SLOW=N in the environment: a tool makes the run about N times slower, so a part of what is
 * to be repeated will do, and limits of time are longer. Else 1. */
unsigned slowness(void);
double now_us(void);
void sleep_ms(double ms);

/* Launches by name in the current context; counts are in 4-byte words. */
void launch_fill(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value);
void launch_check(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value,
                  CUdeviceptr bad);
void launch_add(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value);
void launch_copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, uint64_t count);
void launch_spin(CUstream stream, double ms);
void launch_signal(CUstream stream, CUdeviceptr flag);
void launch_waitflag(CUstream stream, CUdeviceptr flag, CUdeviceptr how, double limit_ms);
void launch_fault(CUstream stream); /* 700, an illegal address */
void launch_trap(CUstream stream);  /* 719, the kernel stops itself */
/* One of the kernels without parameters that end in a fault, by its name. */
void launch_bad(CUstream stream, const char *kernel);
/* launch_spin as code instead of a check, for places where the launch may fail. */
CUresult try_launch_spin(CUstream stream, double ms);

CUstream new_stream(unsigned flags);
/* Current on this thread, with the kernels loaded; on every driver version. */
CUcontext new_context(CUdevice device);
/* How many of count words at ptr are not value; waits. */
uint32_t count_wrong(CUstream stream, CUdeviceptr ptr, uint64_t count, uint32_t value);
/* Zeroed words in mapped host memory, for flags that kernels and host share. */
uint32_t *host_words(size_t count);
uint32_t read_word(const uint32_t *word);

/* One native answer: what a program sees, as a number. */
struct answer {
    const char *name;
    int64_t (*get)(void);
    int64_t native;
    enum {
        ALWAYS,
        RECYCLED
    } when; /* RECYCLED: a pool hands out old bytes where the driver does not */
};
/* Prints each row as name = value and returns how many differ from the native ones. */
int victim_answers(const struct answer *rows, size_t count);

extern const char victim_ptx[];
