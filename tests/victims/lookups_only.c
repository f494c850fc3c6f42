/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a runtime that looks every function up before it initialises anything, as they do. None
 * of the look-ups may call the driver, what this driver lacks is not found, and calls made too
 * early get the driver's own code. A program that goes no further leaves no report. Usage:
 * lookups_only [child].
 */
#include "tools.h"

#include <dlfcn.h>
#include <string.h>

enum { LAST_FLAG = 2 };

/* All that libzone wraps or calls. */
static const char *const names[] = {
#define HOOK(name, kind, params, args) #name,
#define CALL(name, params)             #name,
#include "../../shim/hooks.def"
    "cuInit",
    "cuGetExportTable",
};

typedef CUresult (*resolve_fn)(const char *, void **, int, cuuint64_t, void *);

static void look_everything_up(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = dlsym(handle, "cuGetProcAddress_v2");
    int version = 0;
    resolve_fn resolve = NULL; /* there from driver 12 on */
    OK(cuDriverGetVersion(&version));
    memcpy(&resolve, &found, sizeof resolve);
    if (resolve) {
        OK(resolve("", &found, 0, 0, NULL));
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool there = dlsym(handle, names[i]) != NULL;
        dlsym(RTLD_DEFAULT, names[i]);
        CHECK(there == (driver_function(names[i]) != NULL), "%s is%s found", names[i],
              there ? "" : " not");
        for (cuuint64_t flags = 0; resolve && flags <= LAST_FLAG; flags++) {
            resolve(names[i], &found, version, flags, NULL);
        }
    }
}

/* Calls of anything but the resolver and the version, which this program asks for itself. */
static uint64_t all_calls(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool own = strncmp(names[i], "cuGetProcAddress", 16) == 0 ||
                   strcmp(names[i], "cuDriverGetVersion") == 0;
        sum += own ? 0 : driver_calls(names[i]);
    }
    return sum;
}

static void too_early(void)
{
    CUdeviceptr ptr = 77;
    CUcontext context = NULL;
    size_t bytes = 78;
    void *host = NULL;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&ptr, 4096));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemFree(4096));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemGetInfo(&bytes, NULL));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemHostAlloc(&host, 4096, 0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxReset(0));
    CHECK(is_untouched(ptr, 77) && is_untouched(bytes, 78), "%llu %zu", ptr, bytes);
}

int main(int argc, char **argv)
{
    int status = -1;
    if (argc > 1) {
        look_everything_up();
        CHECK(all_calls() == 0, "%llu calls", (unsigned long long)all_calls());
        too_early();
        return 0;
    }
    CHECK(reports_of_child(argv[0], "child", &status) == 0, "a report");
    CHECK(status == 0, "status %x", (unsigned)status);
    return 0;
}
