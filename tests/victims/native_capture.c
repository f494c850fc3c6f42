/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what a stream capture allows and what it does not, as on a real driver. libzone must
 * neither break a capture nor hide that a call would have broken it.
 */
#include "tools.h"

static CUstream stream, other;
static CUevent event;
static CUcontext context;

/* Ends the capture and gives its code; what it recorded is thrown away. */
static int64_t end(void)
{
    CUgraph graph = NULL;
    int64_t code = cuStreamEndCapture(stream, &graph);
    if (graph) {
        OK(cuGraphDestroy(graph));
    }
    return code;
}

static void begin(CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(stream, mode));
}

static int64_t plain_malloc(CUstreamCaptureMode mode)
{
    CUdeviceptr ptr = 0;
    begin(mode);
    int64_t code = cuMemAlloc(&ptr, 4096);
    int64_t ended = end();
    if (ptr) {
        OK(cuMemFree(ptr));
    }
    return code * 1000 + ended;
}

static int64_t malloc_global(void)
{
    return plain_malloc(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int64_t malloc_thread_local(void)
{
    return plain_malloc(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static int64_t malloc_relaxed(void)
{
    return plain_malloc(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static int64_t plain_free(CUstreamCaptureMode mode)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 4096));
    begin(mode);
    int64_t code = cuMemFree(ptr);
    int64_t ended = end();
    if (code != 0) {
        OK(cuMemFree(ptr));
    }
    return code * 1000 + ended;
}

static int64_t free_global(void)
{
    return plain_free(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int64_t free_thread_local(void)
{
    return plain_free(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static int64_t free_relaxed(void)
{
    return plain_free(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* Large blocks, for which a pool would record an event at every free. */
static int64_t large_relaxed(void)
{
    CUdeviceptr ptr;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    int64_t codes = 0;
    for (int i = 0; i < 3; i++) {
        codes += cuMemAlloc(&ptr, 8 * MIB);
        codes += cuMemFree(ptr);
    }
    return codes * 1000 + end();
}

/* Graph nodes of an allocation and a free while capturing, in tens; the end code. */
static int64_t async_nodes(void)
{
    CUdeviceptr ptr;
    CUgraph graph = NULL;
    size_t nodes = 0;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAllocAsync(&ptr, 4096, stream));
    OK(cuMemFreeAsync(ptr, stream));
    int64_t code = cuStreamEndCapture(stream, &graph);
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    OK(cuGraphDestroy(graph));
    return (int64_t)nodes * 1000 + code;
}

static int64_t exchanged(void)
{
    CUdeviceptr ptr = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    int64_t codes = cuEventRecord(event, other);
    CUresult asked = cuEventQuery(event);
    codes += asked == CUDA_ERROR_NOT_READY ? 0 : asked;
    codes += cuEventSynchronize(event);
    codes += cuStreamWaitEvent(other, event, 0);
    codes += cuMemAlloc(&ptr, 4096);
    codes += cuMemFree(ptr);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    return codes * 1000 + end();
}

static int64_t context_record(void)
{
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    int64_t code = cuCtxRecordEvent(context, event);
    return code * 1000 + end();
}

static int64_t context_wait(void)
{
    OK(cuEventRecord(event, other));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    int64_t code = cuCtxWaitEvent(context, event);
    return code * 1000 + end();
}

static int64_t context_synchronize(void)
{
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    int64_t code = cuCtxSynchronize();
    return code * 1000 + end();
}

/* A pool used between captures and while none runs, then a graph that still computes. */
static int64_t graph_result(void)
{
    CUdeviceptr ptr;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuMemsetD32(ptr, 0, 1024));
    OK(cuCtxSynchronize());
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_add(stream, ptr, 1024, 3);
    launch_add(stream, ptr, 1024, 4);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        CUdeviceptr extra;
        OK(cuMemAlloc(&extra, 2 * MIB));
        OK(cuGraphLaunch(exec, stream));
        OK(cuMemFree(extra));
    }
    OK(cuStreamSynchronize(stream));
    int64_t wrong = count_wrong(stream, ptr, 1024, 35);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(ptr));
    return wrong;
}

static int64_t second_begin(void)
{
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    int64_t code = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    return code * 1000 + end();
}

static void end_elsewhere(void *data)
{
    *(int64_t *)data = end();
}

static int64_t wrong_thread(void)
{
    int64_t code = 0;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    in_thread(end_elsewhere, &code);
    return code * 1000 + end();
}

static int64_t end_without_begin(void)
{
    return end();
}

static int64_t legacy_begin(void)
{
    return cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Codes of the call and of ending the capture afterwards, as call * 1000 + end. */
static const struct answer rows[] = {
    {"cuMemAlloc, global", malloc_global, 900901, ALWAYS},
    {"cuMemAlloc, thread-local", malloc_thread_local, 900901, ALWAYS},
    {"cuMemAlloc, relaxed", malloc_relaxed, 0, ALWAYS},
    {"cuMemFree, global", free_global, 900901, ALWAYS},
    {"cuMemFree, thread-local", free_thread_local, 900901, ALWAYS},
    {"cuMemFree, relaxed", free_relaxed, 0, ALWAYS},
    {"large allocations and frees, relaxed", large_relaxed, 0, ALWAYS},
    {"nodes of cuMemAllocAsync and cuMemFreeAsync", async_nodes, 2000, ALWAYS},
    {"calls of a thread that made itself relaxed", exchanged, 0, ALWAYS},
    {"cuCtxRecordEvent, relaxed", context_record, 900901, ALWAYS},
    {"cuCtxWaitEvent, relaxed", context_wait, 900901, ALWAYS},
    {"cuCtxSynchronize, relaxed", context_synchronize, 900901, ALWAYS},
    {"a second begin", second_begin, 401000, ALWAYS},
    {"an end in another thread", wrong_thread, 908401, ALWAYS},
    {"an end without a begin", end_without_begin, 401, ALWAYS},
    {"a begin on the legacy stream", legacy_begin, 900, ALWAYS},
    {"words wrong after a graph with allocations around", graph_result, 0, ALWAYS},
};

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&context));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return victim_answers(rows, sizeof rows / sizeof rows[0]) > 0;
}
