/* SPDX-License-Identifier: Apache-2.0
 *
 * The world of the model: see model_gpu.h. Work is kept in order of submission for the whole test,
 * and an event is a position in that order, so that "covers exactly the work submitted before its
 * record" is true by construction.
 */
#include "model_gpu_state.h"

#include <check.h>
#include <string.h>

struct model model;
char model_contexts[4];

void model_reset(size_t capacity)
{
    memset(&model, 0, offsetof(struct model, work));
    model.capacity = capacity;
    model.now = UINT64_C(1000000000);
    model.current = MODEL_CTX;
    model.next_addr = (zone_addr_t)1 << 32;
    model_track_bytes(false);
}

/* Work and time */

/* When the work ends, as far as it is known: never before the work ahead of it on its stream. */
static uint64_t work_end(unsigned number)
{
    struct model_work *work = &model.work[number];
    if (work->end != UINT64_MAX) {
        return work->end;
    }
    uint64_t start = work->submitted;
    if (work->before > 0) {
        uint64_t before = work_end(work->before - 1);
        start = before > start ? before : start;
    }
    if (start != UINT64_MAX && work->covers > 0) {
        uint64_t other = model_stream_end(work->wait_ctx, work->wait_stream, work->covers);
        start = other > start ? other : start;
    }
    if (start == UINT64_MAX) {
        return start;
    }
    if (work->ns != MODEL_FOREVER) {
        work->end = start + work->ns;
    } else if (work->finished_at > 0) {
        work->end = work->finished_at > start ? work->finished_at : start;
    }
    return work->end;
}

struct model_memory *model_memory_at(zone_addr_t addr)
{
    for (unsigned i = model.memories; i > 0; i--) {
        if (model.memory[i - 1].addr == addr) {
            return &model.memory[i - 1];
        }
    }
    return NULL;
}

/* What the device holds there: the block itself, or the segment that it is a part of. */
static const struct model_memory *model_holder(zone_addr_t addr)
{
    for (unsigned i = model.memories; i > 0; i--) {
        const struct model_memory *memory = &model.memory[i - 1];
        if (memory->held && addr - memory->addr < memory->bytes) {
            return memory;
        }
    }
    return NULL;
}

unsigned model_launch(void *ctx, unsigned stream, zone_addr_t addr, uint64_t ns)
{
    ck_assert_uint_lt(model.works, MODEL_WORK_MAX);
    struct model_work *work = &model.work[model.works];
    *work = (struct model_work){.ctx = ctx,
                                .stream = stream,
                                .addr = addr,
                                .bytes = 1,
                                .submitted = model.now,
                                .ns = ns,
                                .end = UINT64_MAX};
    if (addr != 0) {
        ck_assert_msg(model_holder(addr), "work on memory that nobody has");
    }
    for (unsigned i = model.works; i > 0 && work->before == 0; i--) {
        if (model.work[i - 1].ctx == ctx && model.work[i - 1].stream == stream) {
            work->before = i;
        }
    }
    return model.works++;
}

void model_set_current(void *ctx)
{
    model.current = ctx;
}

void model_destroy(void *ctx)
{
    for (unsigned i = 0; i < model.works; i++) {
        if (model.work[i].ctx == ctx && !model_is_complete(i)) {
            model.work[i].end = model.now;
        }
    }
    for (unsigned i = 0; i < model.memories; i++) {
        if (model.memory[i].ctx == ctx && model.memory[i].held) {
            model.memory[i].held = false;
            model.used -= model.memory[i].bytes;
            model_bytes_gone(model.memory[i].addr, model.memory[i].bytes);
        }
    }
    for (unsigned i = 0; i < model.events; i++) {
        if (model.event[i].ctx == ctx) {
            model.event[i].state = MODEL_EVENT_DEAD;
        }
    }
}

void model_finish(unsigned work)
{
    ck_assert_uint_eq(model.work[work].ns, MODEL_FOREVER);
    model.work[work].finished_at = model.now;
}

bool model_is_complete(unsigned work)
{
    return work_end(work) <= model.now;
}

uint64_t model_now(void)
{
    return model.now;
}

void model_advance(uint64_t ns)
{
    model.now += ns;
}

uint64_t model_context_end(const void *ctx, unsigned covers)
{
    uint64_t end = 0;
    while (model.old < model.works && model_is_complete(model.old)) {
        model.old++;
    }
    for (unsigned i = model.old; i < covers; i++) {
        if (model.work[i].ctx == ctx && work_end(i) > end) {
            end = work_end(i);
        }
    }
    return end;
}

uint64_t model_stream_end(const void *ctx, unsigned stream, unsigned covers)
{
    uint64_t end = 0;
    for (unsigned i = model.old; i < covers; i++) {
        if (model.work[i].ctx == ctx && model.work[i].stream == stream && work_end(i) > end) {
            end = work_end(i);
        }
    }
    return end;
}

uint64_t model_event_end(const struct model_event *event)
{
    return event->streams ? model_stream_end(event->ctx, event->stream, event->covers)
                          : model_context_end(event->ctx, event->covers);
}

void *model_stream(unsigned stream)
{
    return (void *)((uintptr_t)stream + 1);
}

uint64_t model_fills_end(const void *ctx, unsigned covers)
{
    uint64_t end = 0;
    for (unsigned i = model.old; i < covers; i++) {
        bool is_fill = model.work[i].ctx == ctx && model.work[i].stream >= MODEL_FILL_STREAM;
        if (is_fill && work_end(i) > end) {
            end = work_end(i);
        }
    }
    return end;
}

/* Memory */

void model_handed_out(zone_addr_t addr, size_t bytes)
{
    ck_assert_msg(model_holder(addr), "handed out memory that the device does not hold");
    for (unsigned i = model.old; i < model.works; i++) {
        const struct model_work *work = &model.work[i];
        bool apart = work->addr - addr >= bytes && addr - work->addr >= work->bytes;
        ck_assert_msg(apart || model_is_complete(i),
                      "memory handed out early: work %u still uses it", i);
    }
}

/* Is the work before the end of what the stream was given up to `limit`, by order or by waits? */
static bool model_ordered(const void *ctx, unsigned stream, unsigned limit, unsigned number)
{
    for (unsigned i = model.old; i < limit; i++) {
        const struct model_work *work = &model.work[i];
        if (work->ctx == ctx && work->stream == stream &&
            (i == number || (work->covers > 0 && model_ordered(work->wait_ctx, work->wait_stream,
                                                               work->covers, number)))) {
            return true;
        }
    }
    return false;
}

void model_handed_out_on(unsigned stream, zone_addr_t addr, size_t bytes)
{
    ck_assert_msg(model_holder(addr), "handed out memory that the device does not hold");
    for (unsigned i = model.old; i < model.works; i++) {
        const struct model_work *work = &model.work[i];
        bool apart = work->addr - addr >= bytes && addr - work->addr >= work->bytes;
        ck_assert_msg(apart || model_is_complete(i) ||
                          model_ordered(model.current, stream, model.works, i),
                      "memory handed out early to stream %u: work %u still uses it", stream, i);
    }
}

void model_set_late_frees(bool late)
{
    model.late_frees = late;
}

bool model_is_held(zone_addr_t addr)
{
    return model_holder(addr);
}

size_t model_used(void)
{
    return model.used;
}

void model_set_fill_ns(uint64_t ns)
{
    model.fill_ns = ns;
}

void model_finish_fills(void)
{
    for (unsigned i = 0; i < model.works; i++) {
        bool is_fill = model.work[i].stream >= MODEL_FILL_STREAM;
        if (is_fill && model.work[i].ns == MODEL_FOREVER && model.work[i].finished_at == 0) {
            model_finish(i);
        }
    }
}

void model_allow_naps(bool allowed)
{
    model.naps = allowed;
}

void model_set_neighbour(size_t bytes)
{
    model.neighbour = bytes;
}

/* What tests set */

void model_fail(enum model_call call, unsigned skip, unsigned times, int rc)
{
    unsigned i = 0;
    while (i < model.failures && model.failure[i].times > 0) {
        i++;
    }
    ck_assert_uint_lt(i, MODEL_FAIL_MAX);
    model.failures = i < model.failures ? model.failures : i + 1;
    model.failure[i] = (struct model_failure){call, skip, times, rc};
}

void model_fail_none(void)
{
    model.failures = 0;
}

void model_set_fault(int rc)
{
    model.fault = rc;
}

void model_set_capture(bool capture)
{
    model.capture = capture;
}

void model_set_cost(enum model_call call, uint64_t ns)
{
    model.cost[call] = ns;
}

void model_hook(enum model_call call, unsigned skip, enum model_when when, model_hook_fn fn,
                void *arg)
{
    ck_assert_uint_lt(model.hooks, MODEL_HOOK_MAX);
    model.hook[model.hooks++] = (struct model_hook){call, skip, when, fn, arg, false};
}

void model_set_check(model_hook_fn fn)
{
    model.check = fn;
}

unsigned model_count(enum model_call call)
{
    return model.counts[call];
}

unsigned model_stalls(void)
{
    return model.stalls;
}

void model_enter_malloc(void)
{
    model.in_malloc = true;
    model.refused_memory = false;
}

void model_refuse_malloc(void)
{
    model.refused_memory = true;
}

void model_leave_malloc(void)
{
    model.in_malloc = false;
}

void model_allow_free_in_use(bool allowed)
{
    model.free_in_use = allowed;
}
