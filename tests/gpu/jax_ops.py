#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Array operations in JAX, compiled and one by one; the environment chooses its allocator. Takes
turns with others (harness/turns.py): step.

The values are small integers in float32, so every sum is exact and the results do not depend on
which kernel JAX's autotuning picks.
"""

import time

import jax
import jax.numpy as jnp
from device_used import put, take_turns

STEPS = 40


@jax.jit
def compiled(left: jax.Array, right: jax.Array) -> jax.Array:
    product = left @ right
    return jnp.maximum(product - 100.0, 0.0) + left


def step(left: jax.Array, right: jax.Array) -> jax.Array:
    result = compiled(left, right)
    shifted = result + 1.0
    halved = shifted * 0.5
    return jnp.max(halved, axis=0)


def main() -> None:
    rows = jnp.arange(512 * 512, dtype=jnp.int32).reshape(512, 512)
    left = (rows % 7).astype(jnp.float32)
    right = ((rows // 512 + rows) % 5).astype(jnp.float32)
    for i in range(5):
        put(f"result_{i}", float(jnp.sum(step(left, right)[: 16 * (i + 1)])).hex())
    put("result_sorted", float(jnp.sort((rows * 31 % 1009).ravel())[4321]).hex())

    def window_ms() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            last = step(left, right)
        last.block_until_ready()
        return (time.perf_counter() - start) / STEPS * 1e3

    take_turns({"step": window_ms})


if __name__ == "__main__":
    main()
