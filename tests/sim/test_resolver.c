/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: cuGetProcAddress against dlsym, for the names that differ by version
 * and by stream flag. It runs for every driver version; ZSIM_DRIVER tells which.
 */
#include "../victims/victim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult (*resolver)(const char *, void **, int, cuuint64_t,
                             CUdriverProcAddressQueryResult *);

static void *driver;
static int version;
static resolver resolve;

static const struct {
    const char *name;
    int version;
    cuuint64_t flags;
    const char *symbol;
    int since;
} rows[] = {
    {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 3020},
    {"cuMemAlloc", 11000, 1, "cuMemAlloc_v2", 3020},
    {"cuMemAlloc", 2000, 0, "cuMemAlloc", 2000},
    {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync", 11020},
    {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz", 11020},
    {"cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2", 3020},
    {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds", 7000},
    {"cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset", 7000},
    {"cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2", 11000},
    {"cuIpcOpenMemHandle", 4010, 0, "cuIpcOpenMemHandle", 4010},
    {"cuIpcOpenMemHandle", 11000, 0, "cuIpcOpenMemHandle_v2", 11000},
    {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture", 10000},
    {"cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2", 10010},
    {"cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz", 10010},
    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress", 11030},
    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 12000},
    {"cuCtxGetId", 12000, 0, "cuCtxGetId", 12000},
    {"cuCtxRecordEvent", 12050, 0, "cuCtxRecordEvent", 12050},
    {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2", 13000},
};

/* With the two forms of the resolver that there are. */
static CUresult ask(const char *name, void **function, int wanted, cuuint64_t flags, int *status)
{
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult rc;
    if (resolve) {
        rc = resolve(name, function, wanted, flags, &result);
    } else {
        CUresult (*first)(const char *, void **, int, cuuint64_t);
        void *entry = dlsym(driver, "cuGetProcAddress");
        memcpy(&first, &entry, sizeof first);
        rc = first(name, function, wanted, flags);
    }
    *status = (int)result;
    return rc;
}

static void known_names(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = NULL;
        int status;
        void *expected = dlsym(driver, rows[i].symbol);
        CHECK((expected != NULL) == (rows[i].since <= version), "%s", rows[i].symbol);
        if (rows[i].version <= version) {
            OK(ask(rows[i].name, &function, rows[i].version, rows[i].flags, &status));
            CHECK(function == expected, "%s at %d", rows[i].name, rows[i].version);
        } else {
            EXPECT(CUDA_ERROR_INVALID_VALUE,
                   ask(rows[i].name, &function, rows[i].version, rows[i].flags, &status));
        }
    }
}

static void odd_names(void)
{
    void *function = &function;
    int status;
    if (!resolve) {
        EXPECT(CUDA_ERROR_NOT_FOUND, ask("", &function, 0, 0, &status));
        return;
    }
    OK(ask("", &function, 0, 0, &status));
    CHECK(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    OK(resolve("", &function, 0, 0, NULL));
    OK(ask("cuMemAllocAsync", &function, 11010, 0, &status));
    CHECK(function == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(ask("cuMemAlloc_v2", &function, 12000, 0, &status));
    CHECK(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(CUDA_ERROR_INVALID_VALUE, ask("cuMemAlloc", &function, 12000, 3, &status));
    EXPECT(CUDA_ERROR_INVALID_VALUE, ask(NULL, &function, 12000, 0, &status));
    EXPECT(CUDA_ERROR_INVALID_VALUE, resolve("cuMemAlloc", NULL, 12000, 0, NULL));
}

int main(void)
{
    int told = 0;
    const char *wanted = getenv("ZSIM_DRIVER");
    version = wanted ? atoi(wanted) : 13000;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver, "%s", dlerror());
    OK(cuDriverGetVersion(&told));
    CHECK(told == version, "version %d", told);
    void *entry = dlsym(driver, "cuGetProcAddress_v2");
    memcpy(&resolve, &entry, sizeof resolve);
    CHECK((entry != NULL) == (version >= 12000));
    known_names();
    odd_names();
    OK(cuInit(0));
    return 0;
}
