/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: blocks that share memory with others by size and place keep what the driver promises of
 * each: its own range, size and buffer id at every address in it, nothing beyond its last byte,
 * unknown memory once freed, its bytes untouched by whatever its neighbours do, the native codes
 * inside captures. Usage: cut_blocks [LARGEST_MIB], 1 if not given.
 */
#include "victim.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 160, ROUNDS = 12 };

struct held {
    CUdeviceptr ptr;
    size_t bytes;
    uint32_t value;
    uint64_t id;
};

static struct held table[BLOCKS];
static uint64_t seed = 7;
static size_t largest = 1;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(seed >> 33) % n;
}

static uint64_t buffer_id(CUdeviceptr ptr)
{
    unsigned long long id = 0;
    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    return id;
}

static void check_range(const struct held *held, size_t offset)
{
    CUdeviceptr base = 0;
    CUdeviceptr start = 0;
    size_t size = 0;
    size_t range = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *answers[] = {&start, &range};
    OK(cuMemGetAddressRange(&base, &size, held->ptr + offset));
    CHECK(base == held->ptr && size == held->bytes, "at %zu of %zu: %zu bytes from %zd", offset,
          held->bytes, size, (ssize_t)(base - held->ptr));
    OK(cuPointerGetAttributes(2, attributes, answers, held->ptr + offset));
    CHECK(start == held->ptr && range == held->bytes, "attributes at %zu of %zu", offset,
          held->bytes);
    CHECK(buffer_id(held->ptr + offset) == held->id, "the id of a block changed");
}

static void check_all(CUstream stream)
{
    for (int i = 0; i < BLOCKS; i++) {
        const struct held *held = &table[i];
        if (held->ptr == 0) {
            continue;
        }
        check_range(held, 0);
        check_range(held, held->bytes / 2);
        check_range(held, held->bytes - 1);
        CHECK(count_wrong(stream, held->ptr, held->bytes / 4, held->value) == 0,
              "the bytes of a block changed");
        for (int k = 0; k < i; k++) {
            CHECK(table[k].ptr == 0 || table[k].id != held->id, "two blocks have one id");
        }
    }
}

static void take(struct held *held, CUstream stream)
{
    static uint32_t value = 0x1000;
    size_t mib = 1 + below(largest);
    held->bytes = below(3) == 0 ? 1 + below(mib * MIB) : 4 * (1 + below(16 * KIB));
    held->value = ++value;
    OK(cuMemAlloc(&held->ptr, held->bytes));
    CHECK(held->ptr % 512 == 0);
    CHECK(held->bytes < 2 * MIB || held->ptr % (2 * MIB) == 0, "%zu bytes at %llx", held->bytes,
          held->ptr);
    held->id = buffer_id(held->ptr);
    launch_fill(stream, held->ptr, held->bytes / 4, held->value);
}

static void give(struct held *held)
{
    CUdeviceptr base;
    size_t size;
    OK(cuMemFree(held->ptr));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, held->ptr));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(held->ptr));
    held->ptr = 0;
}

/* Behind the last byte that was asked for there is nothing, whatever lies in the same memory. */
static void nothing_behind(void)
{
    CUdeviceptr ptr;
    CUdeviceptr base;
    size_t size;
    OK(cuMemAlloc(&ptr, 1000));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, ptr + 1000));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr + 512));
    OK(cuMemFree(ptr));
}

static void captures(CUstream stream)
{
    const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_GLOBAL};
    for (int i = 0; i < 3; i++) {
        CUdeviceptr ptr;
        CUgraph graph = NULL;
        bool refused = modes[i] != CU_STREAM_CAPTURE_MODE_RELAXED;
        OK(cuMemAlloc(&ptr, 8192));
        OK(cuStreamBeginCapture(stream, modes[i]));
        EXPECT(refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS, cuMemFree(ptr));
        EXPECT(refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS,
               cuStreamEndCapture(stream, &graph));
        if (refused) {
            OK(cuMemFree(ptr)); /* it was still the program's */
        }
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
        if (graph) {
            OK(cuGraphDestroy(graph));
        }
    }
}

/* As long as a stream-ordered free of a whole block has not run, a real driver accepts another. */
static void free_has_run(CUstream stream)
{
    if (!simulated()) {
        OK(cuStreamSynchronize(stream));
    }
}

/* Frees in stream order while something captures: on another stream as ever, on the capturing one
 * whatever the driver says of memory that no graph allocated; the block's neighbours stay. */
static void stream_frees_beside_captures(CUstream stream)
{
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    const size_t sizes[] = {8 * KIB, 3 * MIB};
    for (int i = 0; i < 2; i++) {
        CUdeviceptr ptr;
        CUdeviceptr on_it;
        CUgraph graph = NULL;
        OK(cuMemAlloc(&ptr, sizes[i]));
        OK(cuMemAlloc(&on_it, sizes[i]));
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuMemFreeAsync(ptr, other));
        free_has_run(other);
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(ptr, other));
        CUresult rc = cuMemFreeAsync(on_it, stream);
        CHECK(rc == CUDA_ERROR_INVALID_VALUE || !simulated(), "%d", rc);
        cuStreamEndCapture(stream, &graph);
        if (graph) {
            OK(cuGraphDestroy(graph));
        }
        if (rc != CUDA_SUCCESS) {
            OK(cuMemFree(on_it)); /* it was still the program's */
        }
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(on_it));
    }
    check_all(stream);
    OK(cuStreamDestroy(other));
}

/* Without segments memory that was exported goes back to the driver, which may use it again. */
static bool cuts(void)
{
    const char *conf = getenv("ZONE_ALLOC_CONF");
    return under_zone() && !(conf && (strstr(conf, "off") || strstr(conf, "max_cached")));
}

/* What was exported is never cut, merged or handed out again while its memory lives. */
static void exported(CUstream stream, bool in_stream)
{
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, 64 * KIB));
    OK(cuIpcGetMemHandle(&handle, ptr));
    OK(in_stream ? cuMemFreeAsync(ptr, stream) : cuMemFree(ptr));
    free_has_run(stream);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));
    CUdeviceptr others[64];
    for (int i = 0; i < 64; i++) {
        OK(cuMemAlloc(&others[i], 64 * KIB));
        CHECK(!cuts() || others[i] != ptr, "exported memory was handed out again");
    }
    for (int i = 0; i < 64; i++) {
        OK(cuMemFree(others[i]));
    }
    OK(cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            if (table[i].ptr != 0 && below(2)) {
                give(&table[i]);
            }
        }
        for (int i = 0; i < BLOCKS; i++) {
            if (table[i].ptr == 0 && below(4)) {
                take(&table[i], stream);
            }
        }
        check_all(stream);
    }
    nothing_behind();
    captures(stream);
    stream_frees_beside_captures(stream);
    exported(stream, false);
    exported(stream, true);
    check_all(stream);
    for (int i = 0; i < BLOCKS; i++) {
        if (table[i].ptr != 0) {
            give(&table[i]);
        }
    }
    OK(cuStreamDestroy(stream));
    return 0;
}
