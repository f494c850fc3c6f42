/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: four threads with streams of their own and mixed sizes, which together hold almost the
 * whole device and work on what they hold. Natively every allocation succeeds. The row makes the
 * device small.
 */
#include "tools.h"

#include <stdlib.h>

enum { THREADS = 4, LIVE = 6, ROUNDS = 240 };

static size_t share; /* bytes that one thread may hold */
static uint32_t *bad;

static size_t rounded(size_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static void work(void *data)
{
    uint32_t self = (uint32_t)(uintptr_t)data;
    unsigned seed = self;
    CUdeviceptr ptrs[LIVE] = {0};
    size_t sizes[LIVE] = {0};
    size_t held = 0;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        unsigned at = (unsigned)rand_r(&seed) % LIVE;
        OK(cuMemFree(ptrs[at]));
        held -= rounded(sizes[at]);
        ptrs[at] = 0;
        sizes[at] = 0;
        size_t bytes = MIB + (size_t)rand_r(&seed) % (share / 2);
        while (held + rounded(bytes) > share) {
            bytes /= 2;
        }
        if (bytes < MIB) {
            continue;
        }
        uint32_t value = self << 16 | round;
        OK(cuMemAlloc(&ptrs[at], bytes));
        sizes[at] = bytes;
        held += rounded(bytes);
        launch_fill(stream, ptrs[at], 1024, value);
        launch_spin(stream, 0.2);
        launch_check(stream, ptrs[at], 1024, value, (CUdeviceptr)(uintptr_t)bad);
    }
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < LIVE; i++) {
        OK(cuMemFree(ptrs[i]));
    }
}

int main(void)
{
    struct worker workers[THREADS];
    size_t left;
    victim_start();
    bad = host_words(1);
    OK(cuMemGetInfo(&left, NULL));
    share = left / THREADS / 100 * 95;
    for (uintptr_t i = 0; i < THREADS; i++) {
        worker_start(&workers[i], work, (void *)(i + 1));
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
    return 0;
}
