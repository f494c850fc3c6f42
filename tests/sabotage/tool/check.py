# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a row against a tree with its rule removed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import build
from .rows import Row, RowError

# Check's TAP lines, and those of tests/lint/tap.py.
NOT_OK = re.compile(r"^not ok \d+ (?:- )?(.*)$", re.MULTILINE)
CHECK_CASE = re.compile(r"^\S+?:[^:]*:(\w+): (.*)$")
PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# What the stress run says first is what was wrong; how to repeat it comes last.
STRESS = re.compile(
    r"^stress: (?:seed \S+ round \d+ (?:thread \d+ step \d+ )?)?(.*)$", re.MULTILINE
)
ATTEMPTS = 3


@dataclass
class Failure:
    """One test that noticed."""

    test: str
    case: str  # "" where the test has none
    how: str


@dataclass
class Outcome:
    """What became of a row."""

    row: Row
    failures: list[Failure] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0  # how long the tests ran

    def is_caught(self) -> bool:
        """All tests and cases that the row names failed."""
        return bool(self.failures) and not self.problem


def one_line(text: str) -> str:
    """The last line that says something and is not of a report, at most 160 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("zone[")]
    stress = STRESS.search("\n".join(lines))
    if stress:
        return re.sub(r" \(\w+\.c:\d+\)$", "", stress[1])[:160]
    return lines[-1][:160] if lines else ""


def steady(text: str) -> str:
    """A message without what differs from run to run and from folder to folder."""
    text = re.sub(r"0x[0-9a-f]{5,}", "0x…", text)
    return re.sub(r"(\.\./)+(src/)?", "", text)


def failures_of(test: str, result: str, stdout: str, returncode: int) -> list[Failure]:
    """How a failed test failed, case by case where it has cases."""
    found = []
    for text in NOT_OK.findall(stdout):
        match = CHECK_CASE.match(text)
        if match:
            found.append(Failure(test, match[1], steady(match[2])))
        else:
            found.append(Failure(test, text.split(" ")[0], "failed"))
    if found:
        return found
    if result == "TIMEOUT":
        return [Failure(test, "", "did not end")]
    return [Failure(test, "", steady(one_line(stdout)) or f"exit code {returncode}")]


class Bench:
    """A copy of the tree that rules are removed from, and its build folder, used for all rows."""

    def __init__(self, root: Path, work: Path, log: bool) -> None:
        self.root, self.work, self.log = root, work, log
        self.source, self.build = work / "src", work / "build"
        self.targets: dict[str, list[str]] = {}

    def prepare(self) -> None:
        """Brings copy and configuration up to date; a broken configuration is made anew."""
        build.copy_tree(self.root, self.source, lambda name: True)
        try:
            build.configure(self.root, self.source, self.build, [])
            build.run(["ninja", "-C", str(self.build), "build.ninja"])
        except build.BuildError:
            shutil.rmtree(self.build, ignore_errors=True)
            build.configure(self.root, self.source, self.build, [])
        filenames = {
            target["id"]: [str(Path(name).relative_to(self.build)) for name in target["filename"]]
            for target in build.introspect(self.build, "targets")
        }
        for test in build.introspect(self.build, "tests"):
            wanted = [name for ident in test["depends"] for name in filenames.get(ident, [])]
            self.targets[test["name"]] = wanted

    def run_tests(self, tests: list[str]) -> list[dict[str, object]]:
        """Builds and runs tests; Meson's record of each."""
        wanted = sorted({name for test in tests for name in self.targets[test]})
        build.run(["ninja", "-C", str(self.build), *wanted])
        record = self.build / "meson-logs" / "sabotage.json"
        record.unlink(missing_ok=True)
        command = [*build.meson(), "test", "-C", str(self.build), "--no-rebuild"]
        command += ["--quiet", "--logbase", "sabotage", *tests]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not record.is_file():
            raise build.BuildError(f"{' '.join(command)}: no test ran")
        return [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]

    def baseline(self, rows: list[Row]) -> list[str]:
        """Tests that fail though nothing was removed: they could not notice anything."""
        tests = sorted({test for row in rows for test in row.caught_by if test in self.targets})
        if not tests:
            return []
        done = self.run_tests(tests)
        return [str(one["name"]) for one in done if one["result"] not in PASSED | SKIPPED]

    def check(self, row: Row) -> Outcome:
        """Removes the rule, runs the row's tests, and puts the rule back."""
        # A race that the change opens need not be lost each time.
        return self.outcomes(row, ATTEMPTS, until_caught=True)[-1]

    def outcomes(self, row: Row, times: int, until_caught: bool = False) -> list[Outcome]:
        """What became of the row each time."""
        tests = [test for test in row.caught_by if test in self.targets]
        if len(tests) < len(row.caught_by):
            missing = sorted(set(row.caught_by) - set(tests))
            return [Outcome(row, problem=f"there is no test {', '.join(missing)}")]
        path = self.source / row.file
        try:
            whole = path.read_text(encoding="utf-8")
            changed = row.apply(whole)
        except (RowError, OSError) as error:
            return [Outcome(row, problem=str(error))]
        build.put(path, changed.encode())
        found: list[Outcome] = []
        try:
            while len(found) < times and not (until_caught and found and found[-1].is_caught()):
                outcome = Outcome(row)
                for one in self.run_tests(tests):
                    self.take(outcome, one)
                self.judge(outcome)
                found.append(outcome)
        except build.BuildError as error:
            problem = f"does not build: {error}" if self.log else "does not build"
            found.append(Outcome(row, problem=problem))
        finally:
            build.put(path, whole.encode())
        return found

    def take(self, outcome: Outcome, one: dict[str, object]) -> None:
        """Adds one test's result."""
        name, result = str(one["name"]), str(one["result"])
        name = name.rsplit(" / ", 1)[-1]
        duration = one.get("duration")
        outcome.seconds += duration if isinstance(duration, float) else 0.0
        if result in PASSED:
            outcome.passed.append(name)
        elif result in SKIPPED:
            outcome.skipped.append(name)
        else:
            text = f"{one.get('stdout', '')}\n{one.get('stderr', '') or ''}"
            code = one.get("returncode")
            number = code if isinstance(code, int) else 0
            outcome.failures += failures_of(name, result, text, number)

    def judge(self, outcome: Outcome) -> None:
        """Says what is wrong with an outcome."""
        failed = {failure.test for failure in outcome.failures}
        cases = {failure.case for failure in outcome.failures}
        missed = [name for name in outcome.row.caught_by if name not in failed]
        missed += [case for case in outcome.row.cases if case not in cases]
        if missed:
            outcome.problem = f"not noticed by {', '.join(missed)}"
