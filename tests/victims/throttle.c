/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that frees faster than the device works. The row bounds the memory that may
 * still be in use by running work: the free waits, memory stays small, and other threads go on
 * meanwhile.
 */
#include "tools.h"

#define BYTES (4 * MIB)

static CUstream side;

static void memory_stays_small(void)
{
    size_t most = driver_bytes();
    size_t before = most;
    for (int i = 0; i < 30; i++) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, BYTES));
        launch_spin(side, 1);
        launch_fill(side, ptr, 1024, 1);
        OK(cuMemFree(ptr));
        most = driver_bytes() > most ? driver_bytes() : most;
    }
    OK(cuCtxSynchronize());
    CHECK(most - before <= 2 * BYTES, "%zu bytes more", most - before);
}

struct others {
    struct gate gate;
    uint64_t waits;
};

static void go_on(void *data)
{
    const struct others *others = data;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    double end = now_us() + 10e3;
    while (driver_calls("cuEventSynchronize") == others->waits && now_us() < end) {
        sleep_ms(0.1); /* until the other thread sits in its free */
    }
    for (size_t bytes = 4 * KIB; bytes <= 8 * MIB; bytes *= 8) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, bytes));
        launch_fill(stream, ptr, bytes / 4, 9);
        OK(cuStreamSynchronize(stream));
    }
    gate_open(others->gate);
}

static void others_go_on(void)
{
    struct worker worker;
    struct others others;
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, BYTES));
    others.waits = driver_calls("cuEventSynchronize");
    others.gate = gate_close(side, 500);
    worker_start(&worker, go_on, &others);
    OK(cuMemFree(ptr));
    enum gate_outcome outcome = gate_outcome(others.gate);
    worker_join(&worker);
    CHECK(outcome != GATE_CLOSED, "the free did not wait");
    CHECK(outcome == GATE_OPENED || !pooled(), "the other thread was held up");
}

int main(void)
{
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    memory_stays_small();
    others_go_on();
    return 0;
}
