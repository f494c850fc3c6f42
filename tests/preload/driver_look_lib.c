/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_look.h's function: the driver is opened, never linked, as in libcudart.
 */
#include "driver_look.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef CUresult get_proc_address_fn(const char *name, void **ret_function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *ret_status);

static void print_place(const char *how, const void *address)
{
    const char *slash = NULL;
    Dl_info info;

    if (address == NULL || dladdr(address, &info) == 0) {
        printf("%s nowhere\n", how);
        return;
    }
    slash = strrchr(info.dli_fname, '/');
    printf("%s %s\n", how, slash != NULL ? slash + 1 : info.dli_fname);
}

/* One allocation through the function that was found, in the primary context. */
static int allocate(void *driver, CUresult (*alloc)(CUdeviceptr *, size_t))
{
    CUresult (*init)(unsigned) = NULL;
    CUresult (*retain)(CUcontext *, CUdevice) = NULL;
    CUresult (*set)(CUcontext) = NULL;
    CUresult (*release)(CUdeviceptr) = NULL;
    CUcontext context = NULL;
    CUdeviceptr address = 0;

    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&release = dlsym(driver, "cuMemFree_v2");
    if (init == NULL || retain == NULL || set == NULL || release == NULL) {
        printf("a driver function is missing\n");
        return 1;
    }
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
        set(context) != CUDA_SUCCESS || alloc(&address, 4096) != CUDA_SUCCESS ||
        release(address) != CUDA_SUCCESS) {
        printf("a driver function failed\n");
        return 1;
    }
    printf("allocated and freed\n");
    return 0;
}

int driver_look(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    get_proc_address_fn *get_proc_address = NULL;
    void *function = NULL;

    if (driver == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    print_place("dlsym cuMemAlloc_v2", *(void **)&alloc);
    print_place("dlsym cuInit", dlsym(driver, "cuInit"));
    *(void **)&get_proc_address = dlsym(driver, "cuGetProcAddress_v2");
    if (get_proc_address == NULL) {
        printf("no cuGetProcAddress_v2\n");
        return 1;
    }
    if (get_proc_address("cuMemAlloc", &function, 3020, 0, NULL) != CUDA_SUCCESS) {
        printf("cuGetProcAddress_v2 failed\n");
        return 1;
    }
    print_place("cuGetProcAddress cuMemAlloc", function);
    printf("dlsym and cuGetProcAddress %s\n",
           function == *(void **)&alloc ? "agree" : "do not agree");
    int rc = alloc == NULL ? 1 : allocate(driver, alloc);
    fflush(stdout); /* in a namespace of its own this is another C library's */
    dlclose(driver);
    return rc;
}
