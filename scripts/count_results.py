# SPDX-License-Identifier: Apache-2.0
"""Prints the logs of failed tests and sums all into the last line: "N passed, N failed, N skipped".

Reads the table that scripts/test writes (label, exit code, seconds, log base or "-") and, for each
meson test run, meson's own logs: BASE.json has one line a test, BASE.junit.xml the parts of TAP
tests.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
SKIP_CODE = 77
LOG_LINES = 100


@dataclass
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def note(self, result: str) -> None:
        if result in PASSED:
            self.passed += 1
        elif result in SKIPPED:
            self.skipped += 1
        else:
            self.failed += 1


def tap_parts(junit: Path) -> dict[str, Count]:
    """The parts of each TAP test, by the test's name; other tests have none."""
    parts: dict[str, Count] = {}
    if not junit.exists():
        return parts
    for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
        # A TAP test is a suite of its own, "PROJECT.NAME"; the others share the suite "PROJECT".
        _, _, test = suite.get("name", "").partition(".")
        if not test:
            continue
        count = parts.setdefault(test, Count())
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                count.failed += 1
            elif case.find("skipped") is not None:
                count.skipped += 1
            else:
                count.passed += 1
    return parts


def show_log(label: str, row: dict) -> None:
    """A failed test's command and the end of what it printed."""
    print(f"\n=== {label}: {row['name']}: {row['result']} (exit code {row['returncode']})")
    print("$ " + " ".join(row["command"]))
    for stream in ("stdout", "stderr"):
        lines = row.get(stream, "").splitlines()
        if len(lines) > LOG_LINES:
            print(f"... {len(lines) - LOG_LINES} lines of {stream} left out")
        for line in lines[-LOG_LINES:]:
            print(f"| {line}")


def meson_run(label: str, base: str, code: int) -> Count:
    """One run of meson test. A run that failed without a failed test counts as one failure."""
    total = Count()
    log = Path(base + ".json")
    parts = tap_parts(Path(base + ".junit.xml"))
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    for line in lines:
        row = json.loads(line)
        bad = row["result"] not in PASSED | SKIPPED
        if bad:
            show_log(label, row)
        count = parts.get(row["name"])
        if count is None:
            total.note(row["result"])
            continue
        total.add(count)
        if bad and count.failed == 0:
            total.failed += 1
    if code != 0 and total.failed == 0:
        total.failed += 1
    return total


def main(table: str) -> int:
    total = Count()
    rows: list[str] = []
    for line in Path(table).read_text(encoding="utf-8").splitlines():
        label, code, seconds, base = line.split("\t")
        if base == "-":
            count = Count()
            count.note({0: "OK", SKIP_CODE: "SKIP"}.get(int(code), "FAIL"))
        else:
            count = meson_run(label, base, int(code))
        total.add(count)
        rows.append(f"{label:<24}{count.passed:>8}{count.failed:>8}{count.skipped:>8}{seconds:>9}")
    print(f"\n{'step':<24}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}")
    print("\n".join(rows))
    print(f"\n{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
