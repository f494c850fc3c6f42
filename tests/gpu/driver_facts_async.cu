/* SPDX-License-Identifier: Apache-2.0
 *
 * What libzone relies on in the driver's stream-ordered memory and no document says: one part a
 * run, natively only. Usage: driver_facts_async PART (the table at the end).
 */
#include "driver_facts.cuh"

enum { STREAMS = 48 };

/* Codes of frees that come twice, of parts of blocks, and of queries. */
static void async_codes(void)
{
    CUstream stream = new_stream(0);
    CUstream other = new_stream(0);
    CUdeviceptr ptr, part, base;
    CUmemoryPool pool = NULL;
    CUipcMemHandle handle;
    size_t size = 0;
    unsigned long long id = 0;
    int one = 1;
    keep_memory();
    CU(cuMemAllocAsync(&ptr, 100000, stream));
    put_rc("range_of_async", cuMemGetAddressRange(&base, &size, ptr));
    printf("range_is_base=%d\nrange_size=%zu\n", base == ptr, size);
    CUresult rc = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
    printf("mempool_rc=%d\nmempool_is_default=%d\n", (int)rc, pool == default_pool());
    put_rc("buffer_id", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    put_rc("range_attribute", cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr));
    printf("range_attribute_size=%zu\n", size);
    CUcontext of = NULL;
    put_rc("context_of_async", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    printf("context_is_current=%d\n", of == context);
    put_rc("ipc_of_async", cuIpcGetMemHandle(&handle, ptr));
    put_rc("sync_memops_of_async",
           cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    put_rc("free_async_of_part", cuMemFreeAsync(ptr + 256, stream));
    put_rc("free_async_odd", cuMemFreeAsync(ptr + 1, stream));
    put_rc("free_of_part", cuMemFree(ptr + 256));
    put_rc("free_async", cuMemFreeAsync(ptr, stream));
    put_rc("free_async_twice_at_once", cuMemFreeAsync(ptr, stream));
    put_rc("free_after_free_async_at_once", cuMemFree(ptr));
    put_rc("range_after_free_async", cuMemGetAddressRange(&base, &size, ptr));
    CU(cuStreamSynchronize(stream));
    put_rc("free_async_twice_later", cuMemFreeAsync(ptr, stream));
    put_rc("free_after_free_async_later", cuMemFree(ptr));
    put_rc("range_after_free_async_later", cuMemGetAddressRange(&base, &size, ptr));
    CU(cuMemAllocAsync(&ptr, 100000, stream));
    put_rc("free_of_async", cuMemFree(ptr));
    put_rc("free_of_async_twice", cuMemFree(ptr));
    put_rc("free_async_after_free", cuMemFreeAsync(ptr, stream));

    CU(cuMemAlloc(&ptr, 3 << 20));
    CU(cuMemAlloc(&part, 3 << 20));
    put_rc("plain_free_async", cuMemFreeAsync(ptr, stream));
    put_rc("plain_free_async_twice", cuMemFreeAsync(ptr, other));
    CU(cuStreamSynchronize(stream));
    put_rc("plain_free_async_twice_later", cuMemFreeAsync(ptr, stream));
    put_rc("plain_free_after_free_async", cuMemFree(ptr));
    put_rc("plain_free_async_of_part", cuMemFreeAsync(part + 512, stream));
    put_rc("plain_free_async_odd", cuMemFreeAsync(part + 1, stream));
    CU(cuCtxSynchronize());
    CUgraph graph = NULL;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    put_rc("capturing_free_async_odd", cuMemFreeAsync(part + 1, stream));
    put_rc("capture_end_after_odd", cuStreamEndCapture(stream, &graph));
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    put_rc("capturing_free_async_of_plain", cuMemFreeAsync(part, stream));
    put_rc("capture_end_after_plain", cuStreamEndCapture(stream, &graph));
    put_rc("plain_free_after_capture", cuMemFree(part));

    /* Does a free of stream-ordered memory wait for other streams' work? */
    CU(cuMemAllocAsync(&ptr, 1 << 20, stream));
    CU(cuStreamSynchronize(stream));
    spin<<<1, 1, 0, other>>>(cycles_for_us(30e3));
    double start = now_us();
    CU(cuMemFree(ptr));
    printf("free_of_async_beside_work_us=%.1f\n", now_us() - start);
    CU(cuCtxSynchronize());
    CU(cuMemAllocAsync(&ptr, 1 << 20, stream));
    spin<<<1, 1, 0, stream>>>(cycles_for_us(30e3));
    start = now_us();
    CU(cuMemFree(ptr));
    printf("free_of_async_behind_work_us=%.1f\n", now_us() - start);
    CU(cuCtxSynchronize());
}

/* An idle stream's allocation and wait beside many streams that are busy. */
static void async_idle(void)
{
    int *flag, *gave_up;
    CUstream busy[STREAMS];
    CUstream mine = new_stream(0);
    CUstream freeing = new_stream(0);
    CUdeviceptr ptr, freed;
    int off = 0;
    keep_memory();
    CU(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                             &off));
    RT(cudaHostAlloc((void **)&flag, sizeof(int), cudaHostAllocMapped));
    RT(cudaHostAlloc((void **)&gave_up, sizeof(int), cudaHostAllocMapped));
    *flag = *gave_up = 0;
    wait_flag<<<1, 1>>>(flag, 1, gave_up);
    CU(cuMemAllocAsync(&freed, 64 << 20, mine));
    CU(cuStreamSynchronize(mine));
    CU(cuCtxSynchronize());
    *gave_up = 0;
    for (int i = 0; i < STREAMS; i++) {
        busy[i] = new_stream(0); /* beside a kernel this may wait for it */
    }
    for (int i = 0; i < STREAMS; i++) {
        wait_flag<<<1, 1, 0, busy[i]>>>(flag, cycles_for_us(500e3), gave_up);
    }
    CUevent event;
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    put_rc("context_event", cuCtxRecordEvent(context, event));
    CU(cuStreamWaitEvent(freeing, event, 0));
    CU(cuMemFreeAsync(freed, freeing));
    printf("kernels_gave_up_before=%d\n", *gave_up);
    double start = now_us();
    CU(cuMemAllocAsync(&ptr, 64 << 20, mine));
    printf("alloc_us=%.1f\n", now_us() - start);
    printf("same_block_too_early=%d\n", ptr == freed);
    CU(cuStreamSynchronize(mine));
    printf("alloc_and_wait_us=%.1f\n", now_us() - start);
    *flag = 1;
    CU(cuCtxSynchronize());
    printf("kernels_gave_up=%d\n", *gave_up);
}

static void pairs(const char *name, CUstream from, CUstream to, bool fence)
{
    CUevent event;
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    double best = 1e9;
    for (int batch = 0; batch < 50; batch++) {
        double start = now_us();
        for (int i = 0; i < 20; i++) {
            CUdeviceptr ptr;
            CU(cuMemAllocAsync(&ptr, 1 << 20, from));
            if (fence) {
                CU(cuStreamSynchronize(from));
                CU(cuCtxRecordEvent(context, event));
                CU(cuStreamWaitEvent(to, event, 0));
            }
            CU(cuMemFreeAsync(ptr, to));
        }
        double ns = (now_us() - start) * 1e3 / 20;
        best = ns < best ? ns : best;
    }
    printf("%s_ns=%.0f\n", name, best);
}

/* What a pair costs through the driver's pool; what it holds after and how it counts. */
static void async_pair(void)
{
    CUstream one = new_stream(0);
    CUstream two = new_stream(0);
    pairs("default_one_stream", one, one, false);
    keep_memory();
    pairs("kept_one_stream", one, one, false);
    pairs("kept_fenced_two_streams", one, two, true);
    CU(cuCtxSynchronize());
    printf("used_mib=%.1f\n", pool_mib(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    printf("reserved_mib=%.1f\n", pool_mib(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    CUdeviceptr ptr;
    CU(cuMemAllocAsync(&ptr, 1000, one));
    printf("used_with_1000_bytes_mib=%.6f\n", pool_mib(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    CU(cuMemFreeAsync(ptr, one));
    CU(cuStreamSynchronize(one));
    printf("used_high_mib=%.6f\n", pool_mib(CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    put_rc("trim", cuMemPoolTrimTo(default_pool(), 0));
    printf("reserved_after_trim_mib=%.1f\n", pool_mib(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static const struct part parts[] = {
    {"async_codes", async_codes},
    {"async_idle", async_idle},
    {"async_pair", async_pair},
};

int main(int argc, char **argv)
{
    return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
