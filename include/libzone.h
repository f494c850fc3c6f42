/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a program may make when it runs under libzone. They are in the preloaded libzone.so
 * and nowhere else: look them up with dlsym(RTLD_DEFAULT, "zone_...") or ctypes.CDLL(None), and do
 * without where they are not found. Or define LIBZONE_WEAK before this header: then they are weak,
 * and NULL without libzone.
 *
 * Results are 0, one of the negative codes below, or the positive CUresult of a context that the
 * device has lost. Sizes go to pointers, which may be NULL and are set to 0 when the result is not
 * 0; they are bytes, and what docs/STATS.md says of the counters holds.
 *
 * device is a CUDA ordinal of this process, or -1: the device of the calling thread's current
 * context. Before the program's first CUDA allocation every size is 0 and no device is unknown.
 *
 * Threads: any, at any time; not in signal handlers. None of them initialises CUDA, loads the
 * driver or makes a context. With device -1, or with one that has not been used yet, the driver is
 * asked which device that is; beyond that only zone_empty_cache calls it.
 */
#ifndef LIBZONE_H
#define LIBZONE_H
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZONE_OK             0
#define ZONE_ERROR_DISABLED (-1) /* ZONE_DISABLE is set: libzone does nothing in this process */
#define ZONE_ERROR_CHILD    (-2) /* forked from a process that used CUDA: nothing is served here */
#define ZONE_ERROR_DEVICE   (-3) /* no such device, or -1 and the thread has no current context */
#define ZONE_ERROR_CAPTURE  (-4) /* a stream captures, which the call would have ended */
#define ZONE_ERROR_SETTINGS (-5) /* a setting was refused; a line on stderr says which and why */
#define ZONE_ERROR_REPORT   (-6) /* no report was written: ZONE_REPORT is none, or names no file */

#ifdef LIBZONE_WEAK
#define LIBZONE_CALL __attribute__((weak))
#else
#define LIBZONE_CALL
#endif

/* 10000 * major + 100 * minor + patch: 0.1.0 is 100. Works always, also with ZONE_DISABLE. */
int zone_version(void) LIBZONE_CALL;

/* What the program holds on the device (allocated_bytes, current), and the most that it has held
 * since the start or the last zone_reset_peak_memory_stats (allocated_bytes, peak). */
int zone_memory_allocated(int device, size_t *ret_bytes) LIBZONE_CALL;
int zone_max_memory_allocated(int device, size_t *ret_bytes) LIBZONE_CALL;

/* What the pools hold from the driver for it: allocated, pending and cached (reserved_bytes). */
int zone_memory_reserved(int device, size_t *ret_bytes) LIBZONE_CALL;

/* Peaks start again from the values of now, those in the report too. What other threads allocate
 * meanwhile counts as before or after; no later peak is lost. */
int zone_reset_peak_memory_stats(int device) LIBZONE_CALL;

/* Gives what the program has freed back to the driver, as far as no block in use shares a segment
 * with it. Waits for the work submitted so far, as cudaFree does, and like it holds up other
 * threads' launches. *ret_bytes: how much went back. */
int zone_empty_cache(int device, size_t *ret_bytes) LIBZONE_CALL;

/* Changes settings, written as in ZONE_ALLOC_CONF: max_cached_mb, max_pending_mb, min_free_mb and
 * oom_wait_ms, for all devices. Another key is refused unless it has that value already, and so is
 * what ZONE_ALLOC_CONF would refuse; the rest of the text applies. Keys that are not in the text
 * keep their values. NULL and "" change nothing. */
int zone_set_allocator_settings(const char *settings) LIBZONE_CALL;

/* Writes the report now, where ZONE_REPORT says, in place of the file that is there. The one at
 * exit comes as always. Before the first CUDA allocation there is nothing to report: 0, and no
 * line. */
int zone_report(void) LIBZONE_CALL;

#ifdef __cplusplus
}
#endif

#endif
