/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of boxes of bytes, as copy.c queues it for calls of every shape.
 */
#pragma once

#include "sim.h"

struct sim_copy {
    void *dst;
    const void *src;
    size_t width, height, depth, dst_pitch, src_pitch, dst_slice, src_slice;
    bool dst_device, src_device; /* as the call named them; checked against the allocations */
    bool dst_array, src_array;
    bool async;
};

CUresult sim_copy_submit(const struct sim_copy *copy, CUstream stream);
