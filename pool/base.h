/* SPDX-License-Identifier: Apache-2.0
 *
 * What every file of the pool uses: branch hints, sizes, and the one type of device address.
 * No state, no locking, never calls the driver.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZONE_LIKELY(x)    __builtin_expect(!!(x), 1)
#define ZONE_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define ZONE_COLD         __attribute__((noinline, cold))
#define ZONE_PRINTF(f, a) __attribute__((format(printf, f, a)))

#define ZONE_KIB ((size_t)1 << 10)
#define ZONE_MIB ((size_t)1 << 20)
#define ZONE_GIB ((size_t)1 << 30)

/* A device address as the driver hands it out (CUdeviceptr); 0 is no address. */
typedef uint64_t zone_addr_t;
