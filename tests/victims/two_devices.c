/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: two devices. Memory belongs to the one it was allocated on, whichever is current when it
 * is freed; the other's work does not hold a free up, its own does; free memory is counted for
 * each.
 */
#include "tools.h"

#define LIMIT_MS 30.0

static cudaStream_t streams[2];

static void *allocate(int device, size_t bytes)
{
    void *ptr;
    OK(cudaSetDevice(device));
    OK(cudaMalloc(&ptr, bytes));
    return ptr;
}

static int device_of(const void *ptr)
{
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, ptr));
    return attributes.device;
}

/* The same sizes on both in turn: a block never changes its device. */
static void owners(void)
{
    for (int i = 0; i < 40; i++) {
        size_t bytes = i % 4 < 2 ? 4 * KIB : 3 * MIB;
        void *ptr = allocate(i % 2, bytes);
        unsigned char byte = 0;
        CHECK(device_of(ptr) == i % 2, "%d", device_of(ptr));
        OK(cudaMemsetAsync(ptr, i, bytes, streams[i % 2]));
        OK(cudaMemcpyAsync(&byte, (char *)ptr + bytes - 1, 1, cudaMemcpyDeviceToHost,
                           streams[i % 2]));
        OK(cudaStreamSynchronize(streams[i % 2]));
        CHECK(byte == i);
        OK(cudaSetDevice(i % 3 == 0)); /* not always the owner */
        OK(cudaFree(ptr));
    }
}

/* Freed with the other device current while the owner still writes it. */
static void owner_is_busy(size_t bytes)
{
    void *ptr = allocate(0, bytes);
    struct gate gate = gate_close(streams[0], LIMIT_MS);
    OK(cudaMemsetAsync(ptr, 1, bytes, streams[0]));
    OK(cudaSetDevice(1));
    OK(cudaFree(ptr));
    char *other = allocate(0, bytes);
    cudaStream_t reader;
    OK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    OK(cudaMemsetAsync(other, 2, bytes, reader));
    gate_open_on(reader, gate);
    OK(cudaDeviceSynchronize());
    unsigned char byte = 0;
    OK(cudaMemcpy(&byte, other + bytes - 1, 1, cudaMemcpyDeviceToHost));
    CHECK(byte == 2, "%u: the first owner's work came later", byte);
    OK(cudaFree(other));
    OK(cudaStreamDestroy(reader));
}

static void other_is_busy(void)
{
    void *ptr = allocate(0, 4 * MIB);
    OK(cudaSetDevice(1));
    struct gate gate = gate_close(streams[1], 500);
    OK(cudaFree(ptr));
    CHECK(gate_outcome(gate) == GATE_CLOSED, "a free waited for the other device");
    gate_open(gate);
    OK(cudaDeviceSynchronize());
}

static void counted_for_each(void)
{
    size_t before[2];
    size_t now[2];
    for (int device = 0; device < 2; device++) {
        OK(cudaSetDevice(device));
        OK(cudaMemGetInfo(&before[device], NULL));
    }
    void *ptr = allocate(1, 64 * MIB);
    for (int device = 0; device < 2; device++) {
        OK(cudaSetDevice(device));
        OK(cudaMemGetInfo(&now[device], NULL));
    }
    CHECK(now[0] + 8 * MIB >= before[0] && before[1] - now[1] >= 64 * MIB, "%zu %zu, then %zu %zu",
          before[0], before[1], now[0], now[1]);
    OK(cudaFree(ptr));
}

int main(void)
{
    int count = 0;
    victim_start();
    OK(cudaGetDeviceCount(&count));
    if (count < 2) {
        victim_skip("one device");
    }
    for (int device = 1; device >= 0; device--) {
        OK(cudaSetDevice(device));
        victim_load_kernels();
        OK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    for (int round = 0; round < 3; round++) {
        owners();
        owner_is_busy(4 * KIB);
        owner_is_busy(2 * MIB);
        other_is_busy();
        counted_for_each();
    }
    return 0;
}
