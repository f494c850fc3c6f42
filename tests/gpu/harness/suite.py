# SPDX-License-Identifier: Apache-2.0
"""The list of checks, and the loop that runs them whatever becomes of any one of them."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import (
    checks_driver,
    checks_frameworks,
    checks_memory,
    checks_order,
    checks_speed,
    matrix,
    matrix_build,
)
from .build import Step, build_libzone, build_programs
from .context import Context
from .machine import commit_of, describe, has_gpu
from .record import Test, table
from .runner import Runner

SCHEMA = 1
PROGRAMS_DIR = "gpu-programs"
MATRIX = Path("tests/gpu/matrix.toml")


@dataclass(frozen=True)
class Check:
    name: str
    title: str
    function: Callable[[Context, Test], None]
    timed: bool = False
    informational: bool = False


# In this order: what decides most comes first, in case time runs out.
CHECKS = (
    Check("walk", "every driver symbol, versions and flags", checks_driver.walk),
    Check("native_answers", "what programs see natively", checks_driver.native_answers),
    Check("four_streams", "four streams, malloc and free each", checks_order.four_streams, True),
    Check("waiting_kernel", "a kernel waits for a later one", checks_order.waiting_kernel),
    Check("launch_latency", "launches beside malloc and free", checks_order.launch_latency, True),
    Check("async_backend", "backend:cudaMallocAsync", checks_order.async_backend, True),
    Check("pair", "cudaMalloc and cudaFree, ns a pair", checks_speed.pair, True),
    Check("async_pair", "the same in stream order", checks_speed.async_pair, True),
    Check(
        "four_streams_async",
        "four streams in stream order",
        checks_order.four_streams_async,
        True,
    ),
    Check("pair_threads", "the same from 1 to 16 threads", checks_speed.pair_threads, True),
    Check("thrust", "Thrust, 10 M integers", checks_speed.thrust, True),
    Check("counts", "static, shared, driver: equal counts", checks_driver.counts),
    Check("fill_card", "95 % of the card, mixed sizes", checks_memory.fill_card),
    Check("fault", "codes after a device fault", checks_memory.fault),
    Check("torch", "PyTorch training step", checks_frameworks.torch, True),
    Check("cupy", "CuPy with and without its pool", checks_frameworks.cupy, True),
    Check("jax", "JAX, two allocators", checks_frameworks.jax, True),
    Check("victims", "the victims, by meson test", checks_driver.victims),
    Check("reset", "100 device resets", checks_memory.reset),
    Check("scale", "a thousand and a million blocks", checks_memory.scale, True),
    Check("random_fit", "random programs at 95 % of 4 GiB", checks_memory.random_fit),
    Check("driver_facts", "what libzone relies on in the driver", checks_driver.driver_facts),
    Check("sanitizer", "under compute-sanitizer", checks_driver.sanitizer, informational=True),
)


def parse_arguments(kind: str, description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"scripts/{kind}", description=description)
    parser.add_argument("--out", default="", help="folder for the JSON and the log; else .out")
    parser.add_argument("--only", default="", metavar="NAME,...", help="run these checks")
    parser.add_argument("--quick", action="store_true", help="one repetition of everything")
    parser.add_argument("--reps", type=int, default=2 if kind == "gpu-test" else 5)
    parser.add_argument("--commit", default="", help="else $COMMIT, a file COMMIT, or git")
    parser.add_argument("--build-dir", default="build-h200")
    parser.add_argument("--buildtype", default="debugoptimized", help="Meson's, of libzone")
    default_s = 480 if kind == "gpu-test" else 560
    parser.add_argument("--deadline", type=float, default=default_s, help="seconds for all of it")
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--build-only", action="store_true", help="compile; needs no GPU")
    parser.add_argument("--matrix", action="store_true", help="public programs instead, see --home")
    parser.add_argument(
        "--shard", default="1/1", metavar="k/n", help="of the matrix: the k-th of n"
    )
    parser.add_argument("--home", default=".out/matrix", help="where scripts/matrix built them")
    parser.add_argument("--list", action="store_true", help="name the checks and stop")
    return parser.parse_args()


def choose(kind: str, only: str) -> list[Check]:
    """The checks by name; the benchmark is the timed ones."""
    wanted = [name for name in only.split(",") if name]
    unknown = sorted(set(wanted) - {check.name for check in CHECKS})
    if unknown:
        there = ", ".join(check.name for check in CHECKS)
        raise SystemExit(f"no check named {', '.join(unknown)}; there are {there}")
    if wanted:
        return [check for check in CHECKS if check.name in wanted]
    return [check for check in CHECKS if kind == "gpu-test" or check.timed]


def matrix_check(root: Path, home: str, shard: str) -> Check:
    part = matrix.parse_shard(shard).part(matrix_build.read_table(root / MATRIX))

    def run(ctx: Context, test: Test) -> None:
        matrix.run_matrix(ctx, test, part, (root / home).resolve())

    return Check("matrix", f"public programs, shard {shard}", run)


def run_check(check: Check, ctx: Context, deadline: float) -> Test:
    test = Test(check.name, check.title, informational=check.informational)
    start = time.monotonic()
    if start > deadline:
        test.error = "not run: the time for the whole suite was used up"
        return test
    try:
        check.function(ctx, test)
    except Exception:  # one broken check must not cost the results of the others
        test.error = traceback.format_exc()
    test.seconds = round(time.monotonic() - start, 2)
    return test


def document(head: dict[str, Any], steps: list[Step], tests: list[Test]) -> dict[str, Any]:
    return {
        **head,
        "ok": all(test.ok for test in tests) and all(step.ok for step in steps),
        "build": [asdict(step) for step in steps],
        "tests": [test.to_json() for test in tests],
    }


def portable(text: str, folders: dict[str, str]) -> str:
    """The text without the folders of one machine: results are compared and kept."""
    for folder, name in folders.items():
        text = text.replace(folder, name)
    return text


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: a run that is cut short leaves the last complete state."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def build_all(root: Path, build_dir: Path, buildtype: str) -> list[Step]:
    """Meson first: it wants an empty folder or one of its own."""
    steps = build_libzone(root, build_dir, buildtype)
    steps += build_programs(root / "tests" / "gpu", build_dir / PROGRAMS_DIR)
    for step in steps:
        print(f"build {step.name}: {'ok' if step.ok else 'FAILED'} ({step.seconds:.1f} s)")
        if not step.ok:
            print(step.output[-1500:])
    return steps


def run_all(checks: list[Check], ctx: Context, save: Callable[[list[Test]], None]) -> list[Test]:
    """Saves after every check, so that whatever happens, what was measured is kept."""
    tests: list[Test] = []
    for check in checks:
        print(f"{check.name} ...", flush=True)
        tests.append(run_check(check, ctx, ctx.runner.deadline))
        save(tests)
        print(f"{check.name}: {'ok' if tests[-1].ok else 'FAIL'}", flush=True)
    return tests


def main(kind: str, description: str, root: Path) -> int:
    options = parse_arguments(kind, description)
    checks = choose(kind, options.only)
    if options.matrix:
        checks = [matrix_check(root, options.home, options.shard)]
    if options.list:
        for check in CHECKS:
            print(f"{check.name:16} {check.title}{' (timed)' if check.timed else ''}")
        return 0
    if not options.build_only and not has_gpu():
        print("no NVIDIA GPU is visible here; --build-only compiles without one")
        return 1
    deadline = time.monotonic() + options.deadline
    out = Path(options.out).resolve() if options.out else root / ".out"
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    head = {
        "schema": SCHEMA,
        "kind": kind,
        "commit": commit_of(root, options.commit),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(),
        "options": {
            "reps": 1 if options.quick else options.reps,
            "quick": options.quick,
            "buildtype": options.buildtype,
        },
    }
    build_dir = (root / options.build_dir).resolve()
    steps: list[Step] = []
    if options.matrix and not options.no_build:
        steps = build_libzone(root, build_dir, options.buildtype)
    elif not options.no_build:
        steps = build_all(root, build_dir, options.buildtype)
    if options.build_only:
        return 0 if all(step.ok for step in steps) else 1
    work = Path(tempfile.mkdtemp(prefix="zone-gpu-"))
    folders = {str(root): ".", str(work): "WORK", sys.executable: "python3"}

    def save(tests: list[Test]) -> None:
        content = document(head, steps, tests)
        text = json.dumps(content, indent=1) + "\n"
        write_text(out / f"{kind}.json", portable(text, folders))

    with open(out / f"{kind}.log", "w", encoding="utf-8") as log:
        runner = Runner(build_dir / "shim" / "libzone.so", work, log, deadline)
        programs = build_dir / PROGRAMS_DIR
        ctx = Context(root, build_dir, programs, work, runner, options.reps, options.quick)
        tests = run_all(checks, ctx, save)
    shutil.rmtree(work, ignore_errors=True)
    return conclude(out / f"{kind}.json", steps, tests)


def conclude(path: Path, steps: list[Step], tests: list[Test]) -> int:
    print(table(tests))
    good = sum(test.ok for test in tests)
    unbuilt = [step.name for step in steps if not step.ok]
    if unbuilt:
        print(f"did not build: {', '.join(unbuilt)}")
    print(path)
    print(f"{good} passed, {len(tests) - good} failed")
    return 0 if good == len(tests) and not unbuilt else 1
