/* SPDX-License-Identifier: Apache-2.0
 *
 * The random program: threads that allocate, use and free device memory in every way, own every
 * byte that they were given, and notice when somebody else writes to it. Each step of a thread is
 * one operation (ops.c), made while holding the world; operations that need to be alone (alone.c)
 * stop it. place.c holds contexts and streams, block.c memory and what is done with it, claim.c
 * what the device still has room for and who owns which address, check.c the answers of kernels.
 */
#pragma once

#include "plan.h"
#include "rng.h"

#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { PLACES = 2, STREAMS = 6, BLOCKS = 16, CHECKS = 256, LEAVING = 32 };

/* What an injected failure returns: no fault of the context, as a driver short of memory does. */
#define INJECTED CUDA_ERROR_OUT_OF_MEMORY

enum kernel { FILL, CHECK, ADD, COPY, SPIN, SIGNAL, WAITFLAG, FAULT, KERNELS };

/* A context that the threads work in. It ends and begins anew, which makes it another life. */
struct place {
    unsigned index;
    CUcontext ctx;
    unsigned life;
    CUmodule module;
    CUfunction kernels[KERNELS];
    CUstream streams[STREAMS];
};

/* A stream for one use; some are destroyed right after it. */
struct lane {
    CUstream stream;
    bool passing;
};

enum kind { PLAIN, PITCHED, MANAGED, ASYNC, KINDS };

/* Memory that one thread owns at a time. Words are all `tag` once the queued work is done. */
struct block {
    CUdeviceptr ptr;
    size_t bytes;
    size_t chunks; /* of the device, at most */
    struct place *place;
    CUevent used; /* recorded after its newest use */
    uint32_t tag;
    enum kind kind;
    bool filled;
    bool marked; /* owned in the map of addresses */
};

/* A question to the device: how many words are wrong? */
struct check {
    struct place *place;
    CUdeviceptr ptr;
    size_t bytes;
    uint32_t tag;
    uint64_t step;
    uint32_t *answer; /* [0] wrong words, [1] set when done */
};

/* A share of the device that comes back when an event completes. */
struct leaving {
    struct place *place;
    CUevent event;
    size_t chunks;
};

struct thread {
    unsigned index;
    pthread_t id;
    _Atomic uint64_t step;
    struct rng rng;
    const char *op;
    unsigned block_count;
    struct block *blocks[BLOCKS];
    size_t chunks; /* held by blocks */
    struct check checks[CHECKS];
    uint64_t check_head, check_tail;
    struct leaving leaving[LEAVING];
    unsigned leaving_count;
    struct {
        CUstream stream;
        unsigned life;
    } capture[PLACES];
    uint32_t tags;
    _Atomic bool done; /* the thread has returned and wants to be joined */
};

struct stress {
    uint64_t seed; /* of the whole run; the plan has the round's own */
    struct plan plan;
    struct conf conf;
    unsigned thread_count;
    struct thread *threads;
    double seconds;
    bool zone; /* libzone is loaded */
    bool simulated;
    _Atomic bool stop;
    _Atomic bool over;       /* the process exits under the threads: nothing is wrong any more */
    _Atomic uint64_t allocs; /* successful cuMemAlloc calls */
    _Atomic uint64_t steps;
    bool faults; /* some kernel has faulted */
    struct place places[PLACES];
};

extern struct stress stress;
extern _Thread_local struct thread *me; /* NULL in the main thread */

/* fail.c */
__attribute__((format(printf, 3, 4), noreturn)) void stress_fail(const char *file, int line,
                                                                 const char *format, ...);
/* The same about an address: says what was done with it last. */
__attribute__((format(printf, 4, 5), noreturn)) void
stress_fail_at(const char *file, int line, CUdeviceptr ptr, const char *format, ...);
void stress_check_rc(const char *file, int line, const char *call, CUresult rc);
/* Remembers that this thread did something with an address. */
void stress_note(const char *what, CUdeviceptr ptr, uint64_t detail);
uint64_t now_ns(void);
void sleep_us(uint64_t us);

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            stress_fail(__FILE__, __LINE__, __VA_ARGS__);                                          \
        }                                                                                          \
    } while (0)

/* A call that succeeds; in a round that injects failures it may fail once in between. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult must_rc = (call);                                                                 \
        for (int must_i = 0; must_rc == INJECTED && stress.plan.inject && must_i < 9; must_i++) {  \
            must_rc = (call);                                                                      \
        }                                                                                          \
        stress_check_rc(__FILE__, __LINE__, #call, must_rc);                                       \
    } while (0)

/* The simulator's own functions; NULL on a real GPU. */
void *zsim(const char *name);
uint64_t zsim_calls_of(const char *name);
size_t zsim_bytes(void);
/* Bytes of the simulated device. */
size_t stress_capacity(void);
