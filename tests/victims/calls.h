/* SPDX-License-Identifier: Apache-2.0
 *
 * What the victims fail_* share: rows of one driver call each, which fail by script on the
 * simulated GPU with several codes. The program has to see the driver's own code, natively and
 * under libzone; nothing may be lost and everything has to work afterwards. Each row runs in
 * processes of its own. docs/CALLS.md is what a run prints (calls.py).
 */
#pragma once

/* Every form of a call by its exported name. */
#define __CUDA_API_VERSION_INTERNAL

#include "tools.h"

struct call_row {
    const char *name; /* exported name of the driver's function */
    const char *what; /* if there are several rows of it: on what, or NULL */
    /* Makes the call once, inside TRY, on things of its own. Afterwards nothing of it is left,
     * whether it succeeded or not: what a failed call should have ended is ended then. */
    CUresult (*call)(void);
};

/* The call, which fails if it was told to. */
#define TRY(call) (call_arm(), (call))
void call_arm(void);

/* Ends what a call left or should have ended. Only in a lost context may this fail. */
#define UNDO(rc, call) victim_expect(__FILE__, __LINE__, #call, 0, call_undone(rc, call))
int call_undone(CUresult rc, CUresult undone);

/* What rows may use: a context that is current, a stream, memory that no row frees. */
struct call_scene {
    CUcontext context;
    CUstream stream;
    CUdeviceptr data;
};
extern struct call_scene scene;

/* Words that keep their value while rows run. */
enum { SCENE_WORDS = 4096 };

/* A size that was not asked for before, so that no pool has it. */
size_t call_new_size(void);
/* Memory that a pool keeps, if there is one. */
void call_keep_memory(void);
/* The scene's stream and memory work, and new memory does. */
void call_check_data(void);

/* Runs all rows, each in its processes, and prints them; the victim's exit code. With arguments, as
 * started by itself, one row in one way. */
int call_rows(const struct call_row *rows, size_t count, int argc, char **argv);
/* Runs this program again with two arguments; false if it failed. */
bool call_again(const char *self, const char *name, const char *way);
/* The kind of the call in shim/hooks.def: SERVE, RETRY…, CALL. */
const char *call_kind(const char *name);

/* What lives of each kind (zsim_live), and bytes that are free. */
struct call_lives {
    uint64_t allocations, events, others[8];
    size_t free_bytes, taken;
};
struct call_lives call_lives(void);
void call_check_lives(const struct call_lives *before);
