# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs: native answers, victims, the driver's symbols, equal counts, a tool."""

import json
import shutil
from typing import Any

from .build import tests_of
from .context import Case, Context
from .record import Test, counter

# What the program prints, and the counter of the report that must equal it.
COUNTERS = {
    "allocations": ("allocation", "allocated"),
    "frees": ("allocation", "freed"),
    "live_bytes": ("requested_bytes", "current"),
}


def walk(ctx: Context, test: Test) -> None:
    command = ctx.script(
        "walk_compare.py",
        "--walk",
        *ctx.program("walk"),
        "--zone",
        str(ctx.runner.libzone),
        "--hooks",
        str(ctx.root / "shim" / "hooks.def"),
    )
    run = ctx.run(test, Case("compare", command))
    test.require_ran([run])
    for name in ("lines", "substituted", "wrappers", "differences"):
        test.measured[name] = run.metrics.get(name)
    test.require("answers that differ", run.metrics.get("differences"), "==", 0)
    test.require("answers compared", run.metrics.get("lines"), ">=", 10000)


def native_answers(ctx: Context, test: Test) -> None:
    program = ctx.build_dir / "tests" / "victims" / "native_answers"
    done = ctx.repeat(
        test, [Case("native", [str(program)]), Case("zone", [str(program)], zone=True)], reps=1
    )
    for label in ("native", "zone"):
        test.require(f"{label}: exit status", done[label][0].rc, "==", 0)
        test.measured[label] = done[label][0].tail.strip().splitlines()[-1:]


def read_testlog(path: Any) -> list[dict[str, Any]]:
    """Meson writes one JSON object a line, each time a test ends."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def victim_suites(introspected: str) -> list[str]:
    """The suites with programs that run on a GPU; lint and unit tests are CI's."""
    suites = {suite for each in json.loads(introspected) for suite in each.get("suite", [])}
    return sorted(s for s in suites if s.split(":")[-1].startswith(("victim", "gpu")))


FACTS = {
    "driver_facts_async": ("async_codes", "async_idle", "async_pair"),
    "driver_facts": ("capture_calls", "fill_priority", "fresh_zero", "nvml", "streams"),
}
# What the driver answered when the code that needs it was written; another driver may not.
RELIED_UPON: dict[str, dict[str, float]] = {
    "async_codes": {
        "range_is_base": 1,
        "range_size": 100000,
        "mempool_is_default": 1,
        "ipc_of_async_rc": 1,
        "free_async_of_part_rc": 1,
        "free_async_odd_rc": 1,
        "free_of_part_rc": 1,
        "free_async_twice_at_once_rc": 1,
        "free_after_free_async_at_once_rc": 1,
        "free_of_async_rc": 0,
        "free_async_after_free_rc": 1,
        "plain_free_async_rc": 0,
        "plain_free_async_twice_later_rc": 1,
        "plain_free_async_odd_rc": 1,
        "capturing_free_async_odd_rc": 1,
        "capture_end_after_odd_rc": 0,
        "capturing_free_async_of_plain_rc": 1,
    },
    "async_idle": {"same_block_too_early": 0, "kernels_gave_up": 0},
    "capture_calls": {
        f"relaxed_{call}{end}": 0
        for call in (
            "memset",
            "stream_create",
            "event_record",
            "event_create",
            "alloc_async",
            "free_async",
            "synchronize",
            "pool_attribute",
            "wait_event",
            "stream_query",
        )
        for end in ("_rc", "_end_rc")
    },
    "fill_priority": {
        f"held_back_highest_{size}": 0 for size in (512, 64 << 10, 2 << 20, 64 << 20)
    },
    "fresh_zero": {"nonzero_2mib": 0, "nonzero_20mib": 0},
    "nvml": {"list_v1_rc": 0, "list_v1_bytes_written": 16, "threads_more": 0},
    "streams": {"null_is_legacy": 1, "per_thread_differs": 1, "same_id_again": 0},
}


def driver_facts(ctx: Context, test: Test) -> None:
    """Natively only: each part is a program of its own, as some leave the driver in odd states."""
    cases = [
        Case(part, ctx.program(program, part), timeout_s=30)
        for program, parts in FACTS.items()
        for part in parts
    ]
    done = ctx.repeat(test, cases, reps=1)
    for part, runs in done.items():
        test.measured[part] = runs[0].metrics
        for name, value in RELIED_UPON.get(part, {}).items():
            test.require(f"{part}: {name}", runs[0].metrics.get(name), "==", value)


def victims(ctx: Context, test: Test) -> None:
    suites = victim_suites(tests_of(ctx.build_dir))
    if not suites:
        test.error = "meson lists no suite victims or gpu"
        return
    command = ["meson", "test", "-C", str(ctx.build_dir), "--no-rebuild", "--num-processes", "4"]
    command += ["--timeout-multiplier", "2"]
    for suite in suites:
        command += ["--suite", suite]
    log = ctx.build_dir / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    run = ctx.run(test, Case("meson test", command, timeout_s=240))
    if not log.exists():
        test.error = "meson test left no testlog.json: " + run.tail[-300:]
        return
    results: dict[str, int] = {}
    for entry in read_testlog(log):
        result = str(entry.get("result"))
        results[result] = results.get(result, 0) + 1
        if result not in ("OK", "SKIP", "EXPECTEDFAIL"):
            output = f"{entry.get('stdout', '')}{entry.get('stderr', '')}".strip()
            test.notes.append(f"{entry.get('name')}: {result}: {output[-600:]}")
        elif result == "SKIP":
            test.notes.append(f"{entry.get('name')}: SKIP")
    test.measured["results"] = results
    bad = sum(n for result, n in results.items() if result not in ("OK", "SKIP", "EXPECTEDFAIL"))
    test.require("victims that ran", results.get("OK", 0), ">", 0)
    test.require("victims that failed", bad, "==", 0)
    test.require("meson test finished", run.timed_out, "==", False)


def counts(ctx: Context, test: Test) -> None:
    names = ("static", "shared", "driver")
    cases = [Case(f"{name}/zone", ctx.program(f"counts_{name}"), zone=True) for name in names]
    cases += [Case(f"{name}/native", ctx.program(f"counts_{name}")) for name in names]
    done = ctx.repeat(test, cases, reps=1)
    wanted = done["static/native"][0].metrics
    for name in names:
        report = done[f"{name}/zone"][0].report
        test.measured[name] = report
        for key, path in COUNTERS.items():
            # A counter that is 0 is left out of the record.
            seen = None if report is None else counter(report, *path) or 0
            test.require(f"{name}: {key} in the report", seen, "==", wanted.get(key))


def sanitizer(ctx: Context, test: Test) -> None:
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = [tool, "--tool", "memcheck", *ctx.program("counts_static")]
    for label, zone in (("native", False), ("zone", True)):
        run = ctx.run(test, Case(label, command, zone=zone, timeout_s=60))
        test.measured[label] = {"rc": run.rc, "last": run.tail.strip().splitlines()[-1:]}
