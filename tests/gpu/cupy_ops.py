#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Array expressions in CuPy, with its memory pool or, by --no-pool, with plain cudaMalloc."""

import argparse
import time

import cupy
from device_used import put

STEPS = 200
BLOCKS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-pool", action="store_true")
    options = parser.parse_args()
    if options.no_pool:
        cupy.cuda.set_allocator(None)

    values = cupy.arange(1000 * 1000, dtype=cupy.float64).reshape(1000, 1000) / 1000.0

    def step() -> cupy.ndarray:
        return cupy.sqrt(values * values + values).sum()

    for i in range(5):
        put(f"result_{i}", float(step() + i).hex())
    put("result_sorted", float(cupy.sort(values.ravel() % 7)[123456]).hex())
    put("result_cumsum", int(cupy.cumsum(cupy.arange(1000 * 1000))[-1]))
    times = []
    for _ in range(BLOCKS):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        cupy.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    put("step_ms", min(times))


if __name__ == "__main__":
    main()
