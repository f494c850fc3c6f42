# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts/sabotage."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from . import build, rows, table
from .check import Bench, Outcome

STRESS = "stress/zone"
STRESS_SECONDS = 60.0


def list_rows(root: Path) -> int:
    """Prints the rows."""
    for row in rows.load(root):
        print(f"{row.name:28} {row.rule}")
        print(f"{'':28} {row.file}, noticed by {', '.join(row.caught_by)}")
    return 0


def lint(root: Path) -> int:
    """Checks that every row still applies."""
    found = rows.problems(root)
    for problem in found:
        print(problem)
    print(f"{len(rows.load(root)) if not found else 'not all'} rows apply")
    return 1 if found else 0


def build_row(root: Path, name: str, out: Path, arguments: list[str]) -> int:
    """Builds a libzone.so without the rule."""
    row = rows.pick([*rows.load(root), *rows.load(root, rows.HUNTED)], [name])[0]

    def change(source: Path) -> None:
        path = source / row.file
        build.put(path, row.apply(path.read_text(encoding="utf-8")).encode())

    print(build.build_library(root, change, out.resolve(), arguments))
    return 0


def report(outcome: Outcome, seconds: float) -> None:
    """One line a row while it goes on."""
    word = "noticed" if outcome.is_caught() else "NOT NOTICED"
    print(f"{word}: {outcome.row.name} ({seconds:.1f} s) {outcome.problem}", flush=True)
    for failure in outcome.failures:
        print(f"    {failure.test} {failure.case}: {failure.how}")


def check(root: Path, names: list[str], write: bool, verbose: bool, work: Path) -> int:
    """Checks rows; 0 when a test noticed each."""
    chosen = rows.pick(rows.load(root), names)
    bench = Bench(root, work.resolve(), verbose)
    bench.prepare()
    broken = bench.baseline(chosen)
    if broken:
        print(f"fails with every rule in place: {', '.join(broken)}")
        return 1
    outcomes = []
    for row in chosen:
        start = time.monotonic()
        outcomes.append(bench.check(row))
        report(outcomes[-1], time.monotonic() - start)
    missed = [outcome for outcome in outcomes if not outcome.is_caught()]
    print()
    print(table.markdown(outcomes))
    print(f"\n{len(outcomes) - len(missed)} of {len(outcomes)} sabotages noticed")
    if write and not missed and not names:
        table.write(root / "docs" / "TESTING.md", table.markdown(outcomes))
    return 1 if missed or not outcomes else 0


def judge_time(outcome: Outcome) -> None:
    """What the stress run finds too late it has not found."""
    if outcome.is_caught() and outcome.seconds > STRESS_SECONDS:
        outcome.problem = f"found after {outcome.seconds:.0f} s only"


def hunt(root: Path, names: list[str], times: int, write: bool, verbose: bool, work: Path) -> int:
    """Sees whether the stress run finds each listed rule missing; 0 when it does each time."""
    listed = rows.load_hunted(root)
    kinds = {row.name: kind for kind, row in listed}
    chosen = [
        replace(row, caught_by=(STRESS,), cases=())
        for row in rows.pick([row for _, row in listed], names)
    ]
    bench = Bench(root, work.resolve(), verbose)
    bench.prepare()
    if bench.baseline(chosen):
        print(f"{STRESS} fails with every rule in place")
        return 1
    hunts = []
    for row in chosen:
        hunts.append(bench.outcomes(row, times))
        for outcome in hunts[-1]:
            judge_time(outcome)
            report(outcome, outcome.seconds)
    missed = sum(any(not outcome.is_caught() for outcome in outcomes) for outcomes in hunts)
    print()
    print(table.hunted(kinds, hunts))
    print(f"\n{len(hunts) - missed} of {len(hunts)} sabotages found")
    if write and not missed and not names:
        content = table.hunted(kinds, hunts)
        table.write(root / "docs" / "TESTING.md", content, table.HUNT_BEGIN, table.HUNT_END)
    return 1 if missed or not hunts else 0


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments."""
    top = argparse.ArgumentParser(prog="scripts/sabotage", description=doc)
    verbs = top.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="the rows")
    verbs.add_parser("lint", help="does every row still apply to its file?")
    one = verbs.add_parser("build", help="libzone.so without one rule: OUTDIR/shim/libzone.so")
    one.add_argument("name")
    one.add_argument("outdir", type=Path)
    one.add_argument("arguments", nargs="*", help="for meson setup, after --")
    check_help = "does a test notice each?"
    hunt_help = "does the stress run find each of tests/sabotage/stress/hunted.txt?"
    for verb, text in (("check", check_help), ("hunt", hunt_help)):
        several = verbs.add_parser(verb, help=text)
        several.add_argument("names", nargs="*")
        several.add_argument("--write", action="store_true", help="the table in docs/TESTING.md")
        several.add_argument("--verbose", action="store_true", help="what a failed build printed")
        several.add_argument("--work", type=Path, help="folder for copy and build: build-sabotage")
        if verb == "hunt":
            several.add_argument("--times", type=int, default=1, help="so often each; default 1")
    return top


def main(root: Path, doc: str | None) -> int:
    """Runs one verb; errors are one line and exit code 1."""
    given = parser(doc).parse_args()
    try:
        if given.verb == "list":
            return list_rows(root)
        if given.verb == "lint":
            return lint(root)
        if given.verb == "build":
            return build_row(root, given.name, given.outdir, given.arguments)
        work = given.work or root / "build-sabotage"
        if given.verb == "hunt":
            return hunt(root, given.names, given.times, given.write, given.verbose, work)
        return check(root, given.names, given.write, given.verbose, work)
    except (rows.RowError, build.BuildError, ValueError, OSError) as error:
        print(f"sabotage: {error}", file=sys.stderr)
        return 1
