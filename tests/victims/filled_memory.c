/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what a program gets under zero_fill is zero, under junk_fill 0xFF, whatever its size and
 * whoever had it before: blocks that kernels still write when they are freed, parts of segments,
 * memory given during a capture. A fill that is too early or too late shows as a wrong byte, in new
 * memory or in memory that somebody holds.
 */
#include "tools.h"

#include <stdlib.h>
#include <string.h>

enum { HELD = 24, ROUNDS = 10 };

static const size_t sizes[] = {1,         300,           4 * KIB,          100 * KIB,
                               700 * KIB, MIB + 4 * KIB, 3 * MIB / 2 + 20, 4 * MIB};

struct held {
    CUdeviceptr ptr;
    size_t bytes;
    uint32_t value;
};

static struct held table[HELD];
static CUstream streams[3];
static unsigned char *bytes_seen;
static unsigned char expected;

static void check_new(const struct held *held, const char *when)
{
    size_t wrong = 0;
    if (!pooled()) {
        return; /* a driver keeps the old bytes of small memory */
    }
    OK(cuMemcpyDtoH(bytes_seen, held->ptr, held->bytes));
    for (size_t i = 0; i < held->bytes; i++) {
        wrong += bytes_seen[i] != expected;
    }
    CHECK(wrong == 0, "%s: %zu of %zu bytes are not %02x", when, wrong, held->bytes, expected);
}

static void check_kept(const struct held *held)
{
    if (held->value != 0) {
        uint32_t wrong = count_wrong(streams[0], held->ptr, held->bytes / 4, held->value);
        CHECK(wrong == 0, "%u words of a live block changed", wrong);
    }
}

static struct held allocate(size_t bytes, uint32_t value)
{
    struct held held = {.bytes = bytes, .value = bytes >= 4 ? value : 0};
    OK(cuMemAlloc(&held.ptr, bytes));
    check_new(&held, "new");
    return held;
}

static void round_trip(unsigned number)
{
    for (unsigned i = 0; i < HELD; i++) {
        uint32_t value = number * HELD + i + 1;
        CUstream stream = streams[value % 3];
        table[i] = allocate(sizes[(i * 5 + number) % (sizeof sizes / sizeof sizes[0])], value);
        if (table[i].value != 0) {
            launch_fill(stream, table[i].ptr, table[i].bytes / 4, value);
        }
    }
    OK(cuCtxSynchronize());
    /* Every other one goes, while kernels write it on and on. */
    for (unsigned i = 0; i < HELD; i += 2) {
        CUstream stream = streams[i / 2 % 3];
        launch_spin(stream, 1);
        launch_fill(stream, table[i].ptr, table[i].bytes / 4, 0x11111111);
        OK(cuMemFree(table[i].ptr));
        struct held other = allocate(table[i].bytes, 0);
        OK(cuMemFree(other.ptr));
    }
    OK(cuCtxSynchronize());
    for (unsigned i = 1; i < HELD; i += 2) {
        check_kept(&table[i]);
        OK(cuMemFree(table[i].ptr));
    }
}

/* In a capture that allows it memory is zero as well; junk is not promised there. */
static void capturing(void)
{
    CUgraph graph;
    struct held held[2];
    struct held before = allocate(64 * KIB, 0);
    OK(cuMemFree(before.ptr));
    OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++) {
        held[i].bytes = i == 0 ? 64 * KIB : 4 * MIB;
        OK(cuMemAlloc(&held[i].ptr, held[i].bytes));
    }
    OK(cuMemFree(held[0].ptr));
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphDestroy(graph));
    if (expected == 0) {
        check_new(&held[1], "during a capture");
    }
    OK(cuMemFree(held[1].ptr));
}

int main(void)
{
    victim_start();
    expected = configured("junk_fill") && !configured("zero_fill") ? 0xff : 0;
    bytes_seen = malloc(4 * MIB);
    CHECK(bytes_seen);
    for (int i = 0; i < 3; i++) {
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    }
    uint64_t before = driver_allocs();
    for (unsigned number = 0; number < ROUNDS; number++) {
        round_trip(number);
        capturing();
    }
    /* What the pool is for. */
    uint64_t asked = driver_allocs() - before;
    CHECK(!pooled() || asked < ROUNDS * (HELD + HELD / 2) / 2, "%llu allocations of the driver",
          (unsigned long long)asked);
    return 0;
}
