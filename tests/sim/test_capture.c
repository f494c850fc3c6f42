/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: captures that fork, join and go wrong, whom a capture binds, and what
 * the graphs then do. tests/victims/native_capture.c has the rows measured on a real GPU.
 */
#include "../victims/victim.h"

#include <pthread.h>

static CUcontext context;
static CUstream stream, side, other;
static CUevent event, back;
static CUdeviceptr words;

static int end_with(CUgraph *graph)
{
    return (int)cuStreamEndCapture(stream, graph);
}

/* Ends a capture that must give this code, and no graph unless it is 0. */
static void end(CUresult code)
{
    CUgraph graph = (CUgraph)&graph;
    EXPECT(code, end_with(&graph));
    CHECK((code == CUDA_SUCCESS) == (graph != NULL));
    if (graph) {
        OK(cuGraphDestroy(graph));
    }
}

static void begin(CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(stream, mode));
}

static void status_is(CUstream of, CUstreamCaptureStatus expected)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(of, &status));
    CHECK(status == expected, "status %d", (int)status);
}

static void begin_and_end(void)
{
    CUgraph graph;
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_with(&graph));
    status_is(stream, CU_STREAM_CAPTURE_STATUS_NONE);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    status_is(stream, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    status_is(other, CU_STREAM_CAPTURE_STATUS_NONE);
    end(CUDA_SUCCESS);
}

/* Nothing runs during a capture; forked work joins it and runs in its place in every launch. */
static void fork_and_join(void)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    OK(cuMemsetD32(words, 0, 256));
    OK(cuCtxSynchronize());
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_add(stream, words, 256, 1);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(side, event, 0));
    status_is(side, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    launch_add(side, words, 128, 10);
    OK(cuEventRecord(back, side));
    OK(cuStreamWaitEvent(stream, back, 0));
    launch_add(stream, words, 256, 100);
    OK(end_with(&graph));
    status_is(side, CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(count_wrong(other, words, 256, 0) == 0, "captured work ran");
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3, "%zu nodes", nodes);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec)); /* while it runs */
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(other, words, 128, 222) == 0);
    CHECK(count_wrong(other, words + 512, 128, 202) == 0);
}

static void forks_gone_wrong(void)
{
    CUgraph graph;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(side, event, 0));
    launch_spin(side, 0.1);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
    end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    status_is(side, CU_STREAM_CAPTURE_STATUS_NONE);

    OK(cuEventRecord(back, other));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, back, 0));
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(side, event, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(side, &graph));
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* What may not be asked of a stream or an event that captures. */
static void questions(void)
{
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(words, 0, 1, stream));
    status_is(stream, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(event, stream));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventRecord(event, other));
    OK(cuEventSynchronize(event));

    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* The legacy stream would have to order itself with a capturing blocking stream. */
static void implicit(void)
{
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    CUgraph graph;
    CUstreamCaptureStatus status;
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32(words, 0, 1));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    OK(cuStreamDestroy(blocking));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD32(words, 0, 1)); /* a non-blocking stream's capture is not in the way */
    end(CUDA_SUCCESS);
}

struct probe {
    CUstreamCaptureMode own;
    CUresult code, ended;
};

static void *other_thread(void *data)
{
    struct probe *probe = data;
    CUdeviceptr ptr = 0;
    CUgraph graph;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&probe->own));
    probe->code = cuMemAlloc(&ptr, 4096);
    if (probe->code == CUDA_SUCCESS) {
        OK(cuMemFree(ptr));
    }
    probe->ended = cuStreamEndCapture(stream, &graph);
    return NULL;
}

static struct probe from_other_thread(CUstreamCaptureMode capture, CUstreamCaptureMode own)
{
    struct probe probe = {own, CUDA_SUCCESS, CUDA_SUCCESS};
    pthread_t thread;
    begin(capture);
    CHECK(pthread_create(&thread, NULL, other_thread, &probe) == 0);
    pthread_join(thread, NULL);
    return probe;
}

/* Whom a capture of one thread binds in another, and who may end it. */
static void threads(void)
{
    CUgraph graph;
    struct probe probe =
        from_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, probe.code);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, probe.ended);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_with(&graph)); /* it has ended all the same */
    probe = from_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT(CUDA_SUCCESS, probe.code);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_with(&graph));
    probe = from_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_SUCCESS, probe.code);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_with(&graph));
    probe = from_other_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_SUCCESS, probe.code);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, probe.ended);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end_with(&graph));
    probe = from_other_thread(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_SUCCESS, probe.code);
    EXPECT(CUDA_SUCCESS, probe.ended);
    status_is(stream, CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Memory of alloc nodes is used by each launch and goes with the last that holds the graph. */
static void memory_nodes(void)
{
    CUdeviceptr ptr;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr base;
    size_t size;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAllocAsync(&ptr, 4096, stream));
    OK(cuMemsetD32Async(ptr, 5, 1024, stream));
    launch_add(stream, ptr, 1024, 1);
    launch_copy(stream, words, ptr, 256);
    OK(cuMemFreeAsync(ptr, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(words, stream));
    OK(end_with(&graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphUpload(exec, stream));
    for (int i = 0; i < 3; i++) {
        OK(cuGraphLaunch(exec, stream));
    }
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(other, words, 256, 6) == 0);
    OK(cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, ptr));
}

/* Two branches run beside each other: one waits for what the other, captured later, does. */
static void branches(void)
{
    CUgraph graph;
    CUgraphExec exec;
    uint32_t *flag = host_words(2);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_spin(stream, 0.1);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(side, event, 0));
    launch_waitflag(side, (CUdeviceptr)(uintptr_t)flag, (CUdeviceptr)(uintptr_t)(flag + 1), 2000);
    launch_signal(stream, (CUdeviceptr)(uintptr_t)flag);
    OK(cuEventRecord(back, side));
    OK(cuStreamWaitEvent(stream, back, 0));
    OK(end_with(&graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, other)); /* not beside itself */
    OK(cuGraphExecDestroy(exec));
    OK(cuCtxSynchronize());
    CHECK(read_word(flag + 1) == 1, "the branches ran one after the other");
}

static void CUDA_CB add_one(void *data)
{
    __atomic_fetch_add((uint32_t *)data, 1, __ATOMIC_SEQ_CST);
}

static void nodes_by_hand(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode alloc;
    CUgraphNode set;
    CUgraphNode host;
    CUgraphNode release;
    CUgraphNode empty;
    uint32_t *count = host_words(1);
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {0};
    CUDA_MEMSET_NODE_PARAMS fill = {0};
    CUDA_HOST_NODE_PARAMS call = {add_one, count};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    memory.bytesize = 4096;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &memory));
    fill.dst = memory.dptr;
    fill.value = 3;
    fill.elementSize = 4;
    fill.width = 1024;
    fill.height = 1;
    OK(cuGraphAddMemsetNode(&set, graph, &alloc, 1, &fill, context));
    OK(cuGraphAddHostNode(&host, graph, NULL, 0, &call));
    OK(cuGraphAddDependencies_v2(graph, &set, &host, NULL, 1));
    OK(cuGraphAddMemFreeNode(&release, graph, &host, 1, memory.dptr));
    OK(cuGraphAddEmptyNode(&empty, graph, &release, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&release, graph, &host, 1, words));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_word(count) == 2);
    OK(cuGraphAddDependencies_v2(graph, &empty, &alloc, NULL, 1)); /* a circle */
    CUgraphExec never;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&never, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void destroyed_while_capturing(void)
{
    CUstream doomed = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr;
    OK(cuStreamBeginCapture(doomed, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_spin(doomed, 0.1);
    OK(cuStreamDestroy(doomed));
    OK(cuMemAlloc(&ptr, 4096)); /* the capture binds nobody any more */
    OK(cuMemFree(ptr));
}

/* A per-thread stream has no handle, but goes with its context, too. */
static void context_gone_while_capturing(void)
{
    CUdeviceptr ptr;
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuDevicePrimaryCtxReset(0));
    victim_forget_kernels();
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuMemFree(ptr));
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&context));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    side = new_stream(CU_STREAM_NON_BLOCKING);
    other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&words, 4096));
    begin_and_end();
    fork_and_join();
    forks_gone_wrong();
    questions();
    implicit();
    threads();
    memory_nodes();
    branches();
    nodes_by_hand();
    destroyed_while_capturing();
    context_gone_while_capturing();
    return 0;
}
