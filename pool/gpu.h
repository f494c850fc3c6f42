/* SPDX-License-Identifier: Apache-2.0
 *
 * The device seam: all that the pool knows of a GPU. The shim fills the table with the driver
 * (shim/gpu.c), the tests with models. Every function that returns int returns the driver's own
 * code, 0 for success, so that the program sees native codes. All may be called from any thread,
 * with any context or none current, and with no lock of the pool held.
 */
#pragma once

#include "base.h"

enum {
    ZONE_GPU_OK = 0,
    ZONE_GPU_INVALID_VALUE = 1,
    ZONE_GPU_OUT_OF_MEMORY = 2,
    ZONE_GPU_NOT_READY = 600,
    /* Not a driver code: the call was not made because a stream capture is under way, which it
     * would have destroyed. */
    ZONE_GPU_REFUSED = -1,
};

struct zone_gpu {
    /* Allocates device memory as the driver does, in the current context of the calling thread,
     * which the caller knows to be the pool's. May take milliseconds, never waits for kernels. */
    int (*alloc)(zone_addr_t *ret_addr, size_t bytes);
    /* Gives memory back. Waits for all running work of the context that owns it and blocks other
     * threads' launches meanwhile: call it only where the program's own free would have. */
    int (*free)(zone_addr_t addr);
    /* Gives back memory that no work uses any more, without a wait, so inside any call. NULL: free
     * is all there is, and cached memory may stay with the pool. */
    int (*give)(zone_addr_t addr);
    /* Where give is there: bytes that the driver keeps for the device after they were given back,
     * and giving those to the device. */
    size_t (*idle)(int device);
    size_t (*trim)(int device);
    /* Frees memory of its own: the driver's answer to whether a free is allowed just now, with the
     * wait of one. 0 too if there is no memory to ask with. */
    int (*free_nothing)(void *ctx);
    /* Events of the context ctx, without timing: for record and stream_record. */
    int (*event_create)(void *ctx, void **ret_event);
    /* Records in the event all work submitted to the context so far, on every stream. NULL where
     * the driver lacks the call (before 12.5): synchronize is used instead. */
    int (*record)(void *ctx, void *event);
    /* 0 when the recorded work is complete, ZONE_GPU_NOT_READY when not. Never blocks. */
    int (*query)(void *event);
    /* Waits on the host, blocking no other thread. */
    int (*wait)(void *event);
    /* Waits for all work of the context. */
    int (*synchronize)(void *ctx);
    /* A stream of libzone's own, beside all others of the context and before them where both want
     * the device. Refused while anything captures. */
    int (*fill_open)(void *ctx, void **ret_stream);
    /* Sets bytes of memory, later, in the order of the stream. Never waits. Refused like that. */
    int (*fill)(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with);
    /* Marks the end of what the stream was given so far in *event, which is made if it is NULL. */
    int (*fill_mark)(void *ctx, void *stream, void **event);
    /* query for such an event, which a capture does not forbid. */
    int (*fill_done)(void *event);
    /* Calls about a stream of the program, of the context ctx, inside a call that names it; the
     * handle is what the program passed. Records what the stream was given so far in an event of
     * the context. Refused while anything captures. */
    int (*stream_record)(void *ctx, void *stream, void *event);
    /* What the stream is given later waits on the device for an event. Never waits itself. */
    int (*stream_wait)(void *ctx, void *stream, void *event);
    /* Sets bytes of memory in the stream's order. Never waits. */
    int (*stream_fill)(void *ctx, void *stream, zone_addr_t addr, size_t bytes, unsigned char with);
    /* Gives memory that alloc gave back once the stream's work so far is complete. Never waits. */
    int (*stream_free)(void *ctx, void *stream, zone_addr_t addr);
    /* Free and total bytes of the device of the context. */
    int (*mem_info)(void *ctx, size_t *ret_free, size_t *ret_total);
    /* A monotonic clock in nanoseconds. */
    uint64_t (*now_ns)(void);
    /* Sleeps for about that long. */
    void (*sleep_ns)(uint64_t ns);
};

/* True for a code after which the context is lost: every later call of the driver fails with it
 * (facts.md, "after a kernel fault"). Out of memory, a refusal and the capture codes are not: those
 * leave the context as it was. */
static inline bool zone_gpu_is_fault(int rc)
{
    return rc > 0 && rc != ZONE_GPU_INVALID_VALUE && rc != ZONE_GPU_OUT_OF_MEMORY &&
           rc != ZONE_GPU_NOT_READY && (rc < 900 || rc > 909);
}
