/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls about contexts, streams, captures, graphs, modules and names fail. See calls.h.
 * Device 1 is for what would end the context that the rows work in.
 */
#include "calls.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OTHER_DEVICE = 1 };

static CUresult resolve_v1(void)
{
    void *found = NULL;
    CUresult rc = TRY(cuGetProcAddress("cuMemAlloc", &found, 3020, 0));
    CHECK((rc == CUDA_SUCCESS) == (found != NULL));
    return rc;
}

static CUresult resolve_v2(void)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult rc = TRY(cuGetProcAddress_v2("cuMemAlloc", &found, 3020, 0, &status));
    CHECK((rc == CUDA_SUCCESS) == (found != NULL));
    return rc;
}

/* Memory in a context that is to end; current is the scene's again. */
static CUdeviceptr memory_of(CUcontext context)
{
    CUdeviceptr ptr;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&ptr, 2 * MIB));
    OK(cuCtxSetCurrent(scene.context));
    return ptr;
}

/* The context did not end: its memory is still there. */
static void still_there(CUresult rc, CUcontext context, CUdeviceptr ptr)
{
    UNDO(rc, cuCtxSetCurrent(context));
    UNDO(rc, cuMemsetD32_v2(ptr, 1, 1024));
    UNDO(rc, cuMemFree_v2(ptr));
    UNDO(rc, cuMemAlloc_v2(&ptr, 2 * MIB));
    UNDO(rc, cuMemFree_v2(ptr));
    UNDO(rc, cuCtxSetCurrent(scene.context));
}

#define END_PRIMARY(name, call, undo)                                                              \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUcontext context;                                                                         \
        OK(cuDevicePrimaryCtxRetain(&context, OTHER_DEVICE));                                      \
        CUdeviceptr ptr = memory_of(context);                                                      \
        CUresult rc = TRY(call(OTHER_DEVICE));                                                     \
        if (rc != CUDA_SUCCESS) {                                                                  \
            still_there(rc, context, ptr);                                                         \
            UNDO(rc, undo(OTHER_DEVICE));                                                          \
        }                                                                                          \
        return rc;                                                                                 \
    }
END_PRIMARY(reset_v1, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset)
END_PRIMARY(reset_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2)
END_PRIMARY(release_v1, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease)
END_PRIMARY(release_v2, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)

#define END_CONTEXT(name, call)                                                                    \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUcontext context;                                                                         \
        CUcontext popped;                                                                          \
        OK(cuCtxCreate_v2(&context, 0, 0));                                                        \
        OK(cuCtxPopCurrent_v2(&popped));                                                           \
        CUdeviceptr ptr = memory_of(context);                                                      \
        CUresult rc = TRY(call(context));                                                          \
        if (rc != CUDA_SUCCESS) {                                                                  \
            still_there(rc, context, ptr);                                                         \
            UNDO(rc, cuCtxDestroy_v2(context));                                                    \
        }                                                                                          \
        return rc;                                                                                 \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
END_CONTEXT(destroy_v1, cuCtxDestroy)
END_CONTEXT(destroy_v2, cuCtxDestroy_v2)
END_CONTEXT(detach, cuCtxDetach)
#pragma GCC diagnostic pop

static CUdevResourceDesc green_description(void)
{
    CUdevResource all;
    CUdevResource part;
    CUdevResourceDesc description;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    return description;
}

static CUresult green_create(void)
{
    CUgreenCtx green = NULL;
    CUdevResourceDesc description = green_description();
    CUresult rc = TRY(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    if (rc == CUDA_SUCCESS) {
        OK(cuGreenCtxDestroy(green));
    }
    return rc;
}

static CUgreenCtx new_green(void)
{
    CUgreenCtx green;
    OK(cuGreenCtxCreate(&green, green_description(), 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUresult green_destroy(void)
{
    CUcontext context;
    CUgreenCtx green = new_green();
    OK(cuCtxFromGreenCtx(&context, green));
    CUdeviceptr ptr = memory_of(context);
    CUresult rc = TRY(cuGreenCtxDestroy(green));
    if (rc != CUDA_SUCCESS) {
        still_there(rc, context, ptr);
        UNDO(rc, cuGreenCtxDestroy(green));
    } else {
        OK(cuMemFree_v2(ptr)); /* it belongs to the primary context */
    }
    return rc;
}

static CUresult green_stream(void)
{
    CUstream stream = NULL;
    CUgreenCtx green = new_green();
    CUresult rc = TRY(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    if (rc == CUDA_SUCCESS) {
        OK(cuStreamDestroy_v2(stream));
    }
    UNDO(rc, cuGreenCtxDestroy(green));
    return rc;
}

/* A pool that took the stream for one that captures would not record; one that takes a capture for
 * ended would break it. Frees of large blocks record. */
static void large_pair(CUresult rc)
{
    CUdeviceptr ptr = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    UNDO(rc, cuMemAlloc_v2(&ptr, 6 * MIB));
    UNDO(rc, cuMemFree_v2(ptr));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}

static CUresult end_capture(CUresult rc, CUstream stream, bool ptsz)
{
    CUgraph graph = NULL;
    if (rc == CUDA_SUCCESS) {
        OK(ptsz ? cuStreamEndCapture_ptsz(stream, &graph) : cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    return rc;
}

#define BEGIN(name, stream, ptsz, call)                                                            \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUresult rc = TRY(call);                                                                   \
        if (rc != CUDA_SUCCESS) {                                                                  \
            UNDO(rc, cuMemsetD32Async(scene.data, 0, 0, stream));                                  \
        }                                                                                          \
        return end_capture(rc, stream, ptsz);                                                      \
    }
#define MODE CU_STREAM_CAPTURE_MODE_RELAXED
BEGIN(begin, scene.stream, false, cuStreamBeginCapture(scene.stream))
BEGIN(begin_ptsz, NULL, true, cuStreamBeginCapture_ptsz(NULL))
BEGIN(begin_v2, scene.stream, false, cuStreamBeginCapture_v2(scene.stream, MODE))
BEGIN(begin_v2_ptsz, NULL, true, cuStreamBeginCapture_v2_ptsz(NULL, MODE))

#define BEGIN_TO(suffix, stream, ptsz)                                                             \
    static CUresult begin_to##suffix(void)                                                         \
    {                                                                                              \
        CUgraph graph;                                                                             \
        CUgraph same = NULL;                                                                       \
        OK(cuGraphCreate(&graph, 0));                                                              \
        CUresult rc =                                                                              \
            TRY(cuStreamBeginCaptureToGraph##suffix(stream, graph, NULL, NULL, 0, MODE));          \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuStreamEndCapture##suffix(stream, &same));                                         \
        }                                                                                          \
        UNDO(rc, cuGraphDestroy(graph));                                                           \
        return rc;                                                                                 \
    }
BEGIN_TO(, scene.stream, false)
BEGIN_TO(_ptsz, NULL, true)

#define END(suffix, stream, ptsz)                                                                  \
    static CUresult end##suffix(void)                                                              \
    {                                                                                              \
        CUgraph graph = NULL;                                                                      \
        OK(cuStreamBeginCapture_v2##suffix(stream, MODE));                                         \
        CUresult rc = TRY(cuStreamEndCapture##suffix(stream, &graph));                             \
        if (rc != CUDA_SUCCESS) {                                                                  \
            large_pair(rc);                                                                        \
            UNDO(rc, cuStreamEndCapture##suffix(stream, &graph));                                  \
        }                                                                                          \
        if (graph) {                                                                               \
            OK(cuGraphDestroy(graph));                                                             \
        }                                                                                          \
        return rc;                                                                                 \
    }
END(, scene.stream, false)
END(_ptsz, NULL, true)

#define STREAM_DESTROY(name, call)                                                                 \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUgraph graph = NULL;                                                                      \
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);                                      \
        OK(cuStreamBeginCapture_v2(stream, MODE));                                                 \
        CUresult rc = TRY(call(stream));                                                           \
        if (rc != CUDA_SUCCESS) {                                                                  \
            large_pair(rc);                                                                        \
            UNDO(rc, cuStreamEndCapture(stream, &graph));                                          \
            UNDO(rc, cuStreamDestroy_v2(stream));                                                  \
        }                                                                                          \
        if (graph) {                                                                               \
            OK(cuGraphDestroy(graph));                                                             \
        }                                                                                          \
        return rc;                                                                                 \
    }
STREAM_DESTROY(stream_destroy, cuStreamDestroy)
STREAM_DESTROY(stream_destroy_v2, cuStreamDestroy_v2)

static CUresult end_stream(CUresult rc, CUstream stream)
{
    if (rc == CUDA_SUCCESS) {
        OK(cuStreamDestroy_v2(stream));
    }
    return rc;
}

static CUresult stream_create(void)
{
    CUstream stream = NULL;
    CUresult rc = TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return end_stream(rc, stream);
}

static CUresult stream_create_priority(void)
{
    CUstream stream = NULL;
    CUresult rc = TRY(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    return end_stream(rc, stream);
}

/* The kernels as a file. */
static const char *ptx_path(void)
{
    static char path[64];
    if (!path[0]) {
        size_t bytes = strlen(victim_ptx);
        int fd = memfd_create("kernels", 0);
        CHECK(write(fd, victim_ptx, bytes) == (ssize_t)bytes);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    return path;
}

#define LOAD(name, call)                                                                           \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUmodule module = NULL;                                                                    \
        const char *path = ptx_path();                                                             \
        (void)path;                                                                                \
        CUresult rc = TRY(call);                                                                   \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuModuleUnload(module));                                                            \
        }                                                                                          \
        return rc;                                                                                 \
    }
LOAD(load, cuModuleLoad(&module, path))
LOAD(load_data, cuModuleLoadData(&module, victim_ptx))
LOAD(load_data_ex, cuModuleLoadDataEx(&module, victim_ptx, 0, NULL, NULL))
LOAD(load_fat, cuModuleLoadFatBinary(&module, victim_ptx))

#define IN_MODULE(name, call)                                                                      \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUmodule module;                                                                           \
        CUfunction function;                                                                       \
        CUdeviceptr word;                                                                          \
        size_t bytes;                                                                              \
        (void)function, (void)word, (void)bytes;                                                   \
        OK(cuModuleLoadData(&module, victim_ptx));                                                 \
        CUresult rc = TRY(call);                                                                   \
        UNDO(rc, cuModuleUnload(module));                                                          \
        return rc;                                                                                 \
    }
IN_MODULE(get_function, cuModuleGetFunction(&function, module, "fill"))
IN_MODULE(get_global, cuModuleGetGlobal_v2(&word, &bytes, module, "device_word"))

#define NONE NULL, NULL, 0, NULL, NULL, 0

#define LOAD_LIBRARY(name, call)                                                                   \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUlibrary library = NULL;                                                                  \
        const char *path = ptx_path();                                                             \
        (void)path;                                                                                \
        CUresult rc = TRY(call);                                                                   \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuLibraryUnload(library));                                                          \
        }                                                                                          \
        return rc;                                                                                 \
    }
LOAD_LIBRARY(load_library, cuLibraryLoadData(&library, victim_ptx, NONE))
LOAD_LIBRARY(load_library_file, cuLibraryLoadFromFile(&library, path, NONE))

#define IN_LIBRARY(name, call)                                                                     \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUlibrary library;                                                                         \
        CUkernel kernel;                                                                           \
        CUmodule module;                                                                           \
        CUfunction function;                                                                       \
        CUdeviceptr word;                                                                          \
        size_t bytes;                                                                              \
        (void)module, (void)function, (void)word, (void)bytes;                                     \
        OK(cuLibraryLoadData(&library, victim_ptx, NONE));                                         \
        OK(cuLibraryGetKernel(&kernel, library, "fill"));                                          \
        CUresult rc = TRY(call);                                                                   \
        UNDO(rc, cuLibraryUnload(library));                                                        \
        return rc;                                                                                 \
    }
IN_LIBRARY(library_module, cuLibraryGetModule(&module, library))
IN_LIBRARY(library_global, cuLibraryGetGlobal(&word, &bytes, library, "device_word"))
IN_LIBRARY(library_managed, cuLibraryGetManaged(&word, &bytes, library, "managed_word"))
IN_LIBRARY(kernel_function, cuKernelGetFunction(&function, kernel))

#define WITH_GRAPH(name, call)                                                                     \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUgraph graph;                                                                             \
        CUgraphExec exec = NULL;                                                                   \
        CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};                                                \
        (void)params;                                                                              \
        OK(cuGraphCreate(&graph, 0));                                                              \
        CUresult rc = TRY(call);                                                                   \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuGraphExecDestroy(exec));                                                          \
        }                                                                                          \
        UNDO(rc, cuGraphDestroy(graph));                                                           \
        return rc;                                                                                 \
    }
WITH_GRAPH(instantiate_v1, cuGraphInstantiate(&exec, graph, NULL, NULL, 0))
WITH_GRAPH(instantiate_v2, cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0))
WITH_GRAPH(instantiate_flags, cuGraphInstantiateWithFlags(&exec, graph, 0))
WITH_GRAPH(instantiate_params, cuGraphInstantiateWithParams(&exec, graph, &params))
WITH_GRAPH(instantiate_params_ptsz, cuGraphInstantiateWithParams_ptsz(&exec, graph, &params))

#define UPLOAD(suffix, stream)                                                                     \
    static CUresult upload##suffix(void)                                                           \
    {                                                                                              \
        CUgraph graph;                                                                             \
        CUgraphExec exec;                                                                          \
        OK(cuGraphCreate(&graph, 0));                                                              \
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));                                          \
        CUresult rc = TRY(cuGraphUpload##suffix(exec, stream));                                    \
        UNDO(rc, cuGraphExecDestroy(exec));                                                        \
        UNDO(rc, cuGraphDestroy(graph));                                                           \
        return rc;                                                                                 \
    }
UPLOAD(, scene.stream)
UPLOAD(_ptsz, NULL)

#define NEW_CONTEXT(name, call)                                                                    \
    static CUresult name(void)                                                                     \
    {                                                                                              \
        CUcontext context = NULL;                                                                  \
        CUresult rc = TRY(call);                                                                   \
        if (rc == CUDA_SUCCESS) {                                                                  \
            OK(cuCtxDestroy_v2(context));                                                          \
        }                                                                                          \
        UNDO(rc, cuCtxSetCurrent(scene.context));                                                  \
        return rc;                                                                                 \
    }
NEW_CONTEXT(create_v1, cuCtxCreate(&context, 0, 0))
NEW_CONTEXT(create_v2, cuCtxCreate_v2(&context, 0, 0))
NEW_CONTEXT(create_v3, cuCtxCreate_v3(&context, NULL, 0, 0, 0))
NEW_CONTEXT(create_v4, cuCtxCreate_v4(&context, NULL, 0, 0))

static CUresult retain(void)
{
    CUcontext context;
    CUresult rc = TRY(cuDevicePrimaryCtxRetain(&context, OTHER_DEVICE));
    if (rc == CUDA_SUCCESS) {
        OK(cuDevicePrimaryCtxRelease_v2(OTHER_DEVICE));
    }
    return rc;
}

static CUresult set_limit(void)
{
    return TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
}

static const struct call_row rows[] = {
    {"cuGetProcAddress", NULL, resolve_v1},
    {"cuGetProcAddress_v2", NULL, resolve_v2},
    {"cuModuleGetGlobal_v2", NULL, get_global},
    {"cuLibraryGetGlobal", NULL, library_global},
    {"cuLibraryGetManaged", NULL, library_managed},
    {"cuDevicePrimaryCtxReset", NULL, reset_v1},
    {"cuDevicePrimaryCtxReset_v2", NULL, reset_v2},
    {"cuDevicePrimaryCtxRelease", NULL, release_v1},
    {"cuDevicePrimaryCtxRelease_v2", NULL, release_v2},
    {"cuCtxDestroy", NULL, destroy_v1},
    {"cuCtxDestroy_v2", NULL, destroy_v2},
    {"cuCtxDetach", NULL, detach},
    {"cuGreenCtxDestroy", NULL, green_destroy},
    {"cuStreamBeginCapture", NULL, begin},
    {"cuStreamBeginCapture_ptsz", NULL, begin_ptsz},
    {"cuStreamBeginCapture_v2", NULL, begin_v2},
    {"cuStreamBeginCapture_v2_ptsz", NULL, begin_v2_ptsz},
    {"cuStreamBeginCaptureToGraph", NULL, begin_to},
    {"cuStreamBeginCaptureToGraph_ptsz", NULL, begin_to_ptsz},
    {"cuStreamEndCapture", NULL, end},
    {"cuStreamEndCapture_ptsz", NULL, end_ptsz},
    {"cuStreamDestroy", "while it captures", stream_destroy},
    {"cuStreamDestroy_v2", "while it captures", stream_destroy_v2},
    {"cuModuleLoad", NULL, load},
    {"cuModuleLoadData", NULL, load_data},
    {"cuModuleLoadDataEx", NULL, load_data_ex},
    {"cuModuleLoadFatBinary", NULL, load_fat},
    {"cuModuleGetFunction", NULL, get_function},
    {"cuLibraryLoadData", NULL, load_library},
    {"cuLibraryLoadFromFile", NULL, load_library_file},
    {"cuLibraryGetModule", NULL, library_module},
    {"cuKernelGetFunction", NULL, kernel_function},
    {"cuGraphInstantiate", NULL, instantiate_v1},
    {"cuGraphInstantiate_v2", NULL, instantiate_v2},
    {"cuGraphInstantiateWithFlags", NULL, instantiate_flags},
    {"cuGraphInstantiateWithParams", NULL, instantiate_params},
    {"cuGraphInstantiateWithParams_ptsz", NULL, instantiate_params_ptsz},
    {"cuGraphUpload", NULL, upload},
    {"cuGraphUpload_ptsz", NULL, upload_ptsz},
    {"cuStreamCreate", NULL, stream_create},
    {"cuStreamCreateWithPriority", NULL, stream_create_priority},
    {"cuGreenCtxStreamCreate", NULL, green_stream},
    {"cuCtxCreate", NULL, create_v1},
    {"cuCtxCreate_v2", NULL, create_v2},
    {"cuCtxCreate_v3", NULL, create_v3},
    {"cuCtxCreate_v4", NULL, create_v4},
    {"cuGreenCtxCreate", NULL, green_create},
    {"cuDevicePrimaryCtxRetain", NULL, retain},
    {"cuCtxSetLimit", NULL, set_limit},
};

int main(int argc, char **argv)
{
    return call_rows(rows, sizeof rows / sizeof rows[0], argc, argv);
}
