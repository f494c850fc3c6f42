/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: arrays, and copies of two and three dimensions between them, pitched memory and the host.
 * A block that such a copy still reads is freed: the copy has to bring the bytes that were there.
 */
#include "tools.h"

#include <string.h>

#define LIMIT_MS 30.0

enum { WIDTH = 96, HEIGHT = 40, DEPTH = 3, WORDS = WIDTH * HEIGHT * DEPTH };

static uint32_t words[WORDS];
static uint32_t back[WORDS];

static void number_words(void)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i * 2654435761u;
    }
    memset(back, 0, sizeof back);
}

static CUarray new_array(size_t height, size_t depth)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {WIDTH, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
    OK(cuArray3DCreate(&array, &descriptor));
    return array;
}

/* Host, array of three dimensions, device memory with a pitch, host. */
static void three_dimensions(void)
{
    CUarray array = new_array(HEIGHT, DEPTH);
    CUdeviceptr ptr;
    size_t pitch;
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = words,
                          .srcPitch = WIDTH * 4,
                          .srcHeight = HEIGHT,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT,
                          .Depth = DEPTH};
    number_words();
    OK(cuMemAllocPitch(&ptr, &pitch, WIDTH * 4, HEIGHT * DEPTH, 4));
    OK(cuMemcpy3D(&copy));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = ptr;
    copy.dstPitch = pitch;
    copy.dstHeight = HEIGHT;
    OK(cuMemcpy3D(&copy));
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = ptr;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back;
    copy.dstPitch = WIDTH * 4;
    OK(cuMemcpy3D(&copy));
    CHECK(memcmp(words, back, sizeof words) == 0);
    OK(cuMemFree(ptr));
    OK(cuArrayDestroy(array));
}

/* A box inside an array, and what is outside of it. */
static void part_of_an_array(void)
{
    CUarray array = new_array(HEIGHT, 0);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = words,
                          .srcPitch = WIDTH * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT};
    number_words();
    OK(cuMemcpy2D(&copy));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.srcXInBytes = 16;
    copy.srcY = 5;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back;
    copy.dstPitch = 32;
    copy.WidthInBytes = 32;
    copy.Height = 10;
    OK(cuMemcpy2D(&copy));
    for (size_t row = 0; row < 10; row++) {
        CHECK(memcmp(back + row * 8, words + (row + 5) * WIDTH + 4, 32) == 0, "row %zu", row);
    }
    copy.srcY = HEIGHT - 5;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
    OK(cuArrayDestroy(array));
}

static void one_dimension(void)
{
    CUarray array = new_array(0, 0);
    CUdeviceptr ptr;
    number_words();
    OK(cuMemAlloc(&ptr, WIDTH * 4));
    OK(cuMemcpyHtoA(array, 0, words, WIDTH * 4));
    OK(cuMemcpyAtoD(ptr, array, 0, WIDTH * 4));
    OK(cuMemcpyDtoH(back, ptr, WIDTH * 4));
    CHECK(memcmp(words, back, WIDTH * 4) == 0);
    OK(cuMemsetD32(ptr, 11, WIDTH));
    OK(cuMemcpyDtoA(array, 16, ptr, 64));
    OK(cuMemcpyAtoH(back, array, 0, WIDTH * 4));
    CHECK(back[3] == words[3] && back[4] == 11 && back[19] == 11 && back[20] == words[20]);
    OK(cuMemFree(ptr));
    OK(cuArrayDestroy(array));
}

/* Freed while a copy to an array is queued; the next owner writes it at once. */
static void freed_source(size_t bytes)
{
    CUstream late = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream next = new_stream(CU_STREAM_NON_BLOCKING);
    CUarray array = new_array(HEIGHT, 0);
    CUdeviceptr ptr;
    CUdeviceptr other;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcPitch = WIDTH * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT};
    OK(cuMemAlloc(&ptr, bytes));
    launch_fill(late, ptr, WIDTH * HEIGHT, 5);
    struct gate gate = gate_close(late, LIMIT_MS);
    copy.srcDevice = ptr;
    OK(cuMemcpy2DAsync(&copy, late));
    OK(cuMemFree(ptr));
    OK(cuMemAlloc(&other, bytes));
    launch_fill(next, other, WIDTH * HEIGHT, 6);
    OK(cuStreamSynchronize(next));
    gate_open(gate);
    OK(cuStreamSynchronize(late));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back;
    copy.dstPitch = WIDTH * 4;
    OK(cuMemcpy2D(&copy));
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++) {
        CHECK(back[i] == 5, "word %zu is %u", i, back[i]);
    }
    OK(cuMemFree(other));
    OK(cuArrayDestroy(array));
    OK(cuStreamDestroy(late));
    OK(cuStreamDestroy(next));
}

int main(void)
{
    victim_start();
    three_dimensions();
    part_of_an_array();
    one_dimension();
    for (int i = 0; i < 3; i++) {
        freed_source(64 * KIB);
        freed_source(4 * MIB);
    }
    return 0;
}
