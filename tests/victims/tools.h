/* SPDX-License-Identifier: Apache-2.0
 *
 * What victims of races share: work that is held until a flag is raised, threads that have the
 * starter's context, and, on the simulated GPU, what the driver was asked. Nothing here measures
 * time: whether a call waited is read off whether held work gave up meanwhile.
 */
#pragma once

#include "victim.h"

#include <pthread.h>

/* Work that holds up its stream until the gate is opened, or gives up after a while. */
struct gate {
    uint32_t *flag;
    uint32_t *how; /* enum gate_outcome */
};

enum gate_outcome {
    GATE_CLOSED,
    GATE_OPENED,
    GATE_GAVE_UP,
};

struct gate gate_close(CUstream stream, double limit_ms);
/* The same with words of the caller's, for captures and callbacks: nothing is launched. */
struct gate gate_new(void);
/* As a host function instead of a kernel. */
struct gate gate_close_on_host(CUstream stream, double limit_ms);
void gate_open(struct gate gate);
void gate_open_on(CUstream stream, struct gate gate);
enum gate_outcome gate_outcome(struct gate gate);
/* The context that held the flags' memory is gone. */
void gates_forget(void);

struct worker {
    void (*run)(void *arg);
    void *arg;
    CUcontext context;
    bool done;
    pthread_t thread;
};

/* Starts run(arg) in a thread of its own, with the caller's context current there. */
void worker_start(struct worker *worker, void (*run)(void *arg), void *arg);
bool worker_done(struct worker *worker);
void worker_join(struct worker *worker);
/* Runs it and waits. */
void in_thread(void (*run)(void *arg), void *arg);

/* libzone is loaded and not switched off by the environment. */
bool pooled(void);
/* Frees return before the work that was submitted before them is complete: not with settings that
 * make them wait, nor on a driver that lacks context events. */
bool frees_run_ahead(void);
/* zone's configuration holds this text. */
bool configured(const char *text);

/* The driver's own function, read from its symbol table: no hook of look-ups sees that. NULL if
 * this driver has none of that name. */
void *driver_function(const char *name);
/* Calls of a driver function so far, libzone's own among them; 0 on a real GPU. */
uint64_t driver_calls(const char *name);
/* Driver calls that get or give back physical memory. */
uint64_t driver_allocs(void);
uint64_t driver_frees(void);
/* Bytes of device 0, or another, that are taken, by whatever kind of memory; 0 on a real GPU. */
size_t driver_bytes(void);
size_t driver_bytes_of(int device);
/* Takes memory past every allocator until so many bytes of the device are free, or fewer. */
void leave_free(size_t bytes);
/* Lets the in_calls-th call of a driver function from now on fail; 0: each. Only on the simulated
 * GPU. */
void driver_fail(const char *name, unsigned in_calls, int code);
/* Takes back what no call has met yet. */
void driver_fail_none(void);

/* Runs this program again with one argument and waits. How many reports of libzone came on its
 * standard error, where nothing else may come. A run that takes too long ends by SIGALRM. */
int reports_of_child(char *self, const char *argument, int *ret_status);

/* The same, but counts the lines with this text and lets others come. */
int lines_of_child(char *self, const char *argument, const char *text, int *ret_status);
