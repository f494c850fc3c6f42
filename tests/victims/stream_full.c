/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: stream-ordered memory on a full device. A stream gets what another one freed at once and
 * waits for it on the device, if the default pool's attribute allows that, and never else; a free
 * and an allocation never wait on the host, and tie no kernel to one that waits for it. Usage:
 * stream_full dependent | independent | waiting.
 */
#include "tools.h"

#include <string.h>

#define LIMIT_MS 600.0

static CUstream a, b, c;
static size_t large;

static CUresult get(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(ret_ptr, bytes, stream);
}

static void allow(int allowed)
{
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed));
}

/* More than half of what is free, freed behind held work. */
static struct gate fill_and_hold(CUdeviceptr *ret_ptr)
{
    OK(get(ret_ptr, large, a));
    struct gate gate = gate_close(a, LIMIT_MS);
    launch_fill(a, *ret_ptr, MIB / 4, 1);
    OK(cuMemFreeAsync(*ret_ptr, a));
    CHECK(gate_outcome(gate) == GATE_CLOSED, "the free waited");
    return gate;
}

static void dependent(uint32_t *bad)
{
    CUdeviceptr first;
    CUdeviceptr second = 0;
    allow(1);
    struct gate gate = fill_and_hold(&first);
    CUresult rc = get(&second, large, b);
    CHECK(gate_outcome(gate) == GATE_CLOSED, "the allocation waited");
    if (rc == CUDA_ERROR_OUT_OF_MEMORY && !pooled()) {
        gate_open(gate);
        return; /* a driver may refuse */
    }
    OK(rc);
    launch_fill(b, second, MIB / 4, 2);
    launch_check(b, second, MIB / 4, 2, (CUdeviceptr)(uintptr_t)bad);
    gate_open(gate);
    OK(cuStreamSynchronize(b));
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
    OK(cuMemFreeAsync(second, b));
}

/* The same stream has it in any case, also in another size. */
static void own(uint32_t *bad)
{
    CUdeviceptr first;
    CUdeviceptr second;
    struct gate gate = fill_and_hold(&first);
    CUresult rc = get(&second, large - 4 * MIB, a);
    if (rc == CUDA_ERROR_OUT_OF_MEMORY && !pooled()) {
        gate_open(gate);
        return;
    }
    OK(rc);
    CHECK(gate_outcome(gate) == GATE_CLOSED, "the allocation waited");
    launch_fill(a, second, MIB / 4, 3);
    launch_check(a, second, MIB / 4, 3, (CUdeviceptr)(uintptr_t)bad);
    gate_open(gate);
    OK(cuMemFreeAsync(second, a));
    OK(cuStreamSynchronize(a));
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
}

static void independent(void)
{
    CUdeviceptr first;
    CUdeviceptr second;
    allow(0);
    struct gate gate = fill_and_hold(&first);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, get(&second, large, b));
    CHECK(gate_outcome(gate) == GATE_CLOSED, "the allocation waited");
    gate_open(gate);
    OK(cuStreamSynchronize(a));
    OK(get(&second, large, b));
    OK(cuMemFreeAsync(second, b));
    allow(1);
}

/* A waits for B's later kernel; what C freed is pending when B allocates. */
static void waiting(size_t bytes)
{
    CUdeviceptr freed;
    CUdeviceptr ptr;
    OK(get(&freed, bytes, c));
    launch_fill(c, freed, 128, 1);
    launch_spin(c, 3);
    OK(cuMemFreeAsync(freed, c));
    struct gate gate = gate_close(a, LIMIT_MS);
    OK(get(&ptr, bytes, b));
    launch_fill(b, ptr, 128, 2);
    gate_open_on(b, gate);
    OK(cuMemFreeAsync(ptr, b));
    OK(cuCtxSynchronize());
    CHECK(gate_outcome(gate) == GATE_OPENED, "tied at %zu bytes", bytes);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "waiting";
    victim_start();
    uint32_t *bad = host_words(1);
    a = new_stream(CU_STREAM_NON_BLOCKING);
    b = new_stream(CU_STREAM_NON_BLOCKING);
    c = new_stream(CU_STREAM_NON_BLOCKING);
    gate_open_on(b, gate_close(a, 5)); /* loads the kernels */
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&large, NULL));
    large = large / 2 + 16 * MIB;
    large -= large % (2 * MIB);
    if (strcmp(way, "waiting") == 0) {
        for (unsigned i = 0; i < 3; i++) {
            waiting(4 * KIB);
            waiting(2 * MIB);
            waiting(32 * MIB);
        }
    } else if (strcmp(way, "dependent") == 0) {
        dependent(bad);
        own(bad);
    } else {
        independent();
    }
    OK(cuCtxSynchronize());
    return 0;
}
