/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the model: see model_gpu.h. Each checks the rules before it has its effect.
 */
#include "model_gpu_state.h"

#include <check.h>

/* Waits on the host until then. */
static void wait_until(uint64_t end, const char *who)
{
    ck_assert_msg(end != UINT64_MAX, "%s waits for work that never ends: a hang", who);
    if (end > model.now) {
        model.stalls++;
        model.now = end;
    }
}

static bool memory_in_use(const struct model_memory *memory)
{
    for (unsigned i = model.old; i < model.works; i++) {
        if (model.work[i].addr == memory->addr && !model_is_complete(i)) {
            return true;
        }
    }
    return false;
}

static void run_hooks(enum model_call call, enum model_when when)
{
    for (unsigned i = 0; i < model.hooks; i++) {
        struct model_hook *hook = &model.hook[i];
        if (hook->spent || hook->call != call || hook->when != when) {
            continue;
        }
        if (hook->skip > 0) {
            hook->skip--;
            continue;
        }
        hook->spent = true;
        hook->fn(hook->arg);
    }
}

/* The scripted code of this call, 0 if none. */
static int scripted(enum model_call call)
{
    int rc = 0;
    for (unsigned i = 0; i < model.failures && rc == 0; i++) {
        struct model_failure *failure = &model.failure[i];
        if (failure->call != call || failure->times == 0) {
            continue;
        }
        if (failure->skip > 0) {
            failure->skip--;
        } else {
            failure->times--;
            rc = failure->rc;
        }
    }
    return rc != 0 ? rc : model.fault;
}

static const char *const call_names[MODEL_CALLS] = {
    "alloc",       "free",          "event_create", "record",      "query",       "wait",
    "synchronize", "mem_info",      "sleep",        "fill_open",   "fill",        "fill_mark",
    "fill_done",   "stream_record", "stream_wait",  "stream_fill", "stream_free",
};

static void check_malloc(enum model_call call)
{
    static const bool free_of_waits[MODEL_CALLS] = {
        [MODEL_ALLOC] = true,     [MODEL_QUERY] = true,      [MODEL_MEM_INFO] = true,
        [MODEL_FILL_OPEN] = true, [MODEL_FILL] = true,       [MODEL_FILL_MARK] = true,
        [MODEL_FILL_DONE] = true, [MODEL_STREAM_FILL] = true};
    static const bool last_rung[MODEL_CALLS] = {[MODEL_EVENT_CREATE] = true,
                                                [MODEL_RECORD] = true,
                                                [MODEL_STREAM_WAIT] = true,
                                                [MODEL_SLEEP] = true,
                                                [MODEL_FREE] = true};
    if (!model.in_malloc || free_of_waits[call] || (call == MODEL_SLEEP && model.naps)) {
        return;
    }
    ck_assert_msg(model.refused_memory, "a malloc calls %s before it is out of memory",
                  call_names[call]);
    ck_assert_msg(last_rung[call], "a malloc that is out of memory calls %s: it may only poll",
                  call_names[call]);
}

/* The start of every call. Returns the code it must return without an effect, or 0. */
int model_begin(enum model_call call)
{
    model.counts[call]++;
    model.now += model.cost[call];
    if (model.check) {
        model.check(NULL);
    }
    check_malloc(call);
    run_hooks(call, MODEL_BEFORE);
    return scripted(call);
}

int model_end(enum model_call call, int rc)
{
    run_hooks(call, MODEL_AFTER);
    return rc;
}

static int call_alloc(zone_addr_t *ret_addr, size_t bytes)
{
    int rc = model_begin(MODEL_ALLOC);
    model_free_late();
    if (rc == ZONE_GPU_OK && (bytes == 0 || bytes > SIZE_MAX / 2)) {
        rc = bytes == 0 ? ZONE_GPU_INVALID_VALUE : ZONE_GPU_OUT_OF_MEMORY;
    }
    if (rc == ZONE_GPU_OK && model.used + model.neighbour + bytes > model.capacity) {
        rc = ZONE_GPU_OUT_OF_MEMORY;
    }
    if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        model.refused_memory = true;
    }
    if (rc != ZONE_GPU_OK) {
        return model_end(MODEL_ALLOC, rc);
    }
    /* A freed address of the same size comes back, as the driver's do. */
    struct model_memory *memory = NULL;
    for (unsigned i = 0; i < model.memories && !memory; i++) {
        bool free = !model.memory[i].held && !model.memory[i].spent;
        memory = free && model.memory[i].bytes == bytes ? &model.memory[i] : NULL;
    }
    if (!memory) {
        ck_assert_uint_lt(model.memories, MODEL_MEMORY_MAX);
        memory = &model.memory[model.memories++];
        if (bytes >= 2 * ZONE_MIB) { /* as a real driver aligns them */
            model.next_addr = (model.next_addr + 2 * ZONE_MIB - 1) & ~(2 * ZONE_MIB - 1);
        }
        *memory = (struct model_memory){.addr = model.next_addr, .bytes = bytes};
        model.next_addr += (bytes + 511) / 512 * 512;
    }
    memory->held = true;
    memory->ctx = model.current;
    model.used += bytes;
    model_bytes_new(memory->addr, bytes);
    *ret_addr = memory->addr;
    return model_end(MODEL_ALLOC, rc);
}

static int call_free(zone_addr_t addr)
{
    int rc = model_begin(MODEL_FREE);
    struct model_memory *memory = model_memory_at(addr);
    if (rc != ZONE_GPU_OK) {
        return model_end(MODEL_FREE, rc);
    }
    ck_assert_msg(memory && memory->held, "gives back memory that the device does not hold");
    ck_assert_msg(model.free_in_use || !memory_in_use(memory), "gives back memory that is in use");
    uint64_t end_of_work = model_context_end(memory->ctx, model.works);
    ck_assert_msg(!model.in_malloc || end_of_work <= model.now,
                  "a malloc gives back beside running work");
    wait_until(end_of_work, "free");
    memory->held = false;
    model.used -= memory->bytes;
    model_bytes_gone(memory->addr, memory->bytes);
    return model_end(MODEL_FREE, rc);
}

static int call_free_nothing(void *ctx)
{
    zone_addr_t own;
    (void)ctx;
    int rc = call_alloc(&own, 1);
    return rc == ZONE_GPU_OK ? call_free(own) : rc == ZONE_GPU_OUT_OF_MEMORY ? ZONE_GPU_OK : rc;
}

static int call_event_create(void *ctx, void **ret_event)
{
    int rc = model_begin(MODEL_EVENT_CREATE);
    if (rc == ZONE_GPU_OK) {
        ck_assert_uint_lt(model.events, MODEL_EVENT_MAX);
        struct model_event *event = &model.event[model.events++];
        *event = (struct model_event){.ctx = ctx};
        *ret_event = event;
    }
    return model_end(MODEL_EVENT_CREATE, rc);
}

static int call_record(void *ctx, void *arg)
{
    struct model_event *event = arg;
    ck_assert_msg(event->users == 0, "records an event again while a thread asks or waits for it");
    ck_assert_msg(event->state != MODEL_EVENT_RECORDING, "two threads record one event");
    ck_assert_msg(event->state != MODEL_EVENT_DEAD, "records an event of a context that is gone");
    ck_assert_ptr_eq(event->ctx, ctx);
    if (event->state == MODEL_EVENT_RECORDED && !event->failed) {
        ck_assert_msg(model_context_end(ctx, event->covers) <= model.now,
                      "records an event again before its work is complete");
    }
    event->state = MODEL_EVENT_RECORDING;
    int rc = model_begin(MODEL_RECORD);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    event->failed = rc != ZONE_GPU_OK;
    event->covers = model.works;
    rc = model_end(MODEL_RECORD, rc);
    event->state = MODEL_EVENT_RECORDED;
    return rc;
}

/* What query and wait have in common. */
int model_begin_about(enum model_call call, struct model_event *event)
{
    ck_assert_msg(event->state == MODEL_EVENT_RECORDED && !event->failed,
                  "%s of an event whose record is not complete", call_names[call]);
    event->users++;
    return model_begin(call);
}

static int call_query(void *arg)
{
    struct model_event *event = arg;
    int rc = model_begin_about(MODEL_QUERY, event);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    if (rc == ZONE_GPU_OK && model_event_end(event) > model.now) {
        rc = ZONE_GPU_NOT_READY;
    }
    rc = model_end(MODEL_QUERY, rc);
    event->users--;
    return rc;
}

static int call_wait(void *arg)
{
    struct model_event *event = arg;
    ck_assert_msg(!event->streams, "waits on the host for an event of a stream");
    int rc = model_begin_about(MODEL_WAIT, event);
    if (rc == ZONE_GPU_OK) {
        wait_until(model_context_end(event->ctx, event->covers), "wait");
    }
    rc = model_end(MODEL_WAIT, rc);
    event->users--;
    return rc;
}

static int call_synchronize(void *ctx)
{
    int rc = model_begin(MODEL_SYNCHRONIZE);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    if (rc == ZONE_GPU_OK) {
        wait_until(model_context_end(ctx, model.works), "synchronize");
    }
    return model_end(MODEL_SYNCHRONIZE, rc);
}

static int call_mem_info(void *ctx, size_t *ret_free, size_t *ret_total)
{
    (void)ctx;
    int rc = model_begin(MODEL_MEM_INFO);
    if (rc == ZONE_GPU_OK) {
        *ret_free = model.capacity - model.used - model.neighbour;
        *ret_total = model.capacity;
    }
    return model_end(MODEL_MEM_INFO, rc);
}

static void call_sleep(uint64_t ns)
{
    model_begin(MODEL_SLEEP);
    model.now += ns;
    model_end(MODEL_SLEEP, ZONE_GPU_OK);
}

static int call_fill_open(void *ctx, void **ret_stream)
{
    int rc = model_begin(MODEL_FILL_OPEN);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    if (rc == ZONE_GPU_OK) {
        *ret_stream = ctx; /* one a context: its handle will do */
    }
    return model_end(MODEL_FILL_OPEN, rc);
}

static int call_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with)
{
    int rc = model_begin(MODEL_FILL);
    ck_assert_ptr_eq(stream, ctx);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    if (rc != ZONE_GPU_OK) {
        return model_end(MODEL_FILL, rc);
    }
    for (unsigned i = model.old; i < model.works; i++) {
        const struct model_work *work = &model.work[i];
        bool apart = work->addr - addr >= bytes && addr - work->addr >= work->bytes;
        ck_assert_msg(apart || work->stream >= MODEL_FILL_STREAM || model_is_complete(i),
                      "fills memory that work %u still uses", i);
    }
    model_bytes_fill(addr, bytes, with);
    model.work[model_launch(ctx, MODEL_FILL_STREAM, addr, model.fill_ns)].bytes = bytes;
    return model_end(MODEL_FILL, rc);
}

static int call_fill_mark(void *ctx, void *stream, void **arg)
{
    int rc = model_begin(MODEL_FILL_MARK);
    ck_assert_ptr_eq(stream, ctx);
    if (rc != ZONE_GPU_OK) {
        return model_end(MODEL_FILL_MARK, rc);
    }
    if (!*arg) {
        ck_assert_uint_lt(model.events, MODEL_EVENT_MAX);
        *arg = &model.event[model.events++];
        *(struct model_event *)*arg = (struct model_event){.ctx = ctx, .fills = true};
    }
    struct model_event *event = *arg;
    ck_assert_msg(event->state != MODEL_EVENT_DEAD,
                  "marks with an event of a context that is gone");
    ck_assert(event->fills && event->ctx == ctx);
    event->state = MODEL_EVENT_RECORDED;
    event->covers = model.works;
    return model_end(MODEL_FILL_MARK, rc);
}

static int call_fill_done(void *arg)
{
    struct model_event *event = arg;
    int rc = model_begin(MODEL_FILL_DONE);
    ck_assert_msg(event->state == MODEL_EVENT_RECORDED && event->fills,
                  "asks about fills that were not marked");
    if (rc == ZONE_GPU_OK && model_fills_end(event->ctx, event->covers) > model.now) {
        rc = ZONE_GPU_NOT_READY;
    }
    return model_end(MODEL_FILL_DONE, rc);
}

static const struct zone_gpu with_events = {
    .alloc = call_alloc,
    .free = call_free,
    .free_nothing = call_free_nothing,
    .event_create = call_event_create,
    .record = call_record,
    .query = call_query,
    .wait = call_wait,
    .synchronize = call_synchronize,
    .fill_open = call_fill_open,
    .fill = call_fill,
    .fill_mark = call_fill_mark,
    .fill_done = call_fill_done,
    .stream_record = model_stream_record,
    .stream_wait = model_stream_wait,
    .stream_fill = model_stream_fill,
    .stream_free = model_stream_free,
    .mem_info = call_mem_info,
    .now_ns = model_now,
    .sleep_ns = call_sleep,
};

static const struct zone_gpu without_events = {
    .alloc = call_alloc,
    .free = call_free,
    .free_nothing = call_free_nothing,
    .event_create = call_event_create,
    .query = call_query,
    .synchronize = call_synchronize,
    .fill_open = call_fill_open,
    .fill = call_fill,
    .fill_mark = call_fill_mark,
    .fill_done = call_fill_done,
    .stream_record = model_stream_record,
    .stream_wait = model_stream_wait,
    .stream_fill = model_stream_fill,
    .stream_free = model_stream_free,
    .mem_info = call_mem_info,
    .now_ns = model_now,
    .sleep_ns = call_sleep,
};

const struct zone_gpu *model_gpu(void)
{
    return &with_events;
}

const struct zone_gpu *model_gpu_without_events(void)
{
    return &without_events;
}
