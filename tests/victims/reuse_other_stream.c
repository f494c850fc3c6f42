/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: work of one stream still writes a block when it is freed and its size is allocated again
 * for another stream. Natively the free waits, so the second owner's bytes stay. One row for each
 * way in which work can be under way.
 */
#include "tools.h"

#define MINE       0xaaaaaaaau
#define THEIRS     0x55555555u
#define LIMIT_MS   30.0
#define HOST_BYTES (2 * MIB)

static CUstream side, blocking, reader;
static void *pinned;      /* words that are all MINE */
static CUdeviceptr ready; /* the same on the device */

struct block {
    CUdeviceptr ptr;
    size_t bytes;
    struct gate gate;
};

static void kernel_on(CUstream stream, struct block *block)
{
    block->gate = gate_close(stream, LIMIT_MS);
    launch_fill(stream, block->ptr, block->bytes / 4, MINE);
}

static void on_non_blocking(struct block *block)
{
    kernel_on(side, block);
}

static void on_blocking(struct block *block)
{
    kernel_on(blocking, block);
}

static void on_legacy(struct block *block)
{
    kernel_on(CU_STREAM_LEGACY, block);
}

static void on_per_thread(struct block *block)
{
    kernel_on(CU_STREAM_PER_THREAD, block);
}

static void on_destroyed(struct block *block)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    kernel_on(stream, block);
    OK(cuStreamDestroy(stream));
}

static void by_graph(struct block *block)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_RELAXED));
    kernel_on(side, block);
    OK(cuStreamEndCapture(side, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, side));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void by_device_copy(struct block *block)
{
    block->gate = gate_close(side, LIMIT_MS);
    OK(cuMemcpyDtoDAsync(block->ptr, ready, block->bytes, side));
}

static void by_host_copy(struct block *block)
{
    block->gate = gate_close(side, LIMIT_MS);
    OK(cuMemcpyHtoDAsync(block->ptr, pinned, block->bytes, side));
}

static void by_memset(struct block *block)
{
    block->gate = gate_close(side, LIMIT_MS);
    OK(cuMemsetD32Async(block->ptr, MINE, block->bytes / 4, side));
}

static void behind_host_function(struct block *block)
{
    block->gate = gate_close_on_host(side, LIMIT_MS);
    launch_fill(side, block->ptr, block->bytes / 4, MINE);
}

static void behind_event(struct block *block)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    block->gate = gate_close(side, LIMIT_MS);
    OK(cuEventRecord(event, side));
    OK(cuStreamWaitEvent(blocking, event, 0));
    launch_fill(blocking, block->ptr, block->bytes / 4, MINE);
    OK(cuEventDestroy(event));
}

static void launch_in_thread(void *data)
{
    kernel_on(side, data);
}

static void by_other_thread(struct block *block)
{
    in_thread(launch_in_thread, block);
}

static const struct {
    const char *name;
    void (*write_late)(struct block *block);
} ways[] = {
    {"a kernel on a non-blocking stream", on_non_blocking},
    {"a kernel on a blocking stream", on_blocking},
    {"a kernel on the legacy stream", on_legacy},
    {"a kernel on the per-thread stream", on_per_thread},
    {"a kernel on a stream destroyed since", on_destroyed},
    {"a graph", by_graph},
    {"a copy on the device", by_device_copy},
    {"a copy from pinned memory", by_host_copy},
    {"a memset", by_memset},
    {"a kernel behind a host function", behind_host_function},
    {"a kernel behind another stream's event", behind_event},
    {"a kernel of another thread", by_other_thread},
};

/* True if the first owner's work was still held when the second one had written. */
static bool run(size_t way, size_t bytes)
{
    struct block block = {.bytes = bytes};
    CUdeviceptr other;
    OK(cuMemAlloc(&block.ptr, bytes));
    ways[way].write_late(&block);
    OK(cuMemFree(block.ptr));
    OK(cuMemAlloc(&other, bytes));
    launch_fill(reader, other, bytes / 4, THEIRS);
    gate_open_on(reader, block.gate);
    OK(cuCtxSynchronize());
    uint32_t wrong = count_wrong(reader, other, bytes / 4, THEIRS);
    CHECK(wrong == 0, "%s wrote %u words of %zu bytes", ways[way].name, wrong, bytes);
    OK(cuMemFree(other));
    return gate_outcome(block.gate) == GATE_OPENED;
}

int main(void)
{
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    blocking = new_stream(CU_STREAM_DEFAULT);
    reader = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemHostAlloc(&pinned, HOST_BYTES, 0));
    OK(cuMemAlloc(&ready, HOST_BYTES));
    launch_fill(reader, ready, HOST_BYTES / 4, MINE);
    OK(cuStreamSynchronize(reader)); /* the copy below is not in its order */
    OK(cuMemcpyDtoH(pinned, ready, HOST_BYTES));
    int held = 0;
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        held += run(way, 4 * KIB);
        held += run(way, HOST_BYTES);
    }
    /* What the pool is for: these frees did not wait. */
    CHECK(held > 0 || !frees_run_ahead(), "every free waited");
    CHECK(held == 0 || under_zone(), "%d native frees did not wait", held);
    return 0;
}
