/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU in one thread, for tests: a clock that only moves when told, streams of work, context
 * events, memory with a capacity, failures on request. It refuses to be misused: a call that the
 * fence's rules forbid ends the test with a sentence. One model a process; the test is the only
 * thread, and plays others from hooks that run inside a call.
 */
#pragma once

#include "gpu.h"

#define MODEL_FOREVER UINT64_MAX /* a duration: until model_finish */

enum model_call {
    MODEL_ALLOC,
    MODEL_FREE,
    MODEL_EVENT_CREATE,
    MODEL_RECORD,
    MODEL_QUERY,
    MODEL_WAIT,
    MODEL_SYNCHRONIZE,
    MODEL_MEM_INFO,
    MODEL_SLEEP,
    MODEL_FILL_OPEN,
    MODEL_FILL,
    MODEL_FILL_MARK,
    MODEL_FILL_DONE,
    MODEL_STREAM_RECORD,
    MODEL_STREAM_WAIT,
    MODEL_STREAM_FILL,
    MODEL_STREAM_FREE,
    MODEL_CALLS,
};

/* When a hook runs: BEFORE the call has its effect (a record covers what the hook submits) or AFTER
 * (it does not), both before the caller sees the call return. */
enum model_when { MODEL_BEFORE, MODEL_AFTER };
typedef void (*model_hook_fn)(void *arg);

/* Contexts are handles; any distinct pointers do. */
extern char model_contexts[4];
#define MODEL_CTX  ((void *)&model_contexts[0])
#define MODEL_CTX2 ((void *)&model_contexts[1])

/* An empty device of so many bytes, nothing running, clock at 1 s, no hooks, counts at 0. */
void model_reset(size_t capacity);

/* The device with context events, and as a driver without them has it. */
const struct zone_gpu *model_gpu(void);
const struct zone_gpu *model_gpu_without_events(void);

/* The context in which alloc works from now on; MODEL_CTX after a reset. */
void model_set_current(void *ctx);
/* The context dies: its work ends, its memory is gone, its events must not be used any more. */
void model_destroy(void *ctx);

/* Submits work to a stream of a context (streams are numbers; those of different contexts do not
 * know each other): it starts when the work before it on the stream has ended, and runs for ns.
 * addr is the memory it uses, 0 if none: its holder must be handed out. Returns the work's number.
 */
unsigned model_launch(void *ctx, unsigned stream, zone_addr_t addr, uint64_t ns);

/* A stream as the seam's handle; it belongs to the current context. */
void *model_stream(unsigned stream);

/* Ends work that was submitted with MODEL_FOREVER. */
void model_finish(unsigned work);
bool model_is_complete(unsigned work);

uint64_t model_now(void);
void model_advance(uint64_t ns);

/* The program was given this address: work of its former holder must have ended by now. */
void model_handed_out(zone_addr_t addr, size_t bytes);
/* The same for a stream of the current context: its own earlier work may go on, and so may what it
 * waits for. */
void model_handed_out_on(unsigned stream, zone_addr_t addr, size_t bytes);

/* What memory holds is kept by ranges: new memory of 2 MiB and more is zero, smaller unknown. */
#define MODEL_UNKNOWN (-1)
/* From now on; costs time, so only where something is filled. Off after a reset. */
void model_track_bytes(bool on);
/* Every byte of the range is `with`. */
void model_expect(zone_addr_t addr, size_t bytes, int with);
/* The program has the range, and writes to it; gives it back. A fill in between ends the test. */
void model_program_holds(zone_addr_t addr, size_t bytes);
void model_given_back(zone_addr_t addr, size_t bytes);
/* Fills started from now on take so long; MODEL_FOREVER: until model_finish_fills. 0 by default. */
void model_set_fill_ns(uint64_t ns);
void model_finish_fills(void);
/* An allocation may poll though there is memory: junk_fill. */
void model_allow_naps(bool allowed);

/* The device has what was freed in a stream's order when the work before it is complete, not at
 * once. Off after a reset. */
void model_set_late_frees(bool late);

/* Is the memory at addr held from the device? */
bool model_is_held(zone_addr_t addr);
size_t model_used(void);
/* Other processes take so many bytes. */
void model_set_neighbour(size_t bytes);

/* The calls after the next `skip` of this kind return rc without an effect, `times` of them. */
void model_fail(enum model_call call, unsigned skip, unsigned times, int rc);
/* Takes back all that no call has met yet. */
void model_fail_none(void);
/* The context is lost: every call returns rc. 0: no longer. */
void model_set_fault(int rc);
/* A capture is under way: records, questions and synchronize are refused as the shim does. */
void model_set_capture(bool capture);
/* Each call of this kind takes so long. */
void model_set_cost(enum model_call call, uint64_t ns);

/* Runs fn inside the call after the next `skip` calls of this kind, once. */
void model_hook(enum model_call call, unsigned skip, enum model_when when, model_hook_fn fn,
                void *arg);
/* Runs fn at the start of every call, to check what must hold there; NULL: nothing. */
void model_set_check(model_hook_fn fn);

/* How often a function was called, and how often work was running when one that waits was. */
unsigned model_count(enum model_call call);
unsigned model_stalls(void);

/* Between these the calling "thread" is inside the program's malloc: nothing that waits, records or
 * gives back is allowed before the device has refused memory, and then only polling and, with the
 * whole context at rest, giving back. Hooks may play another thread in between: they clear the
 * state with leave and set it again. */
void model_enter_malloc(void);
void model_leave_malloc(void);
/* The malloc was refused memory by somebody else than the device. */
void model_refuse_malloc(void);

/* A free of memory that work still uses is the program's own: allowed until set back. */
void model_allow_free_in_use(bool allowed);
