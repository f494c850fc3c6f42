/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU for real threads, over struct zone_gpu: streams whose work is done later by threads of its
 * own, context events, memory with a capacity. Work looks at its block: when it is done the block
 * must still carry the mark that it had when the work was submitted. One context.
 */
#pragma once

#include "gpu.h"

struct thread_gpu_setup {
    unsigned streams;
    size_t capacity;
    unsigned
        refuse_every; /* so often a record or a question is refused, as beside a capture; 0: no */
};

/* Starts the device. */
void thread_gpu_start(const struct thread_gpu_setup *setup);

/* Lets all work end and stops the device. Returns how often work found its block changed. */
unsigned long thread_gpu_stop(void);

const struct zone_gpu *thread_gpu(void);

/* Marks the block as somebody's; what its content is from now on. */
void thread_gpu_mark(zone_addr_t addr, uint64_t mark);

/* The mark of the block now; THREAD_GPU_FILLED behind a fill. */
#define THREAD_GPU_FILLED UINT64_MAX
uint64_t thread_gpu_marked(zone_addr_t addr);

/* Submits work that uses the block. Any thread, any stream. */
void thread_gpu_launch(unsigned stream, zone_addr_t addr, uint64_t mark);

/* Bytes and allocations that the device has given out. */
size_t thread_gpu_used(void);
size_t thread_gpu_segments(void);
/* The most bytes that were given out at a time. */
size_t thread_gpu_peak(void);
