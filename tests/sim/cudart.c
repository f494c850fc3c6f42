/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in runtime's base: loading the driver, errors, devices, lazy primary contexts.
 */
#include "cudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MAX_DEVICES 8

struct rt_driver rt_driver;
struct rt_driver rt_per_thread;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[MAX_DEVICES]; /* retained; under lock */
static atomic_uint resets;
static atomic_bool unloaded;

static __thread cudaError_t last_error;
static __thread int device;
static __thread unsigned resets_seen;

static void resolve(const char *name, int version, bool twin, void *ret_plain, void *ret_twin)
{
    void *function = NULL;
    rt_driver.resolve(name, &function, version, 0, NULL);
    memcpy(ret_plain, &function, sizeof function);
    if (twin) {
        function = NULL;
        rt_driver.resolve(name, &function, version < 7000 ? 7000 : version,
                          CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
    }
    memcpy(ret_twin, &function, sizeof function);
}

static void load(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    void *entry = handle ? dlsym(handle, "cuGetProcAddress_v2") : NULL;
    void *unused;
    if (!entry) {
        load_error = cudaErrorInsufficientDriver;
        return;
    }
    memcpy(&rt_driver.resolve, &entry, sizeof entry);
    rt_driver.resolve("", &unused, 0, 0, NULL);
#define DRIVER(name, version, twin)                                                                \
    resolve(#name, version, twin, &rt_driver.name##_, &rt_per_thread.name##_);
    DRIVER_FUNCTIONS
#undef DRIVER
    load_error =
        rt_driver.cuInit_ ? (cudaError_t)rt_driver.cuInit_(0) : cudaErrorInsufficientDriver;
}

__attribute__((destructor)) static void unload(void)
{
    atomic_store(&unloaded, true);
}

cudaError_t rt_load(void)
{
    if (atomic_load(&unloaded)) {
        return cudaErrorCudartUnloading;
    }
    pthread_once(&once, load);
    return load_error;
}

static cudaError_t use_primary(int ordinal)
{
    CUcontext context = NULL;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!primary[ordinal]) {
        rc = rt_driver.cuDevicePrimaryCtxRetain_(&primary[ordinal], ordinal);
    }
    context = primary[ordinal];
    pthread_mutex_unlock(&lock);
    return (cudaError_t)(rc == CUDA_SUCCESS ? rt_driver.cuCtxSetCurrent_(context) : rc);
}

cudaError_t rt_ready(void)
{
    CUcontext context;
    cudaError_t error = rt_load();
    if (error != cudaSuccess) {
        return error;
    }
    unsigned now = atomic_load(&resets);
    bool stale = now != resets_seen;
    resets_seen = now;
    error = (cudaError_t)rt_driver.cuCtxGetCurrent_(&context);
    if (error != cudaSuccess || (context && !stale)) {
        return error;
    }
    return use_primary(device);
}

cudaError_t rt_done(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

RT_EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

RT_EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

RT_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = NULL;
    if (rt_load() == cudaSuccess) {
        rt_driver.cuGetErrorName_((CUresult)error, &name);
    }
    return name ? name : "unrecognized error code";
}

RT_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}

RT_EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version) {
        return rt_done(cudaErrorInvalidValue);
    }
    *version = CUDART_VERSION;
    return cudaSuccess;
}

RT_EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    cudaError_t error = rt_load();
    return rt_done(error ? error : (cudaError_t)rt_driver.cuDriverGetVersion_(version));
}

RT_EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = rt_load();
    return rt_done(error ? error : (cudaError_t)rt_driver.cuDeviceGetCount_(count));
}

RT_EXPORT cudaError_t cudaSetDevice(int ordinal)
{
    int count = 0;
    cudaError_t error = rt_load();
    if (error == cudaSuccess) {
        error = (cudaError_t)rt_driver.cuDeviceGetCount_(&count);
    }
    if (error == cudaSuccess && (ordinal < 0 || ordinal >= count || ordinal >= MAX_DEVICES)) {
        error = cudaErrorInvalidDevice;
    }
    if (error == cudaSuccess) {
        device = ordinal;
        error = use_primary(ordinal);
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaGetDevice(int *ordinal)
{
    CUcontext context = NULL;
    CUdevice current;
    cudaError_t error = ordinal ? rt_load() : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        rt_driver.cuCtxGetCurrent_(&context);
        bool known = context && rt_driver.cuCtxGetDevice_(&current) == CUDA_SUCCESS;
        *ordinal = known ? current : device;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int ordinal)
{
    cudaError_t error = prop ? rt_load() : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        memset(prop, 0, sizeof *prop);
        error = (cudaError_t)rt_driver.cuDeviceGetName_(prop->name, sizeof prop->name, ordinal);
    }
    if (error == cudaSuccess) {
        rt_driver.cuDeviceTotalMem_(&prop->totalGlobalMem, ordinal);
        prop->major = 9;
        prop->multiProcessorCount = 132;
        prop->warpSize = 32;
        prop->textureAlignment = 512;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int ordinal)
{
    cudaError_t error = rt_load();
    return rt_done(error ? error
                         : (cudaError_t)rt_driver.cuDeviceGetAttribute_(
                               value, (CUdevice_attribute)attr, ordinal));
}

RT_EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    return RT_CALL(cuCtxSynchronize_());
}

RT_EXPORT cudaError_t cudaDeviceReset(void)
{
    int ordinal = 0;
    cudaError_t error = cudaGetDevice(&ordinal);
    if (error != cudaSuccess) {
        return error;
    }
    pthread_mutex_lock(&lock);
    primary[ordinal] = NULL;
    error = (cudaError_t)rt_driver.cuDevicePrimaryCtxReset_(ordinal);
    atomic_fetch_add(&resets, 1);
    pthread_mutex_unlock(&lock);
    last_error = cudaSuccess;
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
    return RT_CALL(cuDeviceCanAccessPeer_(can, ordinal, peer));
}

static cudaError_t peer_context(int ordinal, CUcontext *ret_context)
{
    CUcontext current = NULL;
    cudaError_t error = rt_ready();
    if (error == cudaSuccess) {
        rt_driver.cuCtxGetCurrent_(&current);
        error = ordinal < MAX_DEVICES ? use_primary(ordinal) : cudaErrorInvalidDevice;
    }
    if (error == cudaSuccess) {
        rt_driver.cuCtxGetCurrent_(ret_context);
        rt_driver.cuCtxSetCurrent_(current);
    }
    return error;
}

RT_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context = NULL;
    cudaError_t error = peer_context(peer, &context);
    return rt_done(error ? error : (cudaError_t)rt_driver.cuCtxEnablePeerAccess_(context, flags));
}

RT_EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context = NULL;
    cudaError_t error = peer_context(peer, &context);
    return rt_done(error ? error : (cudaError_t)rt_driver.cuCtxDisablePeerAccess_(context));
}

RT_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                                       unsigned int cudaVersion,
                                                       unsigned long long flags,
                                                       enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    cudaError_t error = rt_load();
    if (error == cudaSuccess) {
        error = (cudaError_t)rt_driver.resolve(symbol, funcPtr, (int)cudaVersion, flags, &found);
    }
    if (status) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    return rt_done(error);
}

RT_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr,
                                              unsigned long long flags,
                                              enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(symbol, funcPtr, CUDART_VERSION, flags, status);
}
