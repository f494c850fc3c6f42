/* SPDX-License-Identifier: Apache-2.0
 *
 * The real driver: an address for each row of hooks.def, NULL where the driver in use lacks it.
 * Filled once from the loaded libcuda and constant from then on, so that it needs no lock.
 */
#pragma once

#include "base.h"
#include "cuda_abi.h"

#include <stdatomic.h>

enum zone_driver_index {
#define HOOK(name, ...) ZONE_DRIVER_##name,
#define CALL(name, ...) ZONE_DRIVER_##name,
#include "hooks.def"
    ZONE_DRIVER_COUNT,
};

/* The type of each function, as zone_fn_NAME. */
#define HOOK(name, kind, params, args) typedef CUresult(*zone_fn_##name) params;
#define CALL(name, params)             typedef CUresult(*zone_fn_##name) params;
#include "hooks.def"

struct zone_driver {
    void *fn[ZONE_DRIVER_COUNT];
    /* What is substituted, sorted by the real address. */
    unsigned substitutes;
    struct {
        void *real;
        void *wrapper;
    } substitute[ZONE_DRIVER_COUNT];
};

/* The table, or NULL while libcuda is not loaded. Builds it at the first call: no lock (two threads
 * may build one each, one is kept), no CUDA call, no change to dlerror's state on success. */
const struct zone_driver *zone_driver(void);

/* The wrapper for a real address, or NULL. */
void *zone_driver_substitute(const struct zone_driver *driver, const void *real);

/* The real function of a row, NULL if the driver lacks it. */
#define ZONE_REAL(driver, name) ((zone_fn_##name)(driver)->fn[ZONE_DRIVER_##name])

/* What the real dlsym is; set before the first use of either. */
void *zone_dlsym_real(void *handle, const char *symbol);
