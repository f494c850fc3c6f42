/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: contexts come and go, handles go stale, faults stick, the process
 * forks. It runs with ZSIM_DEVICES=2.
 */
#include "../victims/victim.h"
#include "zsim.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUcontext primary;

static uint64_t chunks(int device)
{
    uint64_t (*ask)(int);
    void *found = zsim("zsim_chunks");
    memcpy(&ask, &found, sizeof ask);
    return ask(device);
}

static void current_stack(void)
{
    CUcontext created;
    CUcontext popped;
    CUcontext now;
    CUdevice device;
    unsigned long long id;
    unsigned long long primary_id;
    OK(cuCtxCreate_v4(&created, NULL, 0, 1));
    OK(cuCtxGetCurrent(&now));
    CHECK(now == created);
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cuCtxGetId(created, &id));
    OK(cuCtxGetId(primary, &primary_id));
    CHECK(id != primary_id);
    OK(cuCtxPushCurrent(primary));
    OK(cuCtxPopCurrent(&popped));
    CHECK(popped == primary);
    OK(cuCtxPopCurrent(&popped));
    CHECK(popped == created);
    OK(cuCtxGetCurrent(&now));
    CHECK(now == primary);
    OK(cuCtxDestroy(created));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(created));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(created));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(primary));
}

/* Memory, streams and events of a context end with it, also while work is queued. */
static void destroyed_with_everything(void)
{
    uint64_t before = chunks(0);
    for (int round = 0; round < 20; round++) {
        CUcontext created;
        CUdeviceptr ptr;
        CUevent event;
        OK(cuCtxCreate_v4(&created, NULL, 0, 0));
        victim_load_kernels();
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuMemAlloc(&ptr, 4 * MIB));
        launch_spin(stream, 1);
        launch_fill(stream, ptr, 1024, 1);
        OK(cuEventRecord(event, stream));
        OK(cuCtxDestroy(created));
        EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
        EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
        victim_forget_kernels();
    }
    CHECK(chunks(0) == before, "%llu chunks, then %llu", (unsigned long long)before,
          (unsigned long long)chunks(0));
}

static void *stale_thread(void *data)
{
    CUdeviceptr ptr;
    (void)data;
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc(&ptr, 16));
    OK(cuDevicePrimaryCtxReset(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&ptr, 16));
    return NULL;
}

static void resets(void)
{
    CUcontext again;
    CUdeviceptr ptr;
    pthread_t thread;
    unsigned flags;
    int active;
    uint64_t before = 0;
    for (int round = 0; round < 1000; round++) {
        OK(cuMemAlloc(&ptr, 4096));
        OK(cuMemAlloc(&ptr, 4 * MIB));
        OK(cuDevicePrimaryCtxReset(0));
        CHECK(round == 0 || chunks(0) == before);
        before = chunks(0);
        OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        CHECK(!active);
        OK(cuDevicePrimaryCtxRetain(&again, 0));
        CHECK(again == primary);
    }
    CHECK(pthread_create(&thread, NULL, stale_thread, NULL) == 0);
    pthread_join(thread, NULL);
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&ptr, 16));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuMemAlloc(&ptr, 16));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree(0) ? 0 : cuMemAlloc(&ptr, 16));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    victim_forget_kernels();
}

/* A fault sticks to its context alone. */
static void faults(void)
{
    CUcontext created;
    CUdeviceptr ptr;
    size_t bytes;
    CUevent event;
    OK(cuCtxCreate_v4(&created, NULL, 0, 0));
    victim_load_kernels();
    OK(cuMemAlloc(&ptr, 16));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch_spin(NULL, 20); /* the fault comes after the record */
    launch_fault(NULL);
    OK(cuEventRecord(event, NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(event));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&ptr, 16));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(ptr));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo(&bytes, NULL));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxRecordEvent(created, event));
    OK(cuCtxDestroy(created));
    victim_forget_kernels();
    OK(cuMemAlloc(&ptr, 16));
    OK(cuMemFree(ptr));
    created = new_context(0);
    launch_trap(NULL);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemAlloc(&ptr, 16));
    OK(cuCtxDestroy(created));
    victim_forget_kernels();
}

static void module_variables(void)
{
    CUmodule module;
    CUdeviceptr managed;
    CUdeviceptr plain;
    CUdeviceptr base;
    size_t size;
    int is_managed = 0;
    OK(cuModuleLoadData(&module, victim_ptx));
    OK(cuModuleGetGlobal(&managed, &size, module, "managed_word"));
    CHECK(size == 4);
    OK(cuModuleGetGlobal(&plain, NULL, module, "device_word"));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&plain, NULL, module, "no_word"));
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    CHECK(is_managed);
    launch_fill(NULL, managed, 1, 8);
    launch_fill(NULL, plain, 1, 9);
    OK(cuCtxSynchronize());
    CHECK(*(uint32_t *)(uintptr_t)managed == 8 && count_wrong(NULL, plain, 1, 9) == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
    OK(cuModuleUnload(module));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, managed));
}

static void green_contexts(void)
{
    CUdevResource all;
    CUdevResource half;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUcontext context;
    CUcontext of;
    CUdeviceptr ptr;
    CUstream stream;
    CUevent own;
    CUevent wide;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&half, &groups, &all, NULL, 0, 64));
    OK(cuDevResourceGenerateDesc(&description, &half, 1));
    OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    CHECK(context != primary);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CUstream outside = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&wide, CU_EVENT_DISABLE_TIMING));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    CHECK(of == primary, "memory belongs to the primary context");
    OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(primary, own));
    OK(cuCtxSetCurrent(primary));
    launch_spin(stream, 10);
    OK(cuCtxRecordEvent(primary, wide));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(wide));
    OK(cuEventSynchronize(wide));
    launch_spin(outside, 10);
    OK(cuCtxRecordEvent(context, own));
    OK(cuEventQuery(own)); /* only the green context's own work */
    OK(cuCtxSynchronize());
    OK(cuGreenCtxDestroy(green));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    OK(cuMemFree(ptr)); /* survives it */
    OK(cuStreamDestroy(outside));
}

static void peers(void)
{
    CUcontext second;
    CUdeviceptr ptr;
    CUdeviceptr theirs;
    OK(cuMemAlloc(&ptr, 4096));
    OK(cuCtxCreate_v4(&second, NULL, 0, 1));
    victim_load_kernels();
    OK(cuMemAlloc(&theirs, 4096));
    OK(cuMemcpyDtoD(theirs, ptr, 4096)); /* plain copies need no peer access */
    OK(cuCtxEnablePeerAccess(primary, 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(primary, 0));
    launch_fill(NULL, ptr, 16, 1);
    OK(cuCtxSynchronize());
    OK(cuCtxDisablePeerAccess(primary));
    launch_fill(NULL, ptr, 16, 1);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuCtxDestroy(second));
    victim_forget_kernels();
    OK(cuMemFree(ptr));
}

static void forked(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr ptr;
        CUcontext now;
        bool refused = cuMemAlloc(&ptr, 16) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuCtxGetCurrent(&now) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    int count;
    CUdeviceptr ptr;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&ptr, 16));
    victim_start();
    OK(cuCtxGetCurrent(&primary));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 2);
    current_stack();
    destroyed_with_everything();
    resets();
    faults();
    module_variables();
    green_contexts();
    peers();
    forked();
    return 0;
}
