/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory that no pool handed out: pitched, managed, stream-ordered, mapped by the program
 * itself, allocated past every hook. All the ways to free it reach the driver, which gets all of it
 * back; what is no allocation is refused as natively.
 */
#include "tools.h"

#include <string.h>

enum { ROUNDS = 20, WORDS = 1024 };

static CUstream stream;

/* The memory works to its end. */
static void use(CUdeviceptr ptr, size_t bytes)
{
    CUdeviceptr last = ptr + bytes - WORDS * 4;
    launch_fill(stream, last, WORDS, 7);
    CHECK(count_wrong(stream, last, WORDS, 7) == 0, "%zu bytes", bytes);
}

/* Between blocks of the pool's, of the same sizes. */
static void pooled_neighbour(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
    OK(cuMemFree(ptr));
}

static void pitched(void)
{
    CUdeviceptr ptr;
    size_t pitch;
    OK(cuMemAllocPitch(&ptr, &pitch, 4000, 600, 4));
    use(ptr, pitch * 600);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr + 512));
    OK(cuMemFree(ptr));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
}

static void managed(void)
{
    CUdeviceptr ptr;
    int is_managed = 0;
    OK(cuMemAllocManaged(&ptr, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
    CHECK(is_managed);
    use(ptr, 2 * MIB);
    OK(cuMemFree(ptr));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
}

static void stream_ordered(void)
{
    CUdeviceptr ptr;
    for (int i = 0; i < 2; i++) {
        OK(cuMemAllocAsync(&ptr, 2 * MIB, stream));
        use(ptr, 2 * MIB);
        OK(i ? cuMemFree(ptr) : cuMemFreeAsync(ptr, stream));
        OK(cuStreamSynchronize(stream));
    }
}

static void mapped_by_the_program(void)
{
    CUdeviceptr at;
    CUdeviceptr base;
    size_t size;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
    use(at, 4 * MIB);
    OK(cuMemGetAddressRange(&base, &size, at + MIB));
    CHECK(base == at && size == 4 * MIB);
    CHECK(cuMemFree(at) != CUDA_SUCCESS);
    use(at, 4 * MIB);
    OK(cuMemUnmap(at, 4 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(at, 8 * MIB));
}

/* A library that found the driver's functions in a way of its own hands its memory to the program,
 * and takes the program's. */
static void past_every_hook(void)
{
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*release)(CUdeviceptr);
    void *alloc_found = driver_function("cuMemAlloc_v2");
    void *release_found = driver_function("cuMemFree_v2");
    CUdeviceptr ptr;
    CHECK(alloc_found && release_found);
    memcpy(&alloc, &alloc_found, sizeof alloc);
    memcpy(&release, &release_found, sizeof release);
    for (int i = 0; i < 2; i++) {
        size_t bytes = i ? 4 * KIB : 2 * MIB;
        OK(alloc(&ptr, bytes));
        use(ptr, bytes);
        OK(cuMemFree(ptr));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
        OK(alloc(&ptr, bytes));
        OK(cuMemFreeAsync(ptr, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemAlloc(&ptr, bytes));
        /* A part of a segment is no allocation to the driver: refused, and still the program's. */
        bool cut = under_zone() && bytes < MIB;
        EXPECT(cut ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, release(ptr));
        if (cut) {
            OK(cuMemFree(ptr));
        }
        /* The driver may give the address away again, past us or not. */
        OK(cuMemAlloc(&ptr, bytes));
        use(ptr, bytes);
        OK(cuMemFree(ptr));
    }
}

static void (*const kinds[])(void) = {
    pitched, managed, stream_ordered, mapped_by_the_program, past_every_hook,
};

int main(void)
{
    size_t before = 0;
    victim_start();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            pooled_neighbour(2 * MIB);
            kinds[i]();
            pooled_neighbour(4 * KIB);
        }
        OK(cuCtxSynchronize());
        if (round == 1) {
            before = driver_bytes();
        }
    }
    CHECK(driver_bytes() <= before, "%zu bytes taken, then %zu", before, driver_bytes());
    return 0;
}
