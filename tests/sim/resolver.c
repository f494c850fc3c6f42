/* SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress over the table of api.def: the newest version of a name that the caller asked
 * for and this driver has; flag 2 prefers the per-thread twin. Constant data, no lock.
 */
#include "sim.h"

#include <string.h>

struct row {
    const char *elf, *base;
    int version;
    bool twin;
    void *address;
};

/* Function pointers as data pointers, as dlsym has them. */
#define API(elf, impl, base, version, twin, params, args)                                          \
    {#elf, #base, version, twin, (void *)(uintptr_t)elf},
static const struct row rows[] = {
#undef cuProfilerInitialize
#include "api.def"
};
#undef API

const char *sim_symbol_name(enum sim_symbol symbol)
{
    return rows[symbol].elf;
}

int sim_symbol_version(enum sim_symbol symbol)
{
    return rows[symbol].version;
}

static const struct row *find(const char *name, int version, bool per_thread, bool *ret_known)
{
    const struct row *best = NULL;
    *ret_known = false;
    for (size_t i = 0; i < SIM_SYMBOLS; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->base, name) != 0 || row->version > sim_driver_version()) {
            continue;
        }
        *ret_known = true;
        if (row->version > version || (row->twin && !per_thread)) {
            continue;
        }
        /* A twin beats every plain form; among equals the newer one wins. */
        if (!best || (row->twin && !best->twin) ||
            (row->twin == best->twin && row->version > best->version)) {
            best = row;
        }
    }
    return best;
}

CUresult sim_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
        cudaVersion > sim_driver_version()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = false;
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct row *row = find(symbol, cudaVersion, per_thread, &known);
    *pfn = row ? row->address : NULL;
    if (symbolStatus) {
        *symbolStatus = row     ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult rc = sim_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
    return rc == CUDA_SUCCESS && !*pfn ? CUDA_ERROR_NOT_FOUND : rc;
}
