/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: captures that begin and end in unusual ways, with frees and allocations meanwhile. After
 * each the pool must serve again as before: an entry that stayed behind would turn it off.
 */
#include "tools.h"

#define MINE     0xaaaaaaaau
#define THEIRS   0x55555555u
#define BYTES    (2 * MIB)
#define LIMIT_MS 30.0

static CUstream side, reader;

/* Frees record and allocations are served again. */
static void goes_on(const char *after)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, BYTES));
    OK(cuMemFree(ptr));
    OK(cuCtxSynchronize());
    if (!frees_run_ahead() || !simulated()) {
        return;
    }
    uint64_t allocs = driver_allocs();
    uint64_t records = driver_calls("cuCtxRecordEvent");
    OK(cuMemAlloc(&ptr, BYTES));
    OK(cuMemFree(ptr));
    CHECK(driver_allocs() == allocs, "%s: not served from the pool", after);
    CHECK(driver_calls("cuCtxRecordEvent") > records, "%s: no more records", after);
}

/* Memory freed and allocated while something captures, with work on it that is not done. */
static void reuse(void *unused)
{
    CUdeviceptr ptr;
    CUdeviceptr other;
    (void)unused;
    OK(cuMemAlloc(&ptr, BYTES));
    struct gate gate = gate_close(side, LIMIT_MS);
    launch_fill(side, ptr, BYTES / 4, MINE);
    OK(cuMemFree(ptr));
    OK(cuMemAlloc(&other, BYTES));
    launch_fill(reader, other, BYTES / 4, THEIRS);
    gate_open_on(reader, gate);
    OK(cuStreamSynchronize(side));
    OK(cuStreamSynchronize(reader));
    uint32_t *bad = gate_new().flag;
    launch_check(reader, other, BYTES / 4, THEIRS, (CUdeviceptr)(uintptr_t)bad);
    OK(cuStreamSynchronize(reader));
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
    OK(cuMemFree(other));
}

static void end(CUstream stream, int code)
{
    CUgraph graph = NULL;
    EXPECT(code, cuStreamEndCapture(stream, &graph));
    if (graph) {
        OK(cuGraphDestroy(graph));
    }
}

static void work_meanwhile(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    reuse(NULL);
    in_thread(reuse, NULL);
    end(stream, 0);
    goes_on("reuse in a relaxed capture");
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    in_thread(reuse, NULL);
    end(stream, 0);
    goes_on("reuse beside a thread-local capture");
    OK(cuStreamDestroy(stream));
}

static void destroyed(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_spin(stream, 0.1);
    OK(cuStreamDestroy(stream));
    goes_on("a stream destroyed while it captured");
}

/* After a mistake the capture may be over or not: what its end says is the driver's. */
static void end_somehow(CUstream stream)
{
    CUgraph graph = NULL;
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph) {
        OK(cuGraphDestroy(graph));
    }
}

static void begun_twice(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
    reuse(NULL);
    end_somehow(stream);
    goes_on("a capture begun twice");
    OK(cuStreamDestroy(stream));
}

static void end_elsewhere(void *data)
{
    end(data, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}

static void wrong_thread(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    in_thread(end_elsewhere, stream);
    in_thread(reuse, NULL);
    end_somehow(stream);
    goes_on("an end in the wrong thread");
    OK(cuStreamDestroy(stream));
}

static void to_graph(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraph same = NULL;
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_spin(stream, 0.1);
    reuse(NULL);
    OK(cuStreamEndCapture(stream, &same));
    CHECK(same == graph);
    OK(cuGraphDestroy(graph));
    goes_on("a capture to a graph");
    OK(cuStreamDestroy(stream));
}

/* By the runtime, on the thread's own stream; other threads' streams of that name do not capture.
 */
static void per_thread(void)
{
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
    launch_spin(CU_STREAM_PER_THREAD, 0.1);
    in_thread(reuse, NULL);
    OK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
    OK(cudaGraphDestroy(graph));
    goes_on("a capture of the per-thread stream");
}

/* Freed before the capture, with work on it that ends during the capture. */
static void freed_before(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, BYTES));
    launch_spin(side, 2);
    launch_fill(side, ptr, BYTES / 4, MINE);
    OK(cuMemFree(ptr));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    reuse(NULL);
    end(stream, 0);
    goes_on("a block freed before the capture");
    OK(cuStreamDestroy(stream));
}

int main(void)
{
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    reader = new_stream(CU_STREAM_NON_BLOCKING);
    reuse(NULL); /* loads the kernels */
    goes_on("nothing");
    work_meanwhile();
    destroyed();
    begun_twice();
    wrong_thread();
    to_graph();
    per_thread();
    freed_before();
    return 0;
}
