/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that splinters memory. It fills the device with pieces, keeps one of eight, and
 * asks for blocks as large as eight. Natively there is room, since no piece is part of another's
 * allocation. Where pieces are cut from large segments one is left in each, and none can go back.
 */
#include "tools.h"

#define PIECE (64 * MIB)
#define ROOM  (4096 * MIB)

enum { EIGHT = 8, PIECES = ROOM / PIECE };

int main(void)
{
    static CUdeviceptr pieces[PIECES];
    CUdeviceptr large[PIECES / EIGHT];
    size_t count = 0;
    size_t kept = 0;
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    leave_free(ROOM);
    /* Large blocks first, so that there are segments to cut. */
    while (count < PIECES / EIGHT - 1) {
        OK(cuMemAlloc(&large[count], EIGHT * PIECE));
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        OK(cuMemFree(large[i]));
    }
    OK(cuCtxSynchronize());
    for (size_t i = 0; i < count * EIGHT; i++) {
        OK(cuMemAlloc(&pieces[i], PIECE));
        launch_fill(stream, pieces[i], 16, (uint32_t)i);
    }
    OK(cuCtxSynchronize());
    for (size_t i = 0; i < count * EIGHT; i++) {
        if (i % EIGHT != 0) {
            OK(cuMemFree(pieces[i]));
        } else {
            kept += PIECE;
        }
    }
    for (size_t i = 0; kept + EIGHT * PIECE <= count * EIGHT * PIECE; i++) {
        OK(cuMemAlloc(&large[i], EIGHT * PIECE));
        kept += EIGHT * PIECE;
    }
    for (size_t i = 0; i < count * EIGHT; i += EIGHT) {
        CHECK(count_wrong(stream, pieces[i], 16, (uint32_t)i) == 0, "piece %zu", i);
    }
    return 0;
}
