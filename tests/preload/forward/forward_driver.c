/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 as on systems where it is a thin library before the driver proper, which it opens
 * under another path: each function goes on to the one of the same name there. Its own look-ups of
 * driver functions, made while it is being loaded, must not lead back to whoever wraps them.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#include <dlfcn.h>

#define API(elf, impl, base, version, twin, params, args) static CUresult(*inner_##elf) params;
#include "../../sim/api.def"
#undef API

#define API(elf, impl, base, version, twin, params, args)                                          \
    __attribute__((visibility("default"))) CUresult elf params                                     \
    {                                                                                              \
        return inner_##elf ? inner_##elf args : CUDA_ERROR_NOT_INITIALIZED;                        \
    }
#include "../../sim/api.def"
#undef API

__attribute__((constructor)) static void open_inner(void)
{
    void *inner = dlopen(INNER_DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (inner) {
#define API(elf, impl, base, version, twin, params, args)                                          \
    *(void **)&inner_##elf = dlsym(inner, #elf);
#include "../../sim/api.def"
    }
}
