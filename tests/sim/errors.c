/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of error codes.
 */
#include "sim.h"

static const char *name_of(CUresult error)
{
    switch (error) {
#define ERROR(name)                                                                                \
    case name:                                                                                     \
        return #name;
#include "errors.def"
#undef ERROR
    }
    return NULL;
}

CUresult sim_cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = name_of(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGetErrorString(CUresult error, const char **pStr)
{
    return sim_cuGetErrorName(error, pStr);
}
