/* SPDX-License-Identifier: Apache-2.0
 *
 * Two books that the program keeps about memory. How much of the device it holds at most: an
 * allocation that fails although it fits is an error, since cached memory must be given back first.
 * And which addresses it owns: nobody else may be given one of them. Both are lock-free; they are
 * changed before memory is given back and after it was received.
 */
#pragma once

#include "stress.h"

/* What an allocation of this kind takes of the device, in chunks of 2 MiB, at most. */
size_t claim_chunks(enum kind kind, size_t bytes);

/* Sets how many chunks the program may hold and still expect success. */
void claim_init(size_t limit);
size_t claim_limit(void);
size_t claim_held(void);

struct claim {
    size_t chunks;
    uint64_t disturbed;
    bool excused;
};

/* Before an allocation, and after memory has really come back. */
struct claim claim_take(size_t chunks);
void claim_give(size_t chunks);
/* Something that lets allocations fail begins (and ends): a capture, an injected failure. */
void claim_disturb(int by);
/* Whether the allocation of this claim may fail for lack of memory. */
bool claim_may_fail(const struct claim *claim);

/* Own [ptr, ptr + bytes): fails the run if somebody does already. */
void claim_own(CUdeviceptr ptr, size_t bytes);
void claim_disown(CUdeviceptr ptr, size_t bytes);
