/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls other than cuMemAlloc that need device memory, while a pool holds some. One that
 * runs out is tried once more after the pool gave back what it holds; no more than once, and not
 * at all when nothing is held. Usage: on the simulated GPU, which scripts the failures; "context"
 * calls from a context that has no memory yet.
 */
#include "tools.h"

static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;

static int managed(void)
{
    CUdeviceptr ptr;
    return cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL);
}

static int pitch(void)
{
    CUdeviceptr ptr;
    size_t bytes;
    return cuMemAllocPitch(&ptr, &bytes, 100, 100, 4);
}

static int async(void)
{
    static CUmemoryPool pool; /* not the default one, which a pool serves itself */
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr ptr;
    if (!pool) {
        OK(cuMemPoolCreate(&pool, &props));
    }
    return cuMemAllocFromPoolAsync(&ptr, 4096, pool, stream);
}

static int pinned(void)
{
    void *ptr;
    return cuMemHostAlloc(&ptr, 4096, 0);
}

static int array(void)
{
    CUarray made;
    CUDA_ARRAY_DESCRIPTOR descriptor = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    return cuArrayCreate(&made, &descriptor);
}

static int array_3d(void)
{
    CUarray made;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {64, 64, 4, CU_AD_FORMAT_FLOAT, 1, 0};
    return cuArray3DCreate(&made, &descriptor);
}

static int physical(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    return cuMemCreate(&handle, 2 * MIB, &prop, 0);
}

static int module(void)
{
    CUmodule loaded;
    return cuModuleLoadData(&loaded, victim_ptx);
}

static int new_queue(void)
{
    CUstream made;
    return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
}

static int instantiate(void)
{
    return cuGraphInstantiate(&exec, graph, 0);
}

static int upload(void)
{
    return cuGraphUpload(exec, stream);
}

static int context(void)
{
    CUcontext made;
    CUcontext popped;
    CUresult rc = cuCtxCreate(&made, NULL, 0, 0);
    return rc == CUDA_SUCCESS ? cuCtxPopCurrent(&popped) : rc;
}

static const struct {
    const char *name;
    int (*call)(void);
} calls[] = {
    {"cuMemAllocManaged", managed},     {"cuMemAllocPitch_v2", pitch},
    {"cuMemAllocFromPoolAsync", async}, {"cuMemHostAlloc", pinned},
    {"cuArrayCreate_v2", array},        {"cuArray3DCreate_v2", array_3d},
    {"cuMemCreate", physical},          {"cuModuleLoadData", module},
    {"cuStreamCreate", new_queue},      {"cuGraphInstantiateWithFlags", instantiate},
    {"cuGraphUpload", upload},          {"cuCtxCreate_v4", context},
};

static void hold_memory(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 6 * MIB));
    OK(cuMemFree(ptr));
}

/* How often the driver was called, and the code. */
static void expect(size_t i, uint64_t times, int code, const char *when)
{
    uint64_t before = driver_calls(calls[i].name);
    int got = calls[i].call();
    uint64_t made = driver_calls(calls[i].name) - before;
    CHECK(got == code && made == times, "%s, %s: %d after %llu calls", calls[i].name, when, got,
          (unsigned long long)made);
}

/* What another context has cached but cannot give now may come a moment later, from a thread that
 * gives it back. Here it is the rest of a segment in which a block lives. */
static void from_a_new_context(bool retried)
{
    CUdeviceptr live[4];
    for (size_t i = 0; i < 4; i++) {
        OK(cuMemAlloc(&live[i], 4096));
    }
    CUcontext ctx = new_context(0);
    for (size_t i = 0; i < 2; i++) {
        driver_fail(calls[i].name, 1, CUDA_ERROR_OUT_OF_MEMORY);
        expect(i, retried ? 2 : 1, retried ? 0 : CUDA_ERROR_OUT_OF_MEMORY, "from a new context");
    }
    OK(cuCtxDestroy(ctx));
    for (size_t i = 0; i < 4; i++) {
        OK(cuMemFree(live[i]));
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    victim_start();
    bool retried = pooled();
    if (argc > 1) {
        from_a_new_context(retried);
        return 0;
    }
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuGraphCreate(&graph, 0));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        hold_memory();
        driver_fail(calls[i].name, 1, CUDA_ERROR_OUT_OF_MEMORY);
        expect(i, retried ? 2 : 1, retried ? 0 : CUDA_ERROR_OUT_OF_MEMORY, "failed once");
        hold_memory();
        driver_fail(calls[i].name, 1, CUDA_ERROR_OUT_OF_MEMORY);
        driver_fail(calls[i].name, 2, CUDA_ERROR_OUT_OF_MEMORY);
        expect(i, retried ? 2 : 1, CUDA_ERROR_OUT_OF_MEMORY, "failed twice");
        if (!retried) {
            expect(i, 1, CUDA_ERROR_OUT_OF_MEMORY, "failed again");
        }
        driver_fail(calls[i].name, 1, CUDA_ERROR_OUT_OF_MEMORY);
        expect(i, 1, CUDA_ERROR_OUT_OF_MEMORY, "nothing held");
        hold_memory();
        driver_fail(calls[i].name, 1, CUDA_ERROR_INVALID_VALUE);
        expect(i, 1, CUDA_ERROR_INVALID_VALUE, "another error");
        expect(i, 1, 0, "no error");
    }
    return 0;
}
