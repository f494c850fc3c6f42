/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported driver functions, one per row of api.def: count and check the call, run the
 * implementation if there is one. No policy here; process.c decides who may enter.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define API(elf, impl, base, version, twin, params, args)                                          \
    extern CUresult sim_##impl params __attribute__((weak));
#include <cudaProfiler.h>
#include "api.def"
#undef API

#include "sim.h"

#define API(elf, impl, base, version, twin, params, args)                                          \
    __attribute__((visibility("default"))) CUresult elf params                                     \
    {                                                                                              \
        CUresult rc = sim_enter(SIM_##elf, sim_##impl != NULL);                                    \
        if (rc == CUDA_SUCCESS) {                                                                  \
            sim_self.per_thread = twin;                                                            \
            rc = sim_##impl args;                                                                  \
            sim_self.per_thread = false;                                                           \
        }                                                                                          \
        sim_leave(SIM_##elf, rc);                                                                  \
        return rc;                                                                                 \
    }
#include "api.def"
