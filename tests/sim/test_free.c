/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: which frees wait for running work and whom they hold up meanwhile.
 */
#include "../victims/victim.h"
#include "zsim.h"

#include <pthread.h>
#include <string.h>

static CUcontext context;
static CUstream stream, other;
static CUevent event;
static uint32_t *flags;

static unsigned frees_waiting(void)
{
    unsigned (*ask)(void);
    void *found = zsim("zsim_frees_waiting");
    memcpy(&ask, &found, sizeof ask);
    return ask();
}

static uint32_t *hold(CUstream on)
{
    uint32_t *gate = flags;
    flags += 2;
    launch_waitflag(on, (CUdeviceptr)(uintptr_t)gate, (CUdeviceptr)(uintptr_t)(gate + 1), 5000);
    return gate;
}

static void open_gate(uint32_t *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
}

/* A call made by another thread; done tells when it returned. */
struct call {
    void (*make)(struct call *call);
    CUdeviceptr ptr;
    void *host;
    bool done;
    pthread_t thread;
};

static void *call_thread(void *data)
{
    struct call *call = data;
    OK(cuCtxSetCurrent(context));
    call->make(call);
    __atomic_store_n(&call->done, true, __ATOMIC_SEQ_CST);
    return NULL;
}

static void call_start(struct call *call, void (*make)(struct call *))
{
    call->make = make;
    call->done = false;
    CHECK(pthread_create(&call->thread, NULL, call_thread, call) == 0);
}

static bool call_done(struct call *call)
{
    return __atomic_load_n(&call->done, __ATOMIC_SEQ_CST);
}

static void call_join(struct call *call)
{
    pthread_join(call->thread, NULL);
    CHECK(call_done(call));
}

static void make_free(struct call *call)
{
    OK(cuMemFree(call->ptr));
}

static void make_free_host(struct call *call)
{
    OK(cuMemFreeHost(call->host));
}

static void wait_for_free(void)
{
    double end = now_us() + 5e6;
    while (frees_waiting() == 0) {
        CHECK(now_us() < end, "the free does not wait");
        sleep_ms(0.1);
    }
}

static void must_wait(struct call *call, void (*make)(struct call *), CUstream on)
{
    uint32_t *gate = hold(on);
    call_start(call, make);
    wait_for_free();
    sleep_ms(2);
    CHECK(!call_done(call));
    open_gate(gate);
    call_join(call);
    CHECK(frees_waiting() == 0);
}

static void every_free_waits(void)
{
    const CUstream streams[] = {stream, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, other};
    const size_t sizes[] = {512, 4 * KIB, MIB, 32 * MIB};
    struct call call;
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&call.ptr, sizes[i]));
        must_wait(&call, make_free, streams[i]);
    }
    size_t pitch;
    OK(cuMemAllocPitch(&call.ptr, &pitch, 100, 100, 4));
    must_wait(&call, make_free, stream);
    OK(cuMemAllocManaged(&call.ptr, 4096, CU_MEM_ATTACH_GLOBAL));
    must_wait(&call, make_free, stream);
    OK(cuMemHostAlloc(&call.host, 4096, 0));
    must_wait(&call, make_free_host, stream);
}

static void stream_ordered_free_does_not(void)
{
    CUdeviceptr ptr;
    CUdeviceptr queued;
    OK(cuMemAllocAsync(&ptr, 4096, stream));
    OK(cuMemAlloc(&queued, 4096));
    uint32_t *gate = hold(stream);
    OK(cuEventRecord(event, stream));
    OK(cuMemFree(ptr));
    OK(cuMemFreeAsync(queued, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(queued));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    open_gate(gate);
    OK(cuCtxSynchronize());
}

static void make_malloc(struct call *call)
{
    OK(cuMemAlloc(&call->ptr, 4096));
}

static void make_launch(struct call *call)
{
    (void)call;
    launch_spin(other, 0.01);
}

static void make_copy(struct call *call)
{
    OK(cuMemsetD8Async(call->ptr, 1, 16, other));
}

static void make_record(struct call *call)
{
    (void)call;
    OK(cuEventRecord(event, other));
}

static void make_context_record(struct call *call)
{
    (void)call;
    OK(cuCtxRecordEvent(context, event));
}

/* While one thread sits in a free, these wait with it and those do not. */
static void held_up(void)
{
    void (*const blocked[])(struct call *) = {make_malloc, make_launch, make_copy, make_record,
                                              make_context_record};
    struct call call;
    struct call victims[5];
    CUdeviceptr live;
    CUdeviceptr base;
    CUevent done;
    size_t size;
    OK(cuMemAlloc(&live, 4096));
    OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&call.ptr, 4096));
    uint32_t *gate = hold(stream);
    call_start(&call, make_free);
    wait_for_free();
    for (int i = 0; i < 5; i++) {
        victims[i].ptr = live;
        call_start(&victims[i], blocked[i]);
    }
    OK(cuEventQuery(done));
    OK(cuMemGetInfo(&size, NULL));
    OK(cuMemGetAddressRange(&base, &size, live));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(live + 1));
    sleep_ms(10);
    for (int i = 0; i < 5; i++) {
        CHECK(!call_done(&victims[i]), "call %d was not held up", i);
    }
    open_gate(gate);
    call_join(&call);
    for (int i = 0; i < 5; i++) {
        call_join(&victims[i]);
    }
    OK(cuMemFree(live));
    OK(cuMemFree(victims[0].ptr));
}

static void make_synchronize(struct call *call)
{
    (void)call;
    OK(cuEventSynchronize(event));
}

static void waiting_for_an_event_holds_nobody_up(void)
{
    struct call call;
    CUdeviceptr ptr;
    uint32_t *gate = hold(stream);
    OK(cuEventRecord(event, stream));
    call_start(&call, make_synchronize);
    sleep_ms(2);
    OK(cuMemAlloc(&ptr, 32 * MIB));
    launch_spin(other, 0.01);
    OK(cuStreamSynchronize(other));
    CHECK(!call_done(&call));
    open_gate(gate);
    call_join(&call);
    OK(cuMemFree(ptr));
}

/* The owner's work counts, not that of the context which is current. */
static void other_context(void)
{
    CUcontext second;
    struct call call;
    CUdeviceptr own;
    OK(cuMemAlloc(&call.ptr, 4096));
    OK(cuCtxCreate_v4(&second, NULL, 0, 0));
    victim_load_kernels();
    OK(cuMemAlloc(&own, 4096));
    CUstream elsewhere = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *gate = hold(elsewhere);
    OK(cuMemFree(call.ptr)); /* of the primary context, where nothing runs */
    open_gate(gate);
    OK(cuCtxSetCurrent(context));
    gate = hold(stream);
    OK(cuMemFree(own)); /* of the second one, where nothing runs any more */
    CHECK(read_word(gate + 1) == 0);
    open_gate(gate);
    OK(cuCtxDestroy(second));
    OK(cuCtxSynchronize());
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&context));
    flags = host_words(1024);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    every_free_waits();
    stream_ordered_free_does_not();
    held_up();
    waiting_for_an_event_holds_nobody_up();
    other_context();
    return 0;
}
