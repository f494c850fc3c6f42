/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: reserved addresses, handles, mappings that alias and that fault. It
 * runs with ZSIM_DEVICES=2.
 */
#include "../victims/victim.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE (2 * MIB)

static CUmemAllocationProp prop;
static CUmemAccessDesc access_0, access_1;

static CUmemGenericAllocationHandle handle_of(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static size_t free_bytes(void)
{
    size_t bytes;
    OK(cuMemGetInfo(&bytes, NULL));
    return bytes;
}

static void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    OK(cuMemMap(at, bytes, 0, handle, 0));
    OK(cuMemSetAccess(at, bytes, &access_0, 1));
}

static void aliases(void)
{
    CUdeviceptr base;
    size_t before = free_bytes();
    OK(cuMemAddressReserve(&base, 8 * PAGE, 0, 0, 0));
    CHECK(base % PAGE == 0);
    CUmemGenericAllocationHandle handle = handle_of(2 * PAGE);
    map(base, 2 * PAGE, handle);
    map(base + 4 * PAGE, 2 * PAGE, handle);
    OK(cuMemsetD32(base + PAGE, 7, 16));
    OK(cuCtxSynchronize());
    CHECK(count_wrong(NULL, base + 5 * PAGE, 16, 7) == 0, "two addresses, one memory");
    CHECK(before - free_bytes() == 2 * PAGE);
    OK(cuMemRelease(handle)); /* the mappings keep it */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    OK(cuMemUnmap(base, 2 * PAGE));
    CHECK(count_wrong(NULL, base + 5 * PAGE, 16, 7) == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 8 * PAGE));
    OK(cuMemUnmap(base + 4 * PAGE, 2 * PAGE));
    CHECK(free_bytes() == before);
    handle = handle_of(2 * PAGE);
    map(base, 2 * PAGE, handle);
    CHECK(count_wrong(NULL, base, PAGE / 4, 0) == 0, "a new handle is zeroed");
    OK(cuMemUnmap(base, 2 * PAGE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(base, 8 * PAGE));
}

static void whole_or_not_at_all(void)
{
    CUdeviceptr base;
    CUmemGenericAllocationHandle again;
    OK(cuMemAddressReserve(&base, 8 * PAGE, 0, 0, 0));
    CUmemGenericAllocationHandle handle = handle_of(2 * PAGE);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(base, PAGE, 0, handle, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(base, PAGE, PAGE, handle, 0));
    map(base, 2 * PAGE, handle);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + PAGE, 2 * PAGE, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, PAGE));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + 100)));
    CHECK(again == handle);
    OK(cuMemRelease(again));
    OK(cuMemRelease(handle));
    /* Two neighbours: one copy over both, but each its own address range. */
    CUdeviceptr found;
    size_t size;
    handle = handle_of(PAGE);
    map(base + 2 * PAGE, PAGE, handle);
    OK(cuMemRelease(handle));
    OK(cuMemsetD8(base, 1, 3 * PAGE));
    OK(cuMemGetAddressRange(&found, &size, base + 2 * PAGE + 5));
    CHECK(found == base + 2 * PAGE && size == PAGE);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(base, 1, 3 * PAGE + 1));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(base, 3 * PAGE));
    OK(cuMemAddressFree(base, 8 * PAGE));
}

static void what_it_is_not(void)
{
    CUdeviceptr base;
    CUipcMemHandle wire;
    unsigned on = 1;
    int ipc = 1;
    OK(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    CUmemGenericAllocationHandle handle = handle_of(PAGE);
    map(base, PAGE, handle);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&wire, base));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(base));
    OK(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base));
    CHECK(ipc == 0);
    OK(cuMemUnmap(base, PAGE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(base, PAGE));
}

/* A handle that was made for it goes through a descriptor and is the same memory. */
static void shareable(void)
{
    CUdeviceptr base;
    CUmemGenericAllocationHandle opened;
    int fd;
    size_t before = free_bytes();
    OK(cuMemAddressReserve(&base, 2 * PAGE, 0, 0, 0));
    CUmemGenericAllocationHandle handle = handle_of(PAGE);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemRelease(handle));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    handle = handle_of(PAGE);
    prop.requestedHandleTypes = 0;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&opened, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHECK(before - free_bytes() == PAGE);
    map(base, PAGE, handle);
    map(base + PAGE, PAGE, opened);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(opened));
    OK(cuMemsetD32(base, 11, 16));
    OK(cuCtxSynchronize());
    CHECK(count_wrong(NULL, base + PAGE, 16, 11) == 0);
    OK(cuMemUnmap(base, 2 * PAGE));
    OK(cuMemAddressFree(base, 2 * PAGE));
    CHECK(free_bytes() == before);
}

/* Unmapping does not wait: a kernel already under way runs on. */
static void no_waiting(void)
{
    CUdeviceptr base;
    CUevent event;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    launch_spin(stream, 30);
    OK(cuEventRecord(event, stream));
    CUmemGenericAllocationHandle handle = handle_of(PAGE);
    map(base, PAGE, handle);
    OK(cuMemUnmap(base, PAGE));
    OK(cuMemRelease(handle));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuCtxSynchronize());
    OK(cuMemAddressFree(base, PAGE));
}

/* The other device needs access of its own, peer access or not. */
static void two_devices(void)
{
    CUcontext first;
    CUcontext second;
    CUdeviceptr base;
    CUdeviceptr plain;
    OK(cuCtxGetCurrent(&first));
    OK(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    CUmemGenericAllocationHandle handle = handle_of(PAGE);
    map(base, PAGE, handle);
    for (int round = 0; round < 2; round++) {
        OK(cuCtxCreate_v4(&second, NULL, 0, 1));
        victim_load_kernels();
        OK(cuCtxEnablePeerAccess(first, 0));
        OK(cuMemAlloc(&plain, 4096));
        if (round == 1) {
            OK(cuMemSetAccess(base, PAGE, &access_1, 1));
        }
        EXPECT(round == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
               cuMemcpyDtoD(plain, base, 4096));
        launch_fill(NULL, base, 16, 3);
        EXPECT(round == 1 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        OK(cuCtxDestroy(second));
        victim_forget_kernels();
    }
    victim_load_kernels();
    CHECK(count_wrong(NULL, base, 16, 3) == 0);
    OK(cuMemUnmap(base, PAGE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(base, PAGE));
}

/* Addresses without access are not there at all. */
static void unmapped_pages_fault(void)
{
    CUdeviceptr base;
    int status;
    OK(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)(uintptr_t)base = 1;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    launch_fill(NULL, base, 16, 1);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

int main(void)
{
    victim_start();
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_0.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_0.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access_1 = access_0;
    access_1.location.id = 1;
    aliases();
    whole_or_not_at_all();
    what_it_is_not();
    shareable();
    no_waiting();
    two_devices();
    unmapped_pages_fault();
    return 0;
}
