/* SPDX-License-Identifier: Apache-2.0
 *
 * Device time for the .cu programs: how many cycles of clock64() make a microsecond at the boost
 * clock, so that "a 50 us kernel" is one once the card has left its idle clock.
 */
#pragma once

#include <cuda_runtime.h>
#include "gpu.h"

static inline long long cycles_for_us(double us)
{
    int khz = 0;
    RT(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    return (long long)(us * khz / 1000.0);
}

static __device__ inline void spin_until(long long start, long long cycles)
{
    while (clock64() - start < cycles) {
    }
}
