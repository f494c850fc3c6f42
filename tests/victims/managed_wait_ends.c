/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: while a program holds managed memory, its frees wait as natively; once it has given that
 * back, by whichever free, they need not any more.
 */
#include "tools.h"

#define LIMIT_MS 30.0

static CUstream side;

/* What becomes of held work that a free finds. */
static enum gate_outcome free_finds(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
    struct gate gate = gate_close(side, LIMIT_MS);
    OK(cuMemFree(ptr));
    enum gate_outcome outcome = gate_outcome(gate);
    gate_open(gate);
    OK(cuCtxSynchronize());
    return outcome;
}

static void expect(enum gate_outcome outcome, const char *when)
{
    CHECK(free_finds(4 * MIB) == outcome, "a large block, %s", when);
    CHECK(free_finds(4 * KIB) == outcome, "a small block, %s", when);
}

int main(void)
{
    CUdeviceptr first;
    CUdeviceptr second;
    CUdeviceptr refused;
    victim_start();
    enum gate_outcome plain = frees_run_ahead() ? GATE_CLOSED : GATE_GAVE_UP;
    side = new_stream(CU_STREAM_NON_BLOCKING);
    expect(plain, "before");
    OK(cuMemAllocManaged(&first, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cudaMallocManaged((void **)&second, 2 * MIB, cudaMemAttachGlobal));
    expect(GATE_GAVE_UP, "with two managed ones");
    OK(cuMemFree(first));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(first));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&refused, 0, CU_MEM_ATTACH_GLOBAL));
    expect(GATE_GAVE_UP, "with one managed one");
    OK(cudaFree((void *)(uintptr_t)second));
    expect(plain, "after");
    return 0;
}
