/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrappers' prototypes. In C they are hook_NAME; the symbol that the object exports is the
 * driver's NAME, so that no header of CUDA can rename or contradict them. Each behaves as the
 * driver's function of that name: its errors, its rules about contexts; what it does beyond is said
 * in its file.
 */
#pragma once

#include "cuda_abi.h"

#define ZONE_EXPORT __attribute__((visibility("default")))

#define HOOK(name, kind, params, args) ZONE_EXPORT CUresult hook_##name params __asm__(#name);
#define CALL(name, params)
#include "hooks.def"
