/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of several processes: two counters in shared memory say how often the event was recorded
 * and up to which record the work is done. The page stays mapped for the life of the process.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x746e7665ull

struct sim_shared {
    atomic_uint_least64_t recorded, done;
    int fd; /* of the process that made it */
};

struct wire {
    uint64_t magic;
    int32_t pid, fd;
};

struct mark {
    struct sim_shared *shared;
    uint64_t ticket;
};

static struct sim_shared *map(int fd)
{
    void *page = mmap(NULL, sizeof(struct sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

struct sim_shared *sim_shared_new(void)
{
    int fd = memfd_create("zsim-event", MFD_CLOEXEC);
    struct sim_shared *shared =
        fd >= 0 && ftruncate(fd, sizeof(struct sim_shared)) == 0 ? map(fd) : NULL;
    if (!shared) {
        perror("zsim: event for several processes");
        abort();
    }
    shared->fd = fd;
    return shared;
}

static void mark_done(void *data)
{
    struct mark *mark = data;
    uint64_t done = atomic_load(&mark->shared->done);
    while (done < mark->ticket &&
           !atomic_compare_exchange_weak(&mark->shared->done, &done, mark->ticket)) {
    }
    free(mark);
}

void sim_shared_record(struct sim_shared *shared, struct sim_op *op)
{
    struct mark *mark = sim_calloc(1, sizeof *mark);
    mark->shared = shared;
    mark->ticket = atomic_fetch_add(&shared->recorded, 1) + 1;
    if (op->done) {
        mark_done(mark);
    } else {
        op->on_done = mark_done;
        op->data = mark;
    }
}

uint64_t sim_shared_ticket(struct sim_shared *shared)
{
    return atomic_load(&shared->recorded);
}

bool sim_shared_done(struct sim_shared *shared, uint64_t ticket)
{
    return atomic_load(&shared->done) >= ticket;
}

void sim_shared_wait(struct sim_shared *shared, uint64_t ticket)
{
    const struct timespec pause = {0, 50000};
    while (!sim_shared_done(shared, ticket)) {
        nanosleep(&pause, NULL);
    }
}

static CUresult run_wait(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)ctx;
    sim_shared_wait(work->u.shared.shared, work->u.shared.ticket);
    return CUDA_SUCCESS;
}

struct sim_work *sim_shared_work(struct sim_shared *shared)
{
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_WAIT_EVENT, run_wait);
    work->u.shared.shared = shared;
    work->u.shared.ticket = sim_shared_ticket(shared);
    return work;
}

CUresult sim_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct sim_ctx *ctx;
    CUresult rc = pHandle ? sim_begin(&ctx) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_event *shareable = (const struct sim_event *)event;
    if (!sim_handle_is(event, SIM_EVENT)) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (!shareable->shared || shareable->imported) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        struct wire wire = {MAGIC, (int32_t)getpid(), shareable->shared->fd};
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &wire, sizeof wire);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct sim_ctx *ctx;
    struct wire wire;
    char path[64];
    memcpy(&wire, &handle, sizeof wire);
    if (!phEvent || wire.magic != MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", wire.pid, wire.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct sim_shared *shared = fd >= 0 ? map(fd) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    if (shared) {
        struct sim_event *event = sim_calloc(1, sizeof *event);
        event->ctx = ctx;
        event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
        event->shared = shared;
        event->imported = true;
        sim_handle_add(event, SIM_EVENT, ctx);
        *phEvent = (CUevent)event;
    } else {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    sim_unlock();
    return rc;
}
