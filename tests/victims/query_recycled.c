/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what a program can ask about memory, asked about a block that had another owner with
 * another size before, at its start, in its middle, at its last byte, just past it, and after its
 * free.
 */
#include "tools.h"

#define LARGE (3 * MIB)
#define LESS  (LARGE - 300) /* of the same class */
#define SMALL ((size_t)4000)
#define FEWER ((size_t)3600)

static unsigned long long buffer_id(CUdeviceptr ptr)
{
    unsigned long long id = 0;
    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    return id;
}

static void expect_range(CUdeviceptr at, CUdeviceptr ptr, size_t bytes)
{
    CUdeviceptr base = 0;
    CUdeviceptr start = 0;
    size_t size = 0;
    size_t range = 0;
    unsigned type = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *data[] = {&range, &start, &type};
    OK(cuMemGetAddressRange(&base, &size, at));
    CHECK(base == ptr && size == bytes, "%zu bytes from %llx", size, (unsigned long long)base);
    OK(cuMemGetAddressRange(NULL, &size, at));
    OK(cuMemGetAddressRange(&base, NULL, at));
    OK(cuPointerGetAttributes(3, attributes, data, at));
    CHECK(range == bytes && start == ptr && type == CU_MEMORYTYPE_DEVICE, "%zu bytes", range);
    range = 0;
    OK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    CHECK(range == bytes && start == ptr, "%zu bytes", range);
}

static void expect_nothing(CUdeviceptr at)
{
    struct cudaPointerAttributes runtime;
    CUdeviceptr base;
    size_t size = 77;
    unsigned type = 77;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[] = {&type, &size};
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, at));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    OK(cuPointerGetAttributes(2, attributes, data, at));
    CHECK(type == 0 && size == 0, "type %u, %zu bytes", type, size);
    OK(cudaPointerGetAttributes(&runtime, (void *)(uintptr_t)at));
    CHECK(runtime.type == cudaMemoryTypeUnregistered, "type %d", (int)runtime.type);
}

static void owner(size_t bytes, unsigned long long *ids)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
    expect_range(ptr, ptr, bytes);
    expect_range(ptr + bytes / 2, ptr, bytes);
    expect_range(ptr + bytes - 1, ptr, bytes);
    expect_nothing(ptr + bytes);
    unsigned long long id = buffer_id(ptr);
    CHECK(id == buffer_id(ptr + bytes - 1));
    for (int i = 0; i < 2; i++) {
        CHECK(ids[i] != id, "buffer id %llu again", id);
    }
    ids[1] = ids[0];
    ids[0] = id;
    OK(cuMemFree(ptr));
    OK(cuCtxSynchronize());
    expect_nothing(ptr);
    expect_nothing(ptr + bytes / 2);
}

int main(void)
{
    unsigned long long ids[2] = {0, 0};
    victim_start();
    uint64_t allocs = driver_allocs();
    for (int i = 0; i < 3; i++) {
        owner(LARGE, ids);
        owner(LESS, ids);
    }
    CHECK(driver_allocs() <= allocs + 1 || !pooled(), "the blocks were not used again");
    CUdeviceptr keeps_the_chunk;
    OK(cuMemAlloc(&keeps_the_chunk, 512));
    for (int i = 0; i < 20; i++) {
        owner(i % 2 ? SMALL : FEWER, ids);
    }
    OK(cuMemFree(keeps_the_chunk));
    return 0;
}
