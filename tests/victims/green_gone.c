/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory allocated under a green context belongs to its primary one. It outlives the green
 * context, is freed under another or none, and what the green streams still do to it counts.
 * Handles of green contexts that are gone come back for new ones.
 */
#include "tools.h"

#define BYTES    (2 * MIB)
#define MINE     0xaaaaaaaau
#define THEIRS   0x55555555u
#define LIMIT_MS 30.0

enum { ROUNDS = 5 };

static CUcontext primary;
static CUstream reader;

struct green {
    CUgreenCtx handle;
    CUcontext context;
    CUstream stream;
};

static struct green green_new(void)
{
    struct green green;
    CUdevResource all;
    CUdevResource part;
    CUdevResourceDesc description;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&green.handle, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&green.context, green.handle));
    OK(cuGreenCtxStreamCreate(&green.stream, green.handle, CU_STREAM_NON_BLOCKING, 0));
    return green;
}

static void green_end(struct green *green)
{
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamDestroy(green->stream));
    OK(cuGreenCtxDestroy(green->handle));
}

static void free_it(void *data)
{
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemFree(*(CUdeviceptr *)data));
}

/* Allocated under the green context, written late on its stream, freed as `how` says. */
static void freed_elsewhere(struct green *green, int how)
{
    CUdeviceptr ptr;
    CUdeviceptr other;
    OK(cuCtxSetCurrent(green->context));
    OK(cuMemAlloc(&ptr, BYTES));
    OK(cuCtxSetCurrent(how == 0 ? primary : green->context));
    struct gate gate = gate_close_on_host(green->stream, LIMIT_MS);
    OK(cuMemsetD32Async(ptr, MINE, BYTES / 4, green->stream));
    if (how == 2) {
        in_thread(free_it, &ptr);
    } else {
        OK(cuMemFree(ptr));
    }
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc(&other, BYTES));
    launch_fill(reader, other, BYTES / 4, THEIRS);
    OK(cuStreamSynchronize(reader));
    gate_open(gate);
    OK(cuStreamSynchronize(green->stream));
    CHECK(count_wrong(reader, other, BYTES / 4, THEIRS) == 0, "freed in way %d", how);
    OK(cuMemFree(other));
}

int main(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&primary));
    reader = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr outlives;
        CUdeviceptr owner = 0;
        struct green green = green_new();
        for (int how = 0; how < 3; how++) {
            freed_elsewhere(&green, how);
        }
        OK(cuCtxSetCurrent(green.context));
        OK(cuMemAlloc(&outlives, BYTES));
        OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, outlives));
        CHECK((CUcontext)(uintptr_t)owner == primary, "not the primary context's");
        OK(cuMemsetD32Async(outlives, MINE, BYTES / 4, green.stream));
        OK(cuStreamSynchronize(green.stream));
        green_end(&green);
        CHECK(count_wrong(reader, outlives, BYTES / 4, MINE) == 0, "lost with its green context");
        OK(cuMemFree(outlives));
        OK(cuCtxSynchronize());
        uint64_t allocs = driver_allocs();
        OK(cuMemAlloc(&outlives, BYTES));
        CHECK(driver_allocs() == allocs || !pooled(), "the primary context's pool has it not");
        OK(cuMemFree(outlives));
    }
    return 0;
}
