/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program compiled with per-thread default streams, whose calls have other names in the
 * driver (…_ptsz). NULL is another stream in each thread: its captures, its stream-ordered frees
 * and its work are the thread's own.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tools.h"

#define MINE     0xaaaaaaaau
#define THEIRS   0x55555555u
#define LIMIT_MS 30.0

static uint32_t *bad;

static void check(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
    launch_check(CU_STREAM_PER_THREAD, ptr, bytes / 4, value, (CUdeviceptr)(uintptr_t)bad);
    OK(cuStreamSynchronize(NULL));
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
}

struct next {
    size_t bytes;
    struct gate gate;
};

static void next_owner(void *data)
{
    const struct next *next = data;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, next->bytes));
    OK(cuMemsetD32Async(ptr, THEIRS, next->bytes / 4, NULL));
    gate_open_on(CU_STREAM_PER_THREAD, next->gate);
    OK(cuStreamSynchronize(NULL));
    sleep_ms(2);
    check(ptr, next->bytes, THEIRS);
    OK(cuMemFreeAsync(ptr, NULL));
}

/* Freed by a thread whose default stream still writes it, allocated by another. */
static void between_threads(size_t bytes, bool async)
{
    struct next next = {.bytes = bytes};
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
    next.gate = gate_close(CU_STREAM_PER_THREAD, LIMIT_MS);
    OK(cuMemsetD32Async(ptr, MINE, bytes / 4, NULL));
    OK(async ? cuMemFreeAsync(ptr, NULL) : cuMemFree(ptr));
    in_thread(next_owner, &next);
    OK(cuStreamSynchronize(NULL));
}

static void not_capturing(void *data)
{
    CUstreamCaptureStatus status;
    CUdeviceptr ptr;
    (void)data;
    OK(cuStreamIsCapturing(NULL, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&ptr, 2 * MIB));
        OK(cuMemsetD32Async(ptr, 1, 16, NULL));
        OK(cuMemFreeAsync(ptr, NULL));
        OK(cuMemAlloc(&ptr, 2 * MIB));
        OK(cuMemFree(ptr));
    }
}

/* This thread's NULL captures, other threads' NULL does not. */
static void captured(void)
{
    CUgraph graph;
    CUdeviceptr ptr;
    CUdeviceptr node;
    size_t nodes = 0;
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(ptr, 3, 16, NULL));
    OK(cuMemAllocAsync(&node, 4096, NULL));
    OK(cuMemFreeAsync(node, NULL));
    in_thread(not_capturing, NULL);
    OK(cuStreamEndCapture(NULL, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3, "%zu nodes", nodes);
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(ptr));
}

/* The runtime's calls on this thread's NULL, while another's is held up. */
static void beside(void *data)
{
    const struct gate *held = data;
    unsigned char bytes[16] = {0};
    cudaGraph_t graph;
    void *ptr;
    OK(cudaMallocAsync(&ptr, 4096, NULL));
    OK(cudaMemsetAsync(ptr, 0x5c, 4096, NULL));
    OK(cudaMemcpyAsync(bytes, ptr, sizeof bytes, cudaMemcpyDeviceToHost, NULL));
    OK(cudaStreamSynchronize(NULL));
    CHECK(gate_outcome(*held) == GATE_CLOSED, "another thread's stream was waited for");
    CHECK(bytes[15] == 0x5c);
    OK(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(ptr, 0, 4096, NULL));
    OK(cudaStreamEndCapture(NULL, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaFreeAsync(ptr, NULL));
}

static void runtime_calls(void)
{
    struct gate held = gate_close(CU_STREAM_PER_THREAD, 5000);
    EXPECT(cudaErrorNotReady, cudaStreamQuery(NULL));
    in_thread(beside, &held);
    gate_open(held);
    OK(cudaStreamSynchronize(NULL));
}

static void goes_on(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 2 * MIB));
    OK(cuMemFree(ptr));
    OK(cuCtxSynchronize());
    uint64_t allocs = driver_allocs();
    OK(cuMemAlloc(&ptr, 2 * MIB));
    OK(cuMemFree(ptr));
    CHECK(driver_allocs() == allocs || !pooled(), "not served from the pool after a capture");
}

int main(void)
{
    victim_start();
    bad = host_words(1);
    for (int i = 0; i < 3; i++) {
        between_threads(4 * KIB, false);
        between_threads(2 * MIB, false);
        between_threads(4 * KIB, true);
        between_threads(2 * MIB, true);
    }
    for (int i = 0; i < 3; i++) {
        captured();
    }
    runtime_calls();
    goes_on();
    OK(cuCtxSynchronize());
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
    return 0;
}
