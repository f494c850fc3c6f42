/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: threads allocate small blocks, work on them in their own streams and free each other's,
 * while the work still runs. Each checks on the device that nobody else wrote its block.
 */
#include "tools.h"

enum { THREADS = 4, ROUNDS = 250, SLOTS = 8 };

static CUdeviceptr slots[SLOTS]; /* blocks for whoever comes next to free; atomic */
static uint32_t *bad;

static void work(void *data)
{
    const size_t sizes[] = {512, 1024, 4096, 512};
    uint32_t self = (uint32_t)(uintptr_t)data;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t value = self << 16 | round;
        size_t bytes = sizes[(self + round) % 4];
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, bytes));
        launch_fill(stream, ptr, bytes / 4, value);
        if (round % 8 == 0) {
            launch_spin(stream, 0.2);
        }
        launch_check(stream, ptr, bytes / 4, value, (CUdeviceptr)(uintptr_t)bad);
        CUdeviceptr other =
            __atomic_exchange_n(&slots[(self + round) % SLOTS], ptr, __ATOMIC_SEQ_CST);
        OK(cuMemFree(other));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

int main(void)
{
    struct worker workers[THREADS];
    victim_start();
    bad = host_words(1);
    for (uintptr_t i = 0; i < THREADS; i++) {
        worker_start(&workers[i], work, (void *)(i + 1));
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    for (int i = 0; i < SLOTS; i++) {
        OK(cuMemFree(slots[i]));
    }
    OK(cuCtxSynchronize());
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
    return 0;
}
