# SPDX-License-Identifier: Apache-2.0
"""What a call costs, and what a program of many allocations gains."""

from .context import Case, Context
from .record import Run, Test, best_of, ratio, texts_of

SMALL = ("512B", "64KiB", "512KiB")
LARGE = ("1MiB", "16MiB")
SMALL_LIMIT_NS = 200
LARGE_LIMIT_NS = 600
ASYNC_SIZES = ("512B", "64KiB", "1MiB", "64MiB")
ASYNC_LIMIT_NS = 250
THREADS = (1, 2, 4, 8, 16)


def all_bests(runs: list[Run], names: list[str]) -> dict[str, float | None]:
    return {name: best_of(runs, name) for name in names}


def pair(ctx: Context, test: Test) -> None:
    cases = []
    for api in ("static", "shared", "driver"):
        command = ctx.program(f"pair_{api}", "sizes")
        cases.append(Case(f"{api} native", command, reps=1))
        cases.append(Case(f"{api} zone", command, zone=True))
    ctx.repeat(test, cases, judge=judge_pair)


def judge_pair(test: Test, done: dict[str, list[Run]]) -> None:
    names = [f"{kind}_{size}_ns" for kind in ("single", "warm") for size in SMALL + LARGE]
    for label, runs in done.items():
        test.measured[label] = all_bests(runs, names)
    for kind in ("single", "warm"):
        for sizes, limit in ((SMALL, SMALL_LIMIT_NS), (LARGE, LARGE_LIMIT_NS)):
            for size in sizes:
                value = test.measured["static zone"][f"{kind}_{size}_ns"]
                test.require(f"static cudart, {kind} {size}, ns a pair", value, "<=", limit)


def async_pair(ctx: Context, test: Test) -> None:
    """Natively with the default release threshold, and with one that keeps everything."""
    command = ctx.program("async_pair")
    cases = [
        Case("native", command, reps=1),
        Case("native kept", [*command, "kept"], reps=1),
        Case("zone", command, zone=True),
    ]
    ctx.repeat(test, cases, judge=judge_async_pair)


def judge_async_pair(test: Test, done: dict[str, list[Run]]) -> None:
    kinds = ("idle", "busy")
    names = [f"{kind}_{size}_ns" for kind in kinds for size in ASYNC_SIZES] + ["threads_2_ns"]
    for label, runs in done.items():
        test.measured[label] = all_bests(runs, names)
    for size in ASYNC_SIZES:
        value = test.measured["zone"][f"idle_{size}_ns"]
        test.require(f"static cudart, {size}, ns a pair", value, "<=", ASYNC_LIMIT_NS)
    for name in (f"busy_{ASYNC_SIZES[-1]}_ns", "threads_2_ns"):
        gain = ratio(test.measured["native kept"][name], test.measured["zone"][name])
        test.require(f"{name}: native kept / libzone", gain, ">=", 1.0)


def pair_threads(ctx: Context, test: Test) -> None:
    cases = []
    for api in ("static", "driver"):
        command = ctx.program(f"pair_{api}", "threads")
        cases.append(Case(f"{api} native", command, reps=1))
        cases.append(Case(f"{api} zone", command, zone=True))
    done = ctx.repeat(test, cases)
    names = [f"{kind}_{count}_ns" for kind in ("same", "own") for count in THREADS]
    for label, runs in done.items():
        test.measured[label] = all_bests(runs, names)
    for kind in ("same", "own"):
        for count in THREADS:
            name = f"{kind}_{count}_ns"
            gain = ratio(test.measured["static native"][name], test.measured["static zone"][name])
            test.require(f"static cudart, {name}: native / libzone", gain, ">=", 1.0)


def thrust(ctx: Context, test: Test) -> None:
    command = ctx.program("thrust_sort")
    cases = [
        Case("native", command),
        Case("zone", command, zone=True),
        Case("memory kept", [*command, "200", "keep"]),
        Case("shared native", ctx.program("thrust_sort_shared"), reps=1),
        Case("shared zone", ctx.program("thrust_sort_shared"), zone=True, reps=1),
    ]
    ctx.repeat(test, cases, judge=judge_thrust)


def judge_thrust(test: Test, done: dict[str, list[Run]]) -> None:
    for label, runs in done.items():
        test.measured[label] = {
            "pass_ms": best_of(runs, "pass_ms"),
            "checksum": sorted(texts_of(runs, "checksum")),
        }
    share = ratio(test.measured["zone"]["pass_ms"], test.measured["native"]["pass_ms"])
    test.measured["zone / native"] = share
    kept = ratio(test.measured["zone"]["pass_ms"], test.measured["memory kept"]["pass_ms"])
    floor = ratio(test.measured["memory kept"]["pass_ms"], test.measured["native"]["pass_ms"])
    # 0.45 where the driver takes as long as when that was asked for; where the GPU's own work is
    # more than that of a native pass, no allocator can reach it.
    test.measured["memory kept / native"] = floor
    limit = max(0.45, 1.03 * floor) if floor is not None else 0.45
    test.require("libzone / native", share, "<=", round(limit, 4))
    test.require("libzone / the same with memory kept", kept, "<=", 1.05)
    every = [run for runs in done.values() for run in runs]
    checksums = texts_of(every, "checksum")
    test.require("different checksums", len(checksums) if "" not in checksums else None, "==", 1)
