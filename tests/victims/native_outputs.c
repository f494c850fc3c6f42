/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: calls that fail leave what they would have written as it was. Each row counts the outputs
 * that changed, in tens, beside the code.
 */
#include "tools.h"

#include <pthread.h>
#include <string.h>

#define UNTOUCHED ((CUdeviceptr)77)
#define TOO_MUCH  ((size_t)1 << 50)

static CUdeviceptr freed;

static int64_t answer(CUresult rc, bool changed)
{
    return (int64_t)rc * 10 + changed;
}

static int64_t plain(void)
{
    CUdeviceptr ptr = UNTOUCHED;
    CUresult rc = cuMemAlloc(&ptr, TOO_MUCH);
    return answer(rc, ptr != UNTOUCHED);
}

static int64_t pitched(void)
{
    CUdeviceptr ptr = UNTOUCHED;
    size_t pitch = 78;
    CUresult rc = cuMemAllocPitch(&ptr, &pitch, (size_t)1 << 30, (size_t)1 << 20, 4);
    return answer(rc, ptr != UNTOUCHED);
}

static int64_t managed(void)
{
    CUdeviceptr ptr = UNTOUCHED;
    CUresult rc = cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL);
    return answer(rc, ptr != UNTOUCHED);
}

static int64_t range_of_freed(void)
{
    CUdeviceptr base = UNTOUCHED;
    size_t size = 78;
    CUresult rc = cuMemGetAddressRange(&base, &size, freed);
    return answer(rc, base != UNTOUCHED || size != 78);
}

static int64_t attribute_of_freed(void)
{
    unsigned type = 79;
    CUresult rc = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, freed);
    return answer(rc, type != 79);
}

static int64_t handle_of_freed(void)
{
    CUipcMemHandle handle;
    CUipcMemHandle before;
    memset(&handle, 0x5a, sizeof handle);
    before = handle;
    CUresult rc = cuIpcGetMemHandle(&handle, freed);
    return answer(rc, memcmp(&handle, &before, sizeof handle) != 0);
}

static void *ask_without_context(void *data)
{
    CUdeviceptr ptr = UNTOUCHED;
    size_t left = 78;
    size_t total = 79;
    CUresult rc = cuMemAlloc(&ptr, 4096);
    CUresult info = cuMemGetInfo(&left, &total);
    *(int64_t *)data =
        answer(rc, ptr != UNTOUCHED) * 10000 + answer(info, left != 78 || total != 79);
    return NULL;
}

static int64_t without_context(void)
{
    pthread_t thread;
    int64_t result = 0;
    CHECK(pthread_create(&thread, NULL, ask_without_context, &result) == 0);
    pthread_join(thread, NULL);
    return result;
}

static const struct answer rows[] = {
    {"cuMemAlloc, out of memory", plain, 20, ALWAYS},
    {"cuMemAllocPitch, out of memory", pitched, 20, ALWAYS},
    {"cuMemAllocManaged of nothing", managed, 10, ALWAYS},
    {"cuMemGetAddressRange of freed memory", range_of_freed, 5000, ALWAYS},
    {"cuPointerGetAttribute of freed memory", attribute_of_freed, 10, ALWAYS},
    {"cuIpcGetMemHandle of freed memory", handle_of_freed, 10, ALWAYS},
    {"cuMemAlloc, cuMemGetInfo without a context", without_context, 20102010, ALWAYS},
};

int main(void)
{
    victim_start();
    OK(cuMemAlloc(&freed, 2 * MIB));
    OK(cuMemFree(freed));
    OK(cuCtxSynchronize());
    return victim_answers(rows, sizeof rows / sizeof rows[0]) > 0;
}
