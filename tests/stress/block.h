/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and what a thread does with it. Uses of a block are ordered on the device by its event,
 * whatever stream they are on. Nothing here waits for the device unless it says so.
 */
#pragma once

#include "place.h"

/* One of the sizes that all threads use, so that what one frees another is given. */
size_t block_size_any(struct rng *rng);

/* NULL if the device has no room, which must be so. */
struct block *block_new(struct thread *thread, struct place *place, enum kind kind, size_t bytes);

/* Every byte gets a new tag, late or at once, by a kernel, a fill, a copy or a graph. */
void block_write(struct thread *thread, struct block *block);
/* Lets the device count words that are not as they should be; the answer is looked at later. */
void block_check(struct thread *thread, struct block *block);
/* Reads it and looks at once. Waits. */
void block_read(struct thread *thread, struct block *block);
void block_add(struct thread *thread, struct block *block);
/* dst gets the content of src. Both are in one place. */
void block_copy(struct thread *thread, struct block *dst, struct block *src);
/* The block's next use on the stream comes after its last one; then a use was submitted. */
void block_order(const struct block *block, CUstream stream);
void block_used(struct block *block, CUstream stream);
uint32_t block_tag(struct thread *thread);

/* Gives it back, in any way that is allowed, with the work on it still under way. */
void block_free(struct thread *thread, struct block *block);
/* By cuMemFree with the block's place current; returns the driver's code. */
CUresult block_free_plainly(struct block *block);
/* The same, which must succeed, and the record of it. */
void block_free_now(struct block *block);
/* Its context is ending: nothing is to be given back any more. The world is stopped. */
void block_forget(struct block *block);

/* check.c */
void check_start(struct thread *thread);
void check_queue(struct thread *thread, const struct block *block, CUstream stream);
/* Looks at answers that are there; all: waits for the others. */
void check_poll(struct thread *thread, bool all);
/* What the threads wait for in a place that has ended is not coming. */
void check_forget(struct thread *thread, const struct place *place);

/* Shares of the device that come back later. */
void leaving_add(struct thread *thread, struct place *place, CUstream stream, size_t chunks);
void leaving_poll(struct thread *thread);
void leaving_forget(struct thread *thread, const struct place *place);

/* Work that takes a while, on the device or on the host; or none. */
void delay(const struct place *place, CUstream stream, struct rng *rng);
