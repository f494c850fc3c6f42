/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what programs see of memory that they map themselves (cuMemCreate, cuMemMap) on a real
 * driver, one row each; the table holds on the simulated GPU and under libzone.
 */
#include "victim.h"

#define PAGE (2 * MIB)

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
static const CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static CUdeviceptr base; /* of two handles, one behind the other */
static CUmemGenericAllocationHandle handles[2];

static void map(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
    OK(cuMemMap(at, PAGE, 0, handle, 0));
    OK(cuMemSetAccess(at, PAGE, &access, 1));
}

static int64_t granularity(void)
{
    size_t least = 0;
    size_t best = 0;
    OK(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    return (int64_t)(least / MIB * 10 + best / MIB);
}

/* A part of a handle, and one from an offset: a handle of two pages. */
static int64_t parts(void)
{
    CUmemGenericAllocationHandle two;
    CUdeviceptr at;
    OK(cuMemCreate(&two, 2 * PAGE, &prop, 0));
    OK(cuMemAddressReserve(&at, 2 * PAGE, 0, 0, 0));
    int64_t part = cuMemMap(at, PAGE, 0, two, 0);
    int64_t offset = cuMemMap(at, PAGE, PAGE, two, 0);
    OK(cuMemAddressFree(at, 2 * PAGE));
    OK(cuMemRelease(two));
    return part * 1000 + offset;
}

/* Words other than what was written through another address. */
static int64_t aliases(void)
{
    CUdeviceptr at;
    OK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    map(at, handles[0]);
    OK(cuMemsetD32(at, 7, PAGE / 4));
    int64_t wrong = count_wrong(NULL, base, PAGE / 4, 7);
    OK(cuMemUnmap(at, PAGE));
    OK(cuMemAddressFree(at, PAGE));
    return wrong;
}

/* A fill, a kernel and a copy over the seam of two handles. */
static int64_t across(void)
{
    CUdeviceptr middle = base + PAGE - 4096;
    unsigned char bytes[8192];
    OK(cuMemsetD32(middle, 9, 2048));
    int64_t wrong = count_wrong(NULL, middle, 2048, 9);
    launch_add(NULL, middle, 2048, 1);
    OK(cuMemcpyDtoH(bytes, middle, sizeof bytes));
    return wrong + (bytes[0] != 10) + (bytes[8188] != 10);
}

/* Whether an address range is one handle; the code past the last. */
static int64_t range(void)
{
    CUdeviceptr start = 0;
    size_t size = 0;
    OK(cuMemGetAddressRange(&start, &size, base + PAGE + 100));
    return (start == base + PAGE) * 10 + (size == PAGE);
}

static int64_t sync_memops(void)
{
    unsigned on = 1;
    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base);
}

static int64_t ipc_handle(void)
{
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, base);
}

static int64_t ipc_capable(void)
{
    int capable = 7;
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base));
    return capable;
}

static int64_t rdma(void)
{
    int supported = 7;
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                            0));
    return supported;
}

/* The handle behind an address is the one that was mapped. */
static int64_t retained(void)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(base + 4096)));
    OK(cuMemRelease(handle));
    return handle == handles[0];
}

static int64_t freed(void)
{
    return cuMemFree(base);
}

static const struct answer rows[] = {
    {"granularity in MiB, least and recommended", granularity, 22, ALWAYS},
    {"a part of a handle, a handle from an offset", parts, 801801, ALWAYS},
    {"words wrong through a second address", aliases, 0, ALWAYS},
    {"wrong over the seam of two handles", across, 0, ALWAYS},
    {"an address range is one handle", range, 11, ALWAYS},
    {"SYNC_MEMOPS", sync_memops, 801, ALWAYS},
    {"cuIpcGetMemHandle", ipc_handle, 1, ALWAYS},
    {"IS_LEGACY_CUDA_IPC_CAPABLE", ipc_capable, 0, ALWAYS},
    {"GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED", rdma, 1, ALWAYS},
    {"cuMemRetainAllocationHandle gives the handle", retained, 1, ALWAYS},
    {"cuMemFree of mapped memory", freed, 1, ALWAYS},
};

int main(void)
{
    victim_start();
    OK(cuMemAddressReserve(&base, 2 * PAGE, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemCreate(&handles[i], PAGE, &prop, 0));
        map(base + (CUdeviceptr)i * PAGE, handles[i]);
    }
    return victim_answers(rows, sizeof rows / sizeof rows[0]) > 0;
}
