#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training step, the same with data from pinned memory, and five small operations.

Prints the first losses to the bit, computed by deterministic algorithms (the fast ones add in
whatever order they finish), the best times of several blocks of steps, and the memory in use on
the card at the end, while all that the run ever cached is still held. With --turns it takes turns
with others instead (harness/turns.py): train, loader, small.
"""

import argparse
import os
import time
from collections.abc import Callable

# cuBLAS reads this when it is loaded; without it it refuses to be deterministic.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from device_used import device_used_mib, put, take_turns

LOSS_STEPS = 8


def block_ms(step: Callable[[int], object], blocks: int, steps: int) -> float:
    """The best block's mean time of a step: what else a shared machine does only adds time."""
    for i in range(max(4, steps // 2)):
        step(i)
    return min(window_ms(step, steps) for _ in range(blocks))


def window_ms(step: Callable[[int], object], steps: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", action="store_true")
    options = parser.parse_args()

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    resident = torch.randn(16, 256, 512, device="cuda")
    pinned = [torch.randn(16, 256, 512).pin_memory() for _ in range(4)]
    square = torch.randn(1024, 1024, device="cuda")

    def train(data: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def small(_: int) -> torch.Tensor:
        product = square @ square
        positive = torch.relu(product)
        shifted = positive + square
        return torch.softmax(shifted, -1).sum()

    torch.use_deterministic_algorithms(True)
    for i in range(LOSS_STEPS):
        put(f"loss_{i}", float(train(resident).item()).hex())
    for i in range(2):
        loss = train(pinned[i].to("cuda", non_blocking=True))
        put(f"loss_loader_{i}", float(loss.item()).hex())
    put("loss_small", float(small(0).item()).hex())
    torch.use_deterministic_algorithms(False)

    def loader(i: int) -> torch.Tensor:
        return train(pinned[i % 4].to("cuda", non_blocking=True))

    if options.turns:
        works = {
            "train": (lambda _: train(resident), 4),
            "loader": (loader, 4),
            "small": (small, 100),
        }
        take_turns({name: lambda w=work: window_ms(*w) for name, work in works.items()})
        return
    put("train_ms", block_ms(lambda _: train(resident), options.blocks, options.steps))
    put("loader_ms", block_ms(loader, options.blocks, options.steps))
    put("small_ms", block_ms(small, options.blocks * 4, options.steps * 10))
    put("device_used_mib", device_used_mib())
    put("torch_reserved_mib", torch.cuda.max_memory_reserved() >> 20)


if __name__ == "__main__":
    main()
