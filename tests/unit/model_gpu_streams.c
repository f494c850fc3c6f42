/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the model that are about one stream of the program: see model_gpu_state.h.
 */
#include "model_gpu_state.h"

#include <check.h>

static unsigned stream_number(const void *stream)
{
    ck_assert_ptr_nonnull(stream);
    return (unsigned)((uintptr_t)stream - 1);
}

int model_stream_record(void *ctx, void *stream, void *arg)
{
    struct model_event *event = arg;
    ck_assert_msg(event->users == 0, "records an event again while a thread asks or waits for it");
    ck_assert_msg(event->state != MODEL_EVENT_RECORDING, "two threads record one event");
    ck_assert_msg(event->state != MODEL_EVENT_DEAD, "records an event of a context that is gone");
    ck_assert_msg(event->ctx == ctx, "records an event on a stream of another context");
    if (event->state == MODEL_EVENT_RECORDED && !event->failed) {
        ck_assert_msg(model_event_end(event) <= model.now,
                      "records an event again before its work is complete");
    }
    event->state = MODEL_EVENT_RECORDING;
    int rc = model_begin(MODEL_STREAM_RECORD);
    if (rc == ZONE_GPU_OK && model.capture) {
        rc = ZONE_GPU_REFUSED;
    }
    event->failed = rc != ZONE_GPU_OK;
    event->streams = true;
    event->stream = stream_number(stream);
    event->covers = model.works;
    rc = model_end(MODEL_STREAM_RECORD, rc);
    event->state = MODEL_EVENT_RECORDED;
    return rc;
}

int model_stream_wait(void *ctx, void *stream, void *arg)
{
    struct model_event *event = arg;
    int rc = model_begin_about(MODEL_STREAM_WAIT, event);
    ck_assert_msg(event->streams, "a stream waits for a whole context");
    if (rc == ZONE_GPU_OK) {
        struct model_work *work = &model.work[model_launch(ctx, stream_number(stream), 0, 0)];
        work->wait_ctx = event->ctx;
        work->wait_stream = event->stream;
        work->covers = event->covers;
    }
    rc = model_end(MODEL_STREAM_WAIT, rc);
    event->users--;
    return rc;
}

int model_stream_fill(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with)
{
    int rc = model_begin(MODEL_STREAM_FILL);
    if (rc == ZONE_GPU_OK) {
        model_set_current(ctx);
        model_handed_out_on(stream_number(stream), addr, bytes);
        model_bytes_fill(addr, bytes, with);
        model.work[model_launch(ctx, stream_number(stream), addr, 0)].bytes = bytes;
    }
    return model_end(MODEL_STREAM_FILL, rc);
}

int model_stream_free(void *ctx, void *stream, zone_addr_t addr)
{
    int rc = model_begin(MODEL_STREAM_FREE);
    struct model_memory *memory = model_memory_at(addr);
    ck_assert_msg(memory && memory->held, "gives back memory that the device does not hold");
    if (rc == ZONE_GPU_OK) {
        model_set_current(ctx);
        model_handed_out_on(stream_number(stream), addr, memory->bytes);
        memory->held = false;
        memory->spent = true;
        memory->stream = stream_number(stream);
        memory->covers = model.works;
        memory->late = model.late_frees;
        model.used -= memory->late ? 0 : memory->bytes;
        model_bytes_gone(addr, memory->bytes);
    }
    return model_end(MODEL_STREAM_FREE, rc);
}

void model_free_late(void)
{
    for (unsigned i = 0; i < model.memories; i++) {
        struct model_memory *memory = &model.memory[i];
        if (memory->late &&
            model_stream_end(memory->ctx, memory->stream, memory->covers) <= model.now) {
            memory->late = false;
            model.used -= memory->bytes;
        }
    }
}
