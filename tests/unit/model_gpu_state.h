/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the model share: model_gpu.c, the world (work, time, memory, what tests set),
 * model_gpu_calls.c and model_gpu_streams.c, the functions of struct zone_gpu with the rules they
 * enforce.
 */
#pragma once

#include "model_gpu.h"

enum {
    MODEL_WORK_MAX = 1 << 16,
    MODEL_MEMORY_MAX = 1 << 14,
    MODEL_EVENT_MAX = 4096,
    MODEL_HOOK_MAX = 16,
    MODEL_FAIL_MAX = 1024
};

struct model_work {
    void *ctx;
    unsigned stream;
    zone_addr_t addr;
    size_t bytes; /* from addr on */
    uint64_t submitted;
    uint64_t ns;
    uint64_t end;         /* UINT64_MAX: not known yet */
    uint64_t finished_at; /* of MODEL_FOREVER work; 0: not yet */
    unsigned before;      /* the work before it on its stream, plus 1; 0: none */
    /* A wait: it ends when the work of that context and stream below covers has. 0: none. */
    void *wait_ctx;
    unsigned wait_stream;
    unsigned covers;
};

struct model_memory {
    zone_addr_t addr;
    size_t bytes;
    void *ctx;
    bool held;
    bool spent; /* freed in a stream's order: its address does not come again */
    bool late;  /* and its bytes count until the stream's work below covers is complete */
    unsigned stream, covers;
};

enum model_event_state {
    MODEL_EVENT_NEW,
    MODEL_EVENT_RECORDING,
    MODEL_EVENT_RECORDED,
    MODEL_EVENT_DEAD
};

struct model_event {
    void *ctx;
    enum model_event_state state;
    unsigned covers; /* all work with a smaller number */
    unsigned users;  /* calls about it under way */
    bool failed;     /* its last record failed: nobody can be interested in it */
    bool fills;      /* recorded on the stream of the fills alone */
    bool streams;    /* recorded on one stream: */
    unsigned stream;
};

struct model_hook {
    enum model_call call;
    unsigned skip;
    enum model_when when;
    model_hook_fn fn;
    void *arg;
    bool spent;
};

struct model_failure {
    enum model_call call;
    unsigned skip;
    unsigned times;
    int rc;
};

struct model {
    size_t capacity, used, neighbour;
    uint64_t now;
    void *current;
    zone_addr_t next_addr;
    unsigned old; /* all work below this number is complete */
    unsigned works, memories, events, hooks, failures;
    unsigned counts[MODEL_CALLS];
    uint64_t cost[MODEL_CALLS];
    uint64_t fill_ns;
    unsigned stalls;
    int fault;
    bool capture, in_malloc, refused_memory, free_in_use, naps, late_frees;
    model_hook_fn check;
    struct model_work work[MODEL_WORK_MAX];
    struct model_memory memory[MODEL_MEMORY_MAX];
    struct model_event event[MODEL_EVENT_MAX];
    struct model_hook hook[MODEL_HOOK_MAX];
    struct model_failure failure[MODEL_FAIL_MAX];
};

extern struct model model;

/* The streams of fills have numbers from here on, programs' below. */
enum { MODEL_FILL_STREAM = 1 << 20 };

/* Takes back what was freed late and is complete by now. */
void model_free_late(void);

/* What memory holds (model_bytes.c). */
void model_bytes_new(zone_addr_t addr, size_t bytes);
void model_bytes_gone(zone_addr_t addr, size_t bytes);
void model_bytes_fill(zone_addr_t addr, size_t bytes, int with);

/* The same for one stream. */
uint64_t model_stream_end(const void *ctx, unsigned stream, unsigned covers);
/* What the event waits for. */
uint64_t model_event_end(const struct model_event *event);
/* The same for the streams of fills alone. */
uint64_t model_fills_end(const void *ctx, unsigned covers);
/* When all work of a context with a number below `covers` has ended, as far as it is known. */
uint64_t model_context_end(const void *ctx, unsigned covers);
/* What the device holds at addr, or last held; NULL: never anything. */
struct model_memory *model_memory_at(zone_addr_t addr);

/* The start of every call, with the rules for it: the code that it must return without an effect,
 * or 0. The same for a call about an event. And its end, which returns rc. */
int model_begin(enum model_call call);
int model_begin_about(enum model_call call, struct model_event *event);
int model_end(enum model_call call, int rc);

/* The calls about streams. */
int model_stream_record(void *ctx, void *stream, void *event);
int model_stream_wait(void *ctx, void *stream, void *event);
int model_stream_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with);
int model_stream_free(void *ctx, void *stream, zone_addr_t addr);
