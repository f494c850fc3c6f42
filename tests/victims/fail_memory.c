/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls about memory fail. See calls.h. As `fail_memory export WORD` it is the process
 * whose memory the rows of cuIpcOpenMemHandle open.
 */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static CUresult end_memory(CUresult rc, CUdeviceptr ptr)
{
    if (rc == CUDA_SUCCESS) {
        OK(cuMemFree_v2(ptr));
    }
    return rc;
}

/* Freed for real, as shared memory is: a pool that kept it could give it back, and try again. */
static CUresult plain_alloc(void)
{
    unsigned on = 1;
    CUdeviceptr ptr = 0;
    CUresult rc = TRY(cuMemAlloc_v2(&ptr, call_new_size()));
    if (rc == CUDA_SUCCESS) {
        OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    }
    return end_memory(rc, ptr);
}

/* Memory whose free is the driver's: a failed one leaves it to the program. */
static CUresult free_pitched(void)
{
    CUdeviceptr ptr;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&ptr, &pitch, 100, 100, 4));
    CUresult rc = TRY(cuMemFree_v2(ptr));
    if (rc != CUDA_SUCCESS) {
        UNDO(rc, cuMemsetD32_v2(ptr, 1, 1));
        UNDO(rc, cuMemFree_v2(ptr));
    }
    return rc;
}

static CUresult free_managed(void)
{
    CUdeviceptr ptr;
    OK(cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL));
    CUresult rc = TRY(cuMemFree_v2(ptr));
    if (rc != CUDA_SUCCESS) {
        UNDO(rc, cuMemFree_v2(ptr));
    }
    return rc;
}

static CUdeviceptr shared_memory(void)
{
    unsigned on = 1;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 3 * MIB));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    return ptr;
}

static CUresult free_shared(void)
{
    CUdeviceptr ptr = shared_memory();
    CUresult rc = TRY(cuMemFree_v2(ptr));
    if (rc != CUDA_SUCCESS) {
        UNDO(rc, cuMemsetD32_v2(ptr, 1, 1));
        UNDO(rc, cuMemFree_v2(ptr));
    }
    return rc;
}

static CUresult managed(void)
{
    CUdeviceptr ptr = 0;
    CUresult rc = TRY(cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL));
    return end_memory(rc, ptr);
}

static CUresult info(void)
{
    size_t bytes = 0;
    size_t total = 0;
    CUresult rc = TRY(cuMemGetInfo_v2(&bytes, &total));
    CHECK((rc == CUDA_SUCCESS) == (total > 0));
    return rc;
}

static CUresult range(void)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult rc = TRY(cuMemGetAddressRange_v2(&base, &size, scene.data));
    CHECK((rc == CUDA_SUCCESS) == (base == scene.data && size == SCENE_WORDS * 4));
    return rc;
}

static CUresult attribute(void)
{
    CUcontext owner = NULL;
    CUresult rc = TRY(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, scene.data));
    CHECK((rc == CUDA_SUCCESS) == (owner == scene.context));
    return rc;
}

static CUresult attributes(void)
{
    CUcontext owner = NULL;
    size_t size = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[] = {&owner, &size};
    CUresult rc = TRY(cuPointerGetAttributes(2, which, data, scene.data));
    CHECK((rc == CUDA_SUCCESS) == (owner == scene.context && size == SCENE_WORDS * 4));
    return rc;
}

static CUresult set_attribute(void)
{
    unsigned on = 1;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 3 * MIB));
    CUresult rc = TRY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    UNDO(rc, cuMemFree_v2(ptr));
    return rc;
}

#define ELAPSED(suffix)                                                                            \
    static CUresult elapsed##suffix(void)                                                          \
    {                                                                                              \
        CUevent events[2];                                                                         \
        float ms = -1;                                                                             \
        for (int i = 0; i < 2; i++) {                                                              \
            OK(cuEventCreate(&events[i], CU_EVENT_DEFAULT));                                       \
            OK(cuEventRecord(events[i], scene.stream));                                            \
            OK(cuEventSynchronize(events[i]));                                                     \
        }                                                                                          \
        CUresult rc = TRY(cuEventElapsedTime##suffix(&ms, events[0], events[1]));                  \
        CHECK((rc == CUDA_SUCCESS) == (ms >= 0));                                                  \
        for (int i = 0; i < 2; i++) {                                                              \
            UNDO(rc, cuEventDestroy_v2(events[i]));                                                \
        }                                                                                          \
        return rc;                                                                                 \
    }
ELAPSED()
ELAPSED(_v2)

static CUresult ipc_get(void)
{
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 3 * MIB));
    CUresult rc = TRY(cuIpcGetMemHandle(&handle, ptr));
    UNDO(rc, cuMemFree_v2(ptr));
    return rc;
}

static CUresult dma_buf(void)
{
    int fd = -1;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 4 * MIB));
    CUresult rc = TRY(
        cuMemGetHandleForAddressRange(&fd, ptr, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    CHECK((rc == CUDA_SUCCESS) == (fd >= 0));
    if (fd >= 0) {
        close(fd);
    }
    UNDO(rc, cuMemFree_v2(ptr));
    return rc;
}

static CUresult pitch(void)
{
    CUdeviceptr ptr = 0;
    size_t bytes;
    CUresult rc = TRY(cuMemAllocPitch_v2(&ptr, &bytes, 100, 100, 4));
    return end_memory(rc, ptr);
}

static CUresult end_pinned(CUresult rc, void *ptr)
{
    if (rc == CUDA_SUCCESS) {
        OK(cuMemFreeHost(ptr));
    }
    return rc;
}

static CUresult host_alloc(void)
{
    void *ptr = NULL;
    CUresult rc = TRY(cuMemHostAlloc(&ptr, 4096, 0));
    return end_pinned(rc, ptr);
}

static CUresult alloc_host(void)
{
    void *ptr = NULL;
    CUresult rc = TRY(cuMemAllocHost_v2(&ptr, 4096));
    return end_pinned(rc, ptr);
}

static CUresult host_register(void)
{
    void *memory = aligned_alloc(4096, 4096);
    CUresult rc = TRY(cuMemHostRegister_v2(memory, 4096, 0));
    if (rc == CUDA_SUCCESS) {
        OK(cuMemHostUnregister(memory));
    }
    free(memory);
    return rc;
}

static CUresult array(void)
{
    CUarray made = NULL;
    CUDA_ARRAY_DESCRIPTOR_v2 descriptor = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    CUresult rc = TRY(cuArrayCreate_v2(&made, &descriptor));
    if (rc == CUDA_SUCCESS) {
        OK(cuArrayDestroy(made));
    }
    return rc;
}

static const CUDA_ARRAY3D_DESCRIPTOR_v2 cube = {64, 64, 4, CU_AD_FORMAT_FLOAT, 1, 0};

static CUresult array_3d(void)
{
    CUarray made = NULL;
    CUresult rc = TRY(cuArray3DCreate_v2(&made, &cube));
    if (rc == CUDA_SUCCESS) {
        OK(cuArrayDestroy(made));
    }
    return rc;
}

static CUresult mipmapped(void)
{
    CUmipmappedArray made = NULL;
    CUresult rc = TRY(cuMipmappedArrayCreate(&made, &cube, 2));
    if (rc == CUDA_SUCCESS) {
        OK(cuMipmappedArrayDestroy(made));
    }
    return rc;
}

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location.type = CU_MEM_LOCATION_TYPE_DEVICE};

static CUresult physical(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult rc = TRY(cuMemCreate(&handle, 2 * MIB, &on_device, 0));
    if (rc == CUDA_SUCCESS) {
        OK(cuMemRelease(handle));
    }
    return rc;
}

/* Physical memory in reserved addresses; as a map or an access of it fails. */
static CUresult mapped(bool fail_map)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemCreate(&handle, 2 * MIB, &on_device, 0));
    OK(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    CUresult rc = CUDA_SUCCESS;
    CUresult map =
        fail_map ? TRY(cuMemMap(at, 2 * MIB, 0, handle, 0)) : cuMemMap(at, 2 * MIB, 0, handle, 0);
    rc = map;
    if (map == CUDA_SUCCESS && !fail_map) {
        rc = TRY(cuMemSetAccess(at, 2 * MIB, &access, 1));
    }
    if (map == CUDA_SUCCESS) {
        UNDO(rc, cuMemUnmap(at, 2 * MIB));
    }
    UNDO(rc, cuMemAddressFree(at, 2 * MIB));
    UNDO(rc, cuMemRelease(handle));
    return rc;
}

static CUresult map(void)
{
    return mapped(true);
}

static CUresult set_access(void)
{
    return mapped(false);
}

static CUresult new_pool(void)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUresult rc = TRY(cuMemPoolCreate(&pool, &props));
    if (rc == CUDA_SUCCESS) {
        OK(cuMemPoolDestroy(pool));
    }
    return rc;
}

static CUresult external(void)
{
    CUexternalMemory memory = NULL;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .size = 4096};
    desc.handle.fd = memfd_create("victim", 0);
    CHECK(desc.handle.fd >= 0 && ftruncate(desc.handle.fd, 4096) == 0);
    CUresult rc = TRY(cuImportExternalMemory(&memory, &desc));
    if (rc == CUDA_SUCCESS) {
        OK(cuDestroyExternalMemory(memory));
    } else {
        close(desc.handle.fd); /* the driver takes it over only if it succeeds */
    }
    return rc;
}

/* Gives out a handle of its memory, and stays until it is told. */
static int export_memory(void)
{
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    char byte;
    victim_start();
    OK(cuMemAlloc_v2(&ptr, 2 * MIB));
    OK(cuIpcGetMemHandle(&handle, ptr));
    CHECK(write(STDOUT_FILENO, &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK(read(STDIN_FILENO, &byte, 1) == 0);
    return 0;
}

static CUipcMemHandle exported(void)
{
    static CUipcMemHandle handle;
    static bool known;
    int out[2];
    int in[2];
    if (!known) {
        CHECK(pipe(out) == 0 && pipe(in) == 0);
        if (fork() == 0) {
            dup2(out[1], STDOUT_FILENO);
            dup2(in[0], STDIN_FILENO);
            close(in[1]); /* so that this process's end is its end */
            execl(self, self, "export", "memory", (char *)NULL);
            _exit(99);
        }
        close(out[1]);
        close(in[0]);
        CHECK(read(out[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
        known = true;
    }
    return handle;
}

#define IPC_OPEN(suffix)                                                                           \
    static CUresult ipc_open##suffix(void)                                                         \
    {                                                                                              \
        CUdeviceptr ptr = 0;                                                                       \
        CUipcMemHandle handle = exported();                                                        \
        CUresult rc =                                                                              \
            TRY(cuIpcOpenMemHandle##suffix(&ptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));     \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuIpcCloseMemHandle(ptr));                                                          \
        }                                                                                          \
        return rc;                                                                                 \
    }
IPC_OPEN()
IPC_OPEN(_v2)

static const struct call_row rows[] = {
    {"cuMemAlloc_v2", NULL, plain_alloc},
    {"cuMemFree_v2", "pitched memory", free_pitched},
    {"cuMemFree_v2", "managed memory", free_managed},
    {"cuMemFree_v2", "shared memory", free_shared},
    {"cuMemAllocManaged", NULL, managed},
    {"cuMemGetInfo_v2", NULL, info},
    {"cuMemGetAddressRange_v2", NULL, range},
    {"cuPointerGetAttribute", NULL, attribute},
    {"cuPointerGetAttributes", NULL, attributes},
    {"cuPointerSetAttribute", NULL, set_attribute},
    {"cuEventElapsedTime", NULL, elapsed},
    {"cuEventElapsedTime_v2", NULL, elapsed_v2},
    {"cuIpcGetMemHandle", NULL, ipc_get},
    {"cuMemGetHandleForAddressRange", NULL, dma_buf},
    {"cuMemAllocPitch_v2", NULL, pitch},
    {"cuMemHostAlloc", NULL, host_alloc},
    {"cuMemAllocHost_v2", NULL, alloc_host},
    {"cuMemHostRegister_v2", NULL, host_register},
    {"cuArrayCreate_v2", NULL, array},
    {"cuArray3DCreate_v2", NULL, array_3d},
    {"cuMipmappedArrayCreate", NULL, mipmapped},
    {"cuMemCreate", NULL, physical},
    {"cuMemMap", NULL, map},
    {"cuMemSetAccess", NULL, set_access},
    {"cuMemPoolCreate", NULL, new_pool},
    {"cuImportExternalMemory", NULL, external},
    {"cuIpcOpenMemHandle", NULL, ipc_open},
    {"cuIpcOpenMemHandle_v2", NULL, ipc_open_v2},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3 && strcmp(argv[1], "export") == 0) {
        return export_memory();
    }
    return call_rows(rows, sizeof rows / sizeof rows[0], argc, argv);
}
