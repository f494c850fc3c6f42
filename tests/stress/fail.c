/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said when something is wrong: where, in which step of which thread, and what was done
 * last with the address in question. The process ends at once, without destructors.
 */
#include "stress.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NOTES = 1 << 15, NOTES_SHOWN = 16 };

struct note {
    _Atomic uint64_t ns;
    const char *what;
    CUdeviceptr ptr;
    uint64_t detail;
    uint64_t step;
    unsigned thread;
};

static struct note notes[NOTES];
static _Atomic uint32_t note_next;

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void sleep_us(uint64_t us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&pause, NULL);
}

/* Each entry is written by the one thread that drew its number. */
void stress_note(const char *what, CUdeviceptr ptr, uint64_t detail)
{
    struct note *note = &notes[atomic_fetch_add(&note_next, 1) % NOTES];
    note->what = what;
    note->ptr = ptr;
    note->detail = detail;
    note->step = me ? atomic_load_explicit(&me->step, memory_order_relaxed) : 0;
    note->thread = me ? me->index : 0;
    atomic_store_explicit(&note->ns, now_ns(), memory_order_release);
}

static void show_notes(CUdeviceptr ptr)
{
    uint32_t end = atomic_load(&note_next);
    uint32_t first = end > NOTES ? end - NOTES : 0;
    uint32_t found[NOTES_SHOWN];
    unsigned count = 0;
    for (uint32_t i = end; i > first && count < NOTES_SHOWN; i--) {
        if (notes[(i - 1) % NOTES].ptr == ptr) {
            found[count++] = i - 1;
        }
    }
    uint64_t now = now_ns();
    for (unsigned i = count; i > 0; i--) {
        const struct note *note = &notes[found[i - 1] % NOTES];
        fprintf(stderr, "  %8.3f ms ago, thread %u step %llu: %s %#llx\n",
                (double)(now - note->ns) / 1e6, note->thread, (unsigned long long)note->step,
                note->what, (unsigned long long)note->detail);
    }
}

__attribute__((format(printf, 4, 0), noreturn)) static void
fail(const char *file, int line, CUdeviceptr ptr, const char *format, va_list args)
{
    static atomic_flag failed = ATOMIC_FLAG_INIT;
    char text[600];
    if (atomic_load(&stress.over) || atomic_flag_test_and_set(&failed)) {
        /* The process is ending already. */
        for (;;) {
            pause();
        }
    }
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "stress: seed %#llx round %u thread %u step %llu (%s): %s (%s:%d)\n",
            (unsigned long long)stress.seed, stress.plan.round, me ? me->index : 0,
            me ? (unsigned long long)atomic_load(&me->step) : 0, me && me->op ? me->op : "main",
            text, strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
    if (ptr) {
        show_notes(ptr);
    }
    fflush(NULL);
    _Exit(1);
}

void stress_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(file, line, 0, format, args);
}

void stress_fail_at(const char *file, int line, CUdeviceptr ptr, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(file, line, ptr, format, args);
}

void stress_check_rc(const char *file, int line, const char *call, CUresult rc)
{
    if (rc != CUDA_SUCCESS) {
        const char *name = NULL;
        cuGetErrorName(rc, &name);
        stress_fail(file, line, "%s gave %d (%s)", call, (int)rc, name ? name : "?");
    }
}

void *zsim(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

uint64_t zsim_calls_of(const char *name)
{
    uint64_t (*calls)(const char *);
    void *found = zsim("zsim_calls");
    memcpy(&calls, &found, sizeof calls);
    return found ? calls(name) : 0;
}

size_t zsim_bytes(void)
{
    uint64_t (*chunks)(int);
    void *found = zsim("zsim_chunks");
    memcpy(&chunks, &found, sizeof chunks);
    return found ? (size_t)chunks(0) * 2 * MIB : 0;
}

size_t stress_capacity(void)
{
    const char *mb = getenv("ZSIM_MEMORY_MB");
    return (mb ? strtoull(mb, NULL, 10) : 4096) * MIB;
}
