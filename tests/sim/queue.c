/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations and the order they run in. Every stream has a thread that takes its queue from the
 * front; an operation also waits for the newest ones of other streams that CUDA's rules name
 * (legacy stream, events, context waits). Work runs without the lock.
 */
#include "sim.h"

#include <signal.h>
#include <stdlib.h>

struct sim_work *sim_work_new(CUgraphNodeType type,
                              CUresult (*run)(const struct sim_work *, struct sim_ctx *))
{
    struct sim_work *work = sim_calloc(1, sizeof *work);
    work->refs = 1;
    work->type = type;
    work->run = run;
    return work;
}

void sim_work_unref(struct sim_work *work)
{
    if (!work || --work->refs > 0) {
        return;
    }
    if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        free(work->u.copy.staged);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && work->u.memory.graph) {
        struct sim_block *block = sim_block_from(work->u.memory.address);
        if (block && block->graph) {
            sim_block_release(block);
        }
    }
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        sim_exec_unref(work->u.graph.exec);
    }
    free(work);
}

struct sim_op *sim_op_new(struct sim_work *work)
{
    struct sim_op *op = sim_calloc(1, sizeof *op);
    op->refs = 1;
    op->work = work;
    return op;
}

void sim_op_ref(struct sim_op *op)
{
    op->refs++;
}

void sim_op_unref(struct sim_op *op)
{
    if (op && --op->refs == 0) {
        sim_work_unref(op->work);
        free(op->dependents);
        free(op);
    }
}

void sim_op_depend(struct sim_op *op, struct sim_op *on)
{
    if (!on || on->done || on == op) {
        return;
    }
    on->dependents = sim_grow(on->dependents, &on->dependent_room, on->dependent_count + 1,
                              sizeof(struct sim_op *));
    on->dependents[on->dependent_count++] = op;
    sim_op_ref(op);
    op->pending++;
}

static void complete(struct sim_op *op)
{
    op->done = true;
    op->finished_ns = sim_now_ns();
    for (size_t i = 0; i < op->dependent_count; i++) {
        struct sim_op *next = op->dependents[i];
        if (--next->pending == 0) {
            if (next->stream) {
                pthread_cond_signal(&next->stream->wake);
            } else {
                complete(next);
            }
        }
        sim_op_unref(next);
    }
    op->dependent_count = 0;
    if (op->on_done) {
        op->on_done(op->data);
    }
    sim_progress();
}

void sim_op_start(struct sim_op *op)
{
    if (op->pending == 0) {
        complete(op);
    }
}

void sim_op_wait(struct sim_op *op)
{
    while (!op->done) {
        sim_wait_progress();
    }
}

static void stream_unlink(struct sim_stream *stream)
{
    if (stream->prev) {
        stream->prev->next = stream->next;
    } else {
        stream->ctx->streams = stream->next;
    }
    if (stream->next) {
        stream->next->prev = stream->prev;
    }
    sim_op_unref(stream->last);
    pthread_cond_destroy(&stream->wake);
    free(stream);
    sim_progress();
}

static void *stream_thread(void *data)
{
    struct sim_stream *stream = data;
    sim_lock();
    for (;;) {
        struct sim_op *op = stream->head;
        if (op && op->pending == 0) {
            struct sim_ctx *ctx = stream->ctx;
            CUresult rc = CUDA_SUCCESS;
            if (op->work && ctx->sticky == CUDA_SUCCESS) {
                sim_unlock();
                sim_latency();
                sim_jitter();
                rc = op->work->run(op->work, stream->green ? stream->green : ctx);
                sim_jitter();
                sim_lock();
            } else if (sim_jitters()) {
                /* Events and joins are late, too. */
                sim_unlock();
                sim_jitter();
                sim_lock();
            }
            if (rc != CUDA_SUCCESS) {
                sim_ctx_fault(ctx, rc);
            }
            stream->head = op->next;
            if (!stream->head) {
                stream->tail = NULL;
            }
            sim_work_unref(op->work); /* events keep the operation, not what it did */
            op->work = NULL;
            complete(op);
            sim_op_unref(op);
        } else if (!op && stream->destroyed) {
            break;
        } else {
            pthread_cond_wait(&stream->wake, sim_lock_for_wait());
        }
    }
    stream_unlink(stream);
    sim_unlock();
    return NULL;
}

/* The program's signals are not for the driver's threads. */
static void start_thread(struct sim_stream *stream)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, &attr, stream_thread, stream) != 0) {
        abort();
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    stream->running = true;
}

void sim_stream_retire(struct sim_stream *stream)
{
    sim_capture_stream_gone(stream);
    stream->destroyed = true;
    if (stream->running) {
        pthread_cond_signal(&stream->wake);
    } else {
        stream_unlink(stream);
    }
}

static void add_barriers(struct sim_op *op, struct sim_ctx *ctx)
{
    size_t kept = 0;
    for (size_t i = 0; i < ctx->barrier_count; i++) {
        if (ctx->barriers[i]->done) {
            sim_op_unref(ctx->barriers[i]);
        } else {
            sim_op_depend(op, ctx->barriers[i]);
            ctx->barriers[kept++] = ctx->barriers[i];
        }
    }
    ctx->barrier_count = kept;
}

void sim_stream_queue(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_ctx *ctx = stream->ctx;
    bool blocking = !(stream->flags & CU_STREAM_NON_BLOCKING);
    if (stream->legacy) {
        for (struct sim_stream *other = ctx->streams; other; other = other->next) {
            if (other != stream && !(other->flags & CU_STREAM_NON_BLOCKING)) {
                sim_op_depend(op, other->last);
            }
        }
    } else if (blocking && ctx->legacy) {
        sim_op_depend(op, ctx->legacy->last);
    }
    add_barriers(op, ctx);
    if (stream->green) {
        add_barriers(op, stream->green);
    }
    op->stream = stream;
    sim_op_ref(op);
    if (stream->tail) {
        stream->tail->next = op;
    } else {
        stream->head = op;
    }
    stream->tail = op;
    sim_op_unref(stream->last);
    stream->last = op;
    sim_op_ref(op);
    if (!stream->running) {
        start_thread(stream);
    }
    pthread_cond_signal(&stream->wake);
}

struct sim_op *sim_ctx_join(struct sim_ctx *ctx)
{
    struct sim_op *join = sim_op_new(NULL);
    for (struct sim_stream *stream = ctx->owner->streams; stream; stream = stream->next) {
        if (ctx == ctx->owner || stream->green == ctx) {
            sim_op_depend(join, stream->last);
        }
    }
    sim_op_start(join);
    return join;
}

void sim_ctx_drain(struct sim_ctx *ctx)
{
    struct sim_op *join = sim_ctx_join(ctx);
    sim_op_wait(join);
    sim_op_unref(join);
}
