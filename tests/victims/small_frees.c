/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: small blocks, of whose frees a pool need not record each. Blocks of a few frees in a row
 * are handed to another stream while work on all of them is still held; later, when nothing runs,
 * they are to be had without the driver.
 */
#include "tools.h"

#define MINE     0xaaaaaaaau
#define THEIRS   0x55555555u
#define BYTES    (4 * KIB)
#define WORDS    (BYTES / 4)
#define LIMIT_MS 40.0

enum { FEW = 15, MANY = 64 };

static CUstream side, reader;

static void allocate(CUdeviceptr *blocks, int count)
{
    for (int i = 0; i < count; i++) {
        OK(cuMemAlloc(&blocks[i], BYTES));
    }
}

static void release(const CUdeviceptr *blocks, int count)
{
    for (int i = 0; i < count; i++) {
        OK(cuMemFree(blocks[i]));
    }
}

/* Returns whether the work was still held when all had been freed and allocated again. */
static bool held_blocks(int count)
{
    CUdeviceptr blocks[FEW];
    CUdeviceptr others[FEW];
    allocate(blocks, count);
    struct gate gate = gate_close(side, LIMIT_MS);
    for (int i = 0; i < count; i++) {
        launch_fill(side, blocks[i], WORDS, MINE);
    }
    release(blocks, count);
    allocate(others, count);
    for (int i = 0; i < count; i++) {
        launch_fill(reader, others[i], WORDS, THEIRS);
    }
    gate_open_on(reader, gate);
    OK(cuCtxSynchronize());
    for (int i = 0; i < count; i++) {
        uint32_t wrong = count_wrong(reader, others[i], WORDS, THEIRS);
        CHECK(wrong == 0, "block %d of %d: %u words", i, count, wrong);
    }
    release(others, count);
    return gate_outcome(gate) == GATE_OPENED;
}

static void recycled_when_idle(void)
{
    CUdeviceptr blocks[MANY];
    allocate(blocks, MANY);
    OK(cuCtxSynchronize());
    uint64_t records = driver_calls("cuCtxRecordEvent");
    uint64_t frees = driver_frees();
    release(blocks, MANY);
    CHECK(driver_frees() == frees, "the driver's free ran");
    records = driver_calls("cuCtxRecordEvent") - records;
    CHECK(records > 0 && records <= MANY / 8, "%llu records", (unsigned long long)records);
    uint64_t before = driver_allocs();
    allocate(blocks, MANY);
    uint64_t grown = driver_allocs() - before;
    /* All but those that were freed since the last record. */
    CHECK(grown < 16, "%llu of %d from the driver", (unsigned long long)grown, MANY);
    release(blocks, MANY);
}

int main(void)
{
    victim_start();
    side = new_stream(CU_STREAM_NON_BLOCKING);
    reader = new_stream(CU_STREAM_NON_BLOCKING);
    bool held = false;
    for (int count = 1; count <= FEW; count += 7) {
        held = held_blocks(count) || held;
    }
    CHECK(held || !frees_run_ahead(), "every free waited");
    if (frees_run_ahead() && simulated()) {
        recycled_when_idle();
    }
    return 0;
}
