/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: every size from 1 to 4097, fresh and reused: each address is a multiple of 512, the block
 * can be written to its last byte, and its neighbours keep theirs.
 */
#include "tools.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 4097, BATCH = 241 };

static unsigned char *host;

static void check_one(CUdeviceptr ptr, size_t bytes, unsigned char value)
{
    OK(cuMemcpyDtoH(host, ptr, bytes));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(host[i] == value, "%zu bytes: byte %zu is %u, not %u", bytes, i, host[i], value);
    }
}

/* Sizes first … first + BATCH - 1 live at once, each full of its own value. */
static void batch(size_t first)
{
    CUdeviceptr ptrs[BATCH];
    size_t count = SIZES - first + 1 < BATCH ? SIZES - first + 1 : BATCH;
    for (size_t i = 0; i < count; i++) {
        OK(cuMemAlloc(&ptrs[i], first + i));
        CHECK(ptrs[i] % 512 == 0, "%zu bytes at %llx", first + i, (unsigned long long)ptrs[i]);
        OK(cuMemsetD8Async(ptrs[i], (unsigned char)(first + i), first + i, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        check_one(ptrs[i], first + i, (unsigned char)(first + i));
    }
    for (size_t i = 0; i < count; i += 2) {
        OK(cuMemFree(ptrs[i]));
    }
    for (size_t i = 1; i < count; i += 2) {
        check_one(ptrs[i], first + i, (unsigned char)(first + i));
        OK(cuMemFree(ptrs[i]));
    }
}

int main(void)
{
    victim_start();
    host = malloc(SIZES);
    CHECK(host);
    for (size_t first = 1; first <= SIZES; first += BATCH) {
        batch(first);
    }
    free(host);
    return 0;
}
