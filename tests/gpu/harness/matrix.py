# SPDX-License-Identifier: Apache-2.0
"""Public programs natively and under libzone with several settings: the same output, the same exit
code, and how long each took.

A program prints times, and some print sums that depend on the order of threads. So it runs twice
natively: lines that are the same both times have to be the same under libzone; of the others only
what is not a number. If native runs do not even have the same number of lines, the exit code alone
is compared, and the remark says so.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .context import Case, Context
from .matrix_build import Program
from .record import Run, Test

# A place is left for the backing by the virtual memory calls.
SETTINGS = {
    "default": "",
    "sync": "free_order:sync",
    "cut": "large_segment_size_mb:20",
    "off": "backend:off",
}
LIMIT_S = 60.0
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|\b(nan|inf)\b")
OWN = re.compile(r"^zone\[\d+\]")


@dataclass(frozen=True)
class Shard:
    number: int
    of: int

    def part(self, programs: list[Program]) -> list[Program]:
        return programs[self.number - 1 :: self.of]


def parse_shard(text: str) -> Shard:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise SystemExit(f"--shard takes k/n with k from 1 to n, not {text!r}")
    return Shard(int(match[1]), int(match[2]))


def lines_of(output: str) -> list[str]:
    return [line.rstrip() for line in output.splitlines() if not OWN.match(line)]


def skeleton(line: str) -> str:
    return " ".join(NUMBER.sub("#", line).split())


def compare(first: str, second: str, seen: str) -> tuple[bool, str]:
    """Is `seen` what the two native outputs allow? And a remark."""
    one, two, ours = lines_of(first), lines_of(second), lines_of(seen)
    if len(one) != len(two):
        return True, "output not compared: native runs differ in length"
    if len(ours) != len(one):
        return False, f"{len(ours)} lines, natively {len(one)}"
    loose = 0
    for a, b, c in zip(one, two, ours, strict=True):
        if a == b and c != a:
            return False, f"{c[:80]!r}, natively {a[:80]!r}"
        if a != b:
            loose += 1
            if skeleton(a) == skeleton(b) != skeleton(c):
                return False, f"{c[:80]!r}, natively {a[:80]!r}"
    return True, f"{loose} of {len(one)} lines vary natively" if loose else ""


def run_one(ctx: Context, test: Test, program: Program, folder: Path, setting: str | None) -> Run:
    label = f"{program.name}, {setting or 'native'}"
    case = Case(
        label,
        ["./main", *program.run],
        zone=setting is not None,
        conf=SETTINGS[setting] if setting else "",
        timeout_s=LIMIT_S,
        cwd=folder,
    )
    run = ctx.run(test, case)
    test.runs.pop()  # five runs of a hundred programs are too much to keep
    return run


def try_program(ctx: Context, test: Test, program: Program, home: Path) -> dict[str, Any]:
    folder = home / "programs" / program.name
    found: dict[str, Any] = {"run": " ".join(program.run)}
    if not (folder / "main").exists():
        return {**found, "result": "skipped", "remark": "not built"}
    native = [run_one(ctx, test, program, folder, None) for _ in range(2)]
    if any(run.timed_out for run in native):
        return {**found, "result": "skipped", "remark": "takes too long natively"}
    codes = {run.rc for run in native}
    if len(codes) != 1:
        return {**found, "result": "skipped", "remark": f"native exit codes {sorted(codes)}"}
    rc = native[0].rc
    found["native_rc"] = rc
    found["native_s"] = min(run.seconds for run in native)
    good = True
    remarks: dict[str, None] = {}
    for setting in SETTINGS:
        run = run_one(ctx, test, program, folder, setting)
        same, remark = compare(native[0].output, native[1].output, run.output)
        same = same and run.rc == rc and not run.timed_out and not run.problem
        if run.rc != rc or run.problem:
            remark = run.problem or f"exit code {run.rc}, natively {rc}"
        found[setting] = {"same": same, "seconds": run.seconds}
        test.require(f"{program.name}, {setting}: as natively ({remark})", same, "==", True)
        good = good and same
        if remark:
            remarks[remark if same else f"{setting}: {remark}"] = None
    found["result"] = "same" if good else "differs"
    found["remark"] = "; ".join(remarks)
    return found


def run_matrix(ctx: Context, test: Test, programs: list[Program], home: Path) -> None:
    for program in programs:
        left = ctx.runner.deadline - ctx.runner.now()
        if left < 10:
            test.measured[program.name] = {"result": "skipped", "remark": "no time was left"}
            continue
        test.measured[program.name] = try_program(ctx, test, program, home)
        print(f"{program.name}: {test.measured[program.name]['result']}", flush=True)
    ran = sum(each["result"] != "skipped" for each in test.measured.values())
    test.require("programs that ran", ran, ">", 0)
