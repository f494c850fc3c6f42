# SPDX-License-Identifier: Apache-2.0
"""The few numbers of README.md's first screen, from the newest results that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BEGIN = "<!-- written by scripts/zonelib/perf_gen.py -->"
END = "<!-- end of what perf_gen.py writes -->"


@dataclass(frozen=True)
class Row:
    """A measured value of a check, natively and under libzone."""

    text: str
    check: str
    native: str
    zone: str
    metric: str
    unit: str
    scale: float = 1.0


ROWS = (
    Row("cudaMalloc and cudaFree of 64 KiB", "pair", "static native", "static zone",
        "single_64KiB_ns", "µs", 1e-3),
    Row("cudaMalloc and cudaFree of 16 MiB", "pair", "static native", "static zone",
        "single_16MiB_ns", "µs", 1e-3),
    Row("four streams, 400 steps with both", "four_streams", "native", "zone", "total_ms", "ms"),
    Row("launches of another thread meanwhile, 99 % below", "launch_latency", "native", "zone",
        "busy_p99_us", "µs"),
    Row("Thrust, a pass over 10 M integers", "thrust", "native", "zone", "pass_ms", "ms"),
    Row("CuPy without its own pool, a step", "cupy", "native, no pool", "zone, no pool",
        "step_ms", "ms"),
    Row("PyTorch without its own pool, a training step", "torch", "native, caching off",
        "zone, caching off", "train_ms", "ms"),
)  # fmt: skip


def three(value: float) -> str:
    """Three digits, which is what such numbers are good for."""
    text = f"{value:.3g}"
    return str(int(float(text))) if "e" in text else text


def block(tests: list[Any]) -> str:
    """The table; the machines are those of the tests it takes numbers from."""
    by_name = {source.test["name"]: source for source in tests}
    lines = []
    machines: dict[str, None] = {}
    for row in ROWS:
        source = by_name.get(row.check)
        measured = source.test["measured"] if source else {}
        native = measured.get(row.native, {}).get(row.metric)
        zone = measured.get(row.zone, {}).get(row.metric)
        if source and native and zone:
            machine = source.result.get("machine", {})
            machines[f"{machine.get('gpu', '?')}, driver {machine.get('driver', '?')}"] = None
            cells = [f"{three(value * row.scale)} {row.unit}" for value in (native, zone)]
            lines.append(f"| {row.text} | {cells[0]} | {cells[1]} |")
    head = f"| {'; '.join(machines) or 'nothing measured yet'} | natively | with libzone |"
    return "\n".join([BEGIN, "", head, "| --- | --- | --- |", *lines, "", END])


def put(text: str, tests: list[Any]) -> str:
    """The text of README.md with the table in its place."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError("README.md has no place for the numbers")
    before, rest = text.split(BEGIN)
    return before + block(tests) + rest.split(END)[1]
