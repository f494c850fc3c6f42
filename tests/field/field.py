# SPDX-License-Identifier: Apache-2.0
"""Writes docs/FIELD_BUGS.md from field.json and checks both: field.py [--check] ROOT [BUILD]

Every row names tests, or says why there is none; every test named is one of the build's (`meson
test --list`) or of the GPU suite's (`gpu-test: NAME`). `NAME: part` names a part of a test, which
the test's source must know by that word. --check writes nothing and fails if the page is not what
it would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

BUGS = 54
Row = dict[str, Any]

INTRO = """# What went wrong elsewhere, and the tests that keep it from happening here

Written by tests/field/field.py from tests/field/field.json: edit that file, then run
`python3 tests/field/field.py .`. `meson test -C build NAME` runs a test of the tables;
`zone/NAME` is a program of tests/victims under libzone, `gpu-test: NAME` a check of
scripts/gpu-test. What stands behind a colon is the part of the test that shows the case.
"""


def sources_of(root: Path, name: str) -> list[Path]:
    """Where the parts of a test are written."""
    kind, _, rest = name.partition("/")
    if rest:
        return [root / "tests" / "victims" / f"{rest.split('.')[0]}.c"]
    kind, _, rest = name.partition(" ")
    folders = {"preload": "tests/preload", "zone": "scripts/zonelib/tests"}
    if rest and kind in folders:
        return [root / folders[kind] / f"test_{rest}.py"]
    if name == "lints":
        return [root / "tests" / "lint" / "test_lints.py"]
    return [root / "tests" / "unit" / f"test_{name}.c"]


def gpu_checks(root: Path) -> set[str]:
    """The names of the GPU suite's checks."""
    text = (root / "tests" / "gpu" / "harness" / "suite.py").read_text(encoding="utf-8")
    return {f"gpu-test: {name}" for name in re.findall(r'Check\("(\w+)"', text)}


def built_tests(build: Path) -> set[str]:
    """The names of the build's tests."""
    text = (build / "meson-info" / "intro-tests.json").read_text(encoding="utf-8")
    return {test["name"] for test in json.loads(text)}


def test_problems(root: Path, test: str, known: set[str], gpu: set[str]) -> list[str]:
    """What is wrong with the name of one test."""
    if test.startswith("gpu-test: "):
        return [] if test in gpu else [f"{test} is no check of the GPU suite"]
    name, _, part = test.partition(": ")
    if name not in known:
        return [f"{name} is no test of this build: rename it in tests/field/field.json too"]
    if not part:
        return []
    paths = [path for path in sources_of(root, name) if path.exists()]
    word = re.compile(rf"(?<!\w){re.escape(part)}(?!\w)")
    if any(word.search(path.read_text(encoding="utf-8")) for path in paths):
        return []
    return [f"{name} has no part {part}"]


def row_problems(row: Row) -> list[str]:
    """What a row lacks."""
    name = row.get("source") or row.get("event")
    missing = [key for key in row if key not in ("tests", "why") and not row[key]]
    problems = [f"{name}: no {key}" for key in missing]
    if not row["tests"] and not row["why"]:
        problems.append(f"{name}: neither a test nor a reason")
    return problems


def check(root: Path, build: Path, table: dict[str, list[Row]]) -> list[str]:
    """Everything that is wrong with the table."""
    known, gpu = built_tests(build), gpu_checks(root)
    problems = []
    if [row["number"] for row in table["bugs"]] != list(range(1, BUGS + 1)):
        problems.append(f"the bugs are not numbered from 1 to {BUGS}")
    for row in (row for rows in table.values() for row in rows):
        problems += row_problems(row)
        for test in row["tests"]:
            problems += test_problems(root, test, known, gpu)
    return problems


def proof(row: Row) -> str:
    """The last column."""
    tests = ", ".join(f"`{test}`" for test in row["tests"])
    return f"{tests}. {row['why']}" if tests and row["why"] else tests or row["why"]


def lines_of(headers: str, rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---"] * len(headers.split(" | "))
    return [f"| {headers} |", f"| {' | '.join(rule)} |", *(f"| {' | '.join(r)} |" for r in cells)]


def page(table: dict[str, list[Row]]) -> str:
    """The whole page."""
    lines = [INTRO]
    lines += ["## Bugs of other libraries that stand between programs and CUDA", ""]
    lines += lines_of(
        "no | where | what went wrong | test",
        [[str(r["number"]), r["source"], r["symptom"], proof(r)] for r in table["bugs"]],
    )
    topic = ""
    for row in table["cases"]:
        if row["topic"] != topic:
            topic = row["topic"]
            rows = [r for r in table["cases"] if r["topic"] == topic]
            lines += ["", f"## Users' problems: {topic}", ""]
            lines += lines_of(
                "where | what the program does | what went wrong | test",
                [[r["source"], r["case"], r["symptom"], proof(r)] for r in rows],
            )
    lines += ["", "## The life of a process", ""]
    lines += lines_of("what happens | test", [[r["event"], proof(r)] for r in table["life"]])
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    only_check = arguments[:1] == ["--check"]
    root, *builds = [Path(argument).resolve() for argument in arguments[only_check:]]
    table = json.loads((root / "tests" / "field" / "field.json").read_text(encoding="utf-8"))
    target = root / "docs" / "FIELD_BUGS.md"
    problems = [problem for build in builds for problem in check(root, build, table)]
    text = page(table)
    if not only_check:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        problems.append("docs/FIELD_BUGS.md is out of date: run python3 tests/field/field.py .")
    print("\n".join(problems))
    rows = sum(len(rows) for rows in table.values())
    print(f"{rows} rows checked, {len(problems)} problems")
    return 1 if problems or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
