/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: eight threads allocate and free ten thousand times each without any work on the device,
 * as fast as they can. No address is ever live twice.
 */
#include "tools.h"

enum { THREADS = 8, ROUNDS = 10000, HELD = 4, TABLE_BITS = 16 };

/* The live addresses, by hash; atomic. */
static CUdeviceptr table[1 << TABLE_BITS];

static size_t slot_of(CUdeviceptr ptr)
{
    return (size_t)((ptr >> 9) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLE_BITS));
}

static void enter(CUdeviceptr ptr)
{
    for (size_t i = slot_of(ptr);; i = (i + 1) % (1 << TABLE_BITS)) {
        CUdeviceptr there = 0;
        if (__atomic_compare_exchange_n(&table[i], &there, ptr, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            return;
        }
        CHECK(there != ptr, "%llx is live twice", (unsigned long long)ptr);
    }
}

/* The slots that a search of this address may have passed stay taken by others, so the address is
 * replaced by a mark that ends no search; a later round of enter() does not use it again. */
static void leave(CUdeviceptr ptr)
{
    size_t i = slot_of(ptr);
    while (__atomic_load_n(&table[i], __ATOMIC_SEQ_CST) != ptr) {
        i = (i + 1) % (1 << TABLE_BITS);
    }
    __atomic_store_n(&table[i], 0, __ATOMIC_SEQ_CST);
}

static void churn(void *data)
{
    const size_t sizes[] = {512, 512, 4 * KIB, 64 * KIB, 512, 4 * KIB, 512, MIB};
    uint32_t state = (uint32_t)(uintptr_t)data * 2654435761u;
    CUdeviceptr held[HELD] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1664525u + 1013904223u;
        CUdeviceptr *slot = &held[i % HELD];
        if (*slot) {
            leave(*slot);
            OK(cuMemFree(*slot));
        }
        OK(cuMemAlloc(slot, sizes[state >> 29]));
        CHECK(*slot && *slot % 512 == 0);
        enter(*slot);
    }
    for (int i = 0; i < HELD; i++) {
        leave(held[i]);
        OK(cuMemFree(held[i]));
    }
}

int main(void)
{
    struct worker workers[THREADS];
    victim_start();
    for (uintptr_t i = 0; i < THREADS; i++) {
        worker_start(&workers[i], churn, (void *)(i + 1));
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    return 0;
}
