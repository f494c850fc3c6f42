/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: what the event of cuCtxRecordEvent covers and what cuCtxWaitEvent
 * holds back, as measured on a real one.
 */
#include "../victims/victim.h"

#include <pthread.h>
#include <stdio.h>

static CUcontext context;
static CUstream blocking, non_blocking, capturing;
static CUevent event;
static CUgraphExec signal_graph;
static uint32_t *flags, *graph_flag;
static CUdeviceptr memory;

static CUdeviceptr device(const void *word)
{
    return (CUdeviceptr)(uintptr_t)word;
}

static uint32_t *hold(CUstream on)
{
    uint32_t *gate = flags;
    flags += 2;
    launch_waitflag(on, device(gate), device(gate + 1), 5000);
    return gate;
}

static void open_gate(uint32_t *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    OK(cuCtxSynchronize());
}

static CUgraphExec graph_of(uint32_t *flag, CUdeviceptr gate)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (gate) {
        launch_waitflag(capturing, gate, gate + 4, 5000);
    }
    launch_signal(capturing, device(flag));
    OK(cuStreamEndCapture(capturing, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    return exec;
}

static void covered(const char *what, uint32_t *gate)
{
    OK(cuCtxRecordEvent(context, event));
    sleep_ms(1);
    CUresult rc = cuEventQuery(event);
    CHECK(rc == CUDA_ERROR_NOT_READY, "%s is not covered: %d", what, (int)rc);
    open_gate(gate);
    OK(cuEventQuery(event));
}

static void CUDA_CB wait_for_word(void *data)
{
    while (!read_word(data)) {
        sleep_ms(0.1);
    }
}

static void record_covers(void)
{
    covered("the legacy stream", hold(CU_STREAM_LEGACY));
    covered("a blocking stream", hold(blocking));
    covered("a non-blocking stream", hold(non_blocking));
    covered("the per-thread stream", hold(CU_STREAM_PER_THREAD));

    CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *gate = hold(gone);
    OK(cuStreamDestroy(gone));
    covered("a stream destroyed after the launch", gate);

    gate = flags++;
    OK(cuLaunchHostFunc(non_blocking, wait_for_word, gate));
    covered("a host function", gate);

    gate = flags++;
    OK(cuStreamWaitValue32(non_blocking, device(gate), 1, CU_STREAM_WAIT_VALUE_EQ));
    covered("a stream memory operation", gate);

    gate = flags;
    flags += 2;
    CUgraphExec exec = graph_of(flags++, device(gate));
    OK(cuGraphLaunch(exec, non_blocking));
    covered("a graph", gate);
    OK(cuGraphExecDestroy(exec));
}

/* Queues one kind of work that ends in *flag; returns the stream to clean up, or NULL. */
static void work_kernel(CUstream on, uint32_t *flag)
{
    launch_signal(on, device(flag));
}

static void work_copy(CUstream on, uint32_t *flag)
{
    OK(cuMemcpyDtoHAsync(flag, memory, 4, on));
}

static void work_set(CUstream on, uint32_t *flag)
{
    OK(cuMemsetD32Async(device(flag), 1, 1, on));
}

static void CUDA_CB set_word(void *data)
{
    __atomic_store_n((uint32_t *)data, 1, __ATOMIC_SEQ_CST);
}

static void work_host(CUstream on, uint32_t *flag)
{
    OK(cuLaunchHostFunc(on, set_word, flag));
}

static void work_word(CUstream on, uint32_t *flag)
{
    OK(cuStreamWriteValue32(on, device(flag), 1, 0));
}

static void work_graph(CUstream on, uint32_t *flag)
{
    (void)flag;
    OK(cuGraphLaunch(signal_graph, on));
}

static void wait_holds_back(void)
{
    void (*const works[])(CUstream, uint32_t *) = {work_kernel, work_copy, work_set,
                                                   work_host,   work_word, work_graph};
    const CUstream streams[] = {CU_STREAM_LEGACY, blocking, non_blocking, CU_STREAM_PER_THREAD,
                                NULL};
    for (int w = 0; w < 6; w++) {
        for (int s = 0; s < 5; s++) {
            uint32_t *flag = works[w] == work_graph ? graph_flag : flags++;
            __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
            CUstream held_stream = new_stream(CU_STREAM_NON_BLOCKING);
            uint32_t *gate = hold(held_stream);
            OK(cuCtxRecordEvent(context, event));
            OK(cuCtxWaitEvent(context, event));
            CUstream on = s < 4 ? streams[s] : new_stream(CU_STREAM_NON_BLOCKING);
            works[w](on, flag);
            EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(on));
            sleep_ms(1);
            CHECK(read_word(flag) == 0, "work %d on stream %d was not held back", w, s);
            open_gate(gate);
            CHECK(read_word(flag) == 1, "work %d on stream %d did not run", w, s);
            OK(cuStreamDestroy(held_stream));
        }
    }
}

static void *from_a_bare_thread(void *data)
{
    (void)data;
    OK(cuCtxRecordEvent(context, event));
    OK(cuCtxWaitEvent(context, event));
    CUresult rc = cuEventQuery(event);
    CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_NOT_READY);
    return NULL;
}

static void contexts(void)
{
    CUcontext second;
    CUevent foreign;
    pthread_t thread;
    OK(cuCtxCreate_v4(&second, NULL, 0, 0));
    victim_load_kernels();
    OK(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(context, foreign));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(second, event));
    uint32_t *gate = hold(NULL);
    OK(cuCtxRecordEvent(context, event));
    OK(cuEventQuery(event)); /* the second context's work is not the first one's */
    OK(cuCtxRecordEvent(second, foreign));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(foreign));
    OK(cuCtxWaitEvent(context, foreign)); /* but may be waited for */
    OK(cuCtxSetCurrent(context));
    uint32_t *flag = flags++;
    launch_signal(non_blocking, device(flag));
    sleep_ms(1);
    CHECK(read_word(flag) == 0);
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    OK(cuCtxSynchronize());
    CHECK(read_word(flag) == 1);
    OK(cuCtxDestroy(second));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(foreign));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxRecordEvent(second, event));
    CHECK(pthread_create(&thread, NULL, from_a_bare_thread, NULL) == 0);
    pthread_join(thread, NULL);
}

/* Recording serialises nothing: later work overtakes what the event waits for. */
static void record_is_no_barrier(void)
{
    uint32_t *gate = hold(blocking);
    OK(cuCtxRecordEvent(context, event));
    uint32_t *flag = flags++;
    launch_signal(non_blocking, device(flag));
    OK(cuStreamSynchronize(non_blocking));
    CHECK(read_word(flag) == 1);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    open_gate(gate);
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&context));
    flags = host_words(4096);
    graph_flag = host_words(1);
    blocking = new_stream(CU_STREAM_DEFAULT);
    non_blocking = new_stream(CU_STREAM_NON_BLOCKING);
    capturing = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&memory, 4));
    OK(cuMemsetD32(memory, 1, 1));
    signal_graph = graph_of(graph_flag, 0);
    OK(cuCtxSynchronize());
    record_covers();
    wait_holds_back();
    contexts();
    record_is_no_barrier();
    return 0;
}
