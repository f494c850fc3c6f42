#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/PERFORMANCE.md, and the numbers in README.md, from the result files of
scripts/gpu-test and scripts/bench.

For each check the newest file in results/ that ran it counts; with --check nothing is written, and
the exit status is 1 if a page is not what the results say.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from zonelib import headline  # noqa: E402

INTRO = """\
# Performance

Written by scripts/zonelib/perf_gen.py from the files in results/; change those, not this page.

Each program runs natively and under libzone in turns on the same machine, and the best run of each
counts: what else a shared machine does only adds time. So more rounds of all runs follow, up to
three times as many, where a ratio is not met at first. Trust the ratios more than the last digit.
A requirement that was not met is printed as such.
"""
NOTHING_YET = """
There are no results yet: run `scripts/gpu-test --out results` on a machine with a GPU.
"""
# Kept in the result files for reading, too long for a table.
HIDDEN = {"report", "losses", "checksum"}


@dataclass
class Source:
    """A test as one result file has it."""

    file: str
    result: dict[str, Any]
    test: dict[str, Any]


def load(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The result files, oldest first."""
    loaded = [
        (path.name, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.json"))
    ]
    known = [(name, each) for name, each in loaded if isinstance(each, dict) and "tests" in each]
    return sorted(known, key=lambda pair: str(pair[1].get("date", "")))


def ran(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tests that ran to their end: not those after the time for the suite was used up, nor the
    one that was running then."""
    kept: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for test in tests:
        error = str(test.get("error", ""))
        if not error.startswith("not run"):
            kept.append(test)
        elif (
            "time" in error
            and kept
            and kept[-1] is before
            and any(run.get("timed_out") for run in before.get("runs", []))
        ):
            kept.pop()
        before = test
    return kept


def newest_tests(results: list[tuple[str, dict[str, Any]]]) -> list[Source]:
    """Each test from the newest file that ran it, in the order of the file with the most tests."""
    chosen: dict[str, Source] = {}
    for name, result in results:
        for test in ran(result["tests"]):
            if test["name"] == "matrix":
                continue  # docs/COMPATIBILITY.md, by matrix_gen.py
            chosen[test["name"]] = Source(name, result, test)
    longest = max((result["tests"] for _, result in results), key=len, default=[])
    order = {test["name"]: at for at, test in enumerate(longest)}
    return sorted(chosen.values(), key=lambda s: order.get(s.test["name"], len(order)))


def shown(value: Any) -> str:
    """A value as the page prints it: four digits are more than any of them is good for."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value == int(value) and abs(value) < 1e15:
            return str(int(value))
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(shown(each) for each in value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def requirement_table(requirements: list[dict[str, Any]]) -> list[str]:
    if not requirements:
        return []
    lines = [row(["requirement", "wanted", "measured", "met"]), row(["---"] * 4)]
    for each in requirements:
        wanted = f"{each['op']} {shown(each['limit'])}"
        met = "yes" if each["ok"] else "**no**"
        lines.append(row([shown(each["text"]), wanted, shown(each["measured"]), met]))
    return ["", *lines]


def columns_of(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The metrics of all rows in the order they first appear."""
    columns: dict[str, None] = {}
    for values in rows.values():
        columns.update(dict.fromkeys(name for name in values if name not in HIDDEN))
    return [name for name in columns if not any(is_nested(r.get(name)) for r in rows.values())]


def is_nested(value: Any) -> bool:
    return isinstance(value, dict)


def measured_tables(measured: dict[str, Any]) -> list[str]:
    """A table for what was measured by case, and a list for single numbers."""
    rows = {label: values for label, values in measured.items() if is_nested(values)}
    # Reports of libzone are data for a tool, not for a table.
    rows = {label: values for label, values in rows.items() if "total" not in values}
    columns = columns_of(rows)
    lines: list[str] = []
    if columns:
        lines += ["", row(["case", *columns]), row(["---"] * (len(columns) + 1))]
        for label, values in rows.items():
            lines.append(row([label, *(shown(values.get(name)) for name in columns)]))
    singles = {k: v for k, v in measured.items() if not is_nested(v) and k not in HIDDEN}
    if singles:
        lines += ["", *(f"- {name}: {shown(value)}" for name, value in singles.items())]
    return lines


def machine_table(sources: list[Source]) -> list[str]:
    files = {source.file: source.result for source in sources}
    lines = ["", "## Machines", ""]
    head = ["file", "commit", "date", "GPU", "driver", "CUDA", "CPU", "kernel"]
    lines += [row(head), row(["---"] * len(head))]
    for name, result in files.items():
        machine = result.get("machine", {})
        cpu = f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores"
        values = [machine.get(key, "") for key in ("gpu", "driver", "cuda")]
        cells = [
            name,
            str(result.get("commit", ""))[:12],
            str(result.get("date", ""))[:10],
            *values,
        ]
        lines.append(row([shown(cell) for cell in [*cells, cpu, machine.get("kernel", "")]]))
    return lines


def page(results: list[tuple[str, dict[str, Any]]]) -> str:
    sources = newest_tests(results)
    if not sources:
        return INTRO + NOTHING_YET
    lines = machine_table(sources)
    for source in sources:
        test = source.test
        state = "" if test["ok"] else " (not met)"
        lines += ["", f"## {test['title'][:1].upper()}{test['title'][1:]}{state}", ""]
        lines.append(f"Check `{test['name']}` of {source.file}.")
        if test.get("error"):
            lines.append(f"It ended early: {shown(test['error'].strip().splitlines()[-1])}")
        lines += requirement_table(test["requirements"])
        lines += measured_tables(test["measured"])
    return INTRO + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "PERFORMANCE.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args()
    results = load(options.results)
    readme = options.readme.read_text(encoding="utf-8")
    wanted = {
        options.page: page(results),
        options.readme: headline.put(readme, newest_tests(results)),
    }
    stale = 0
    for path, text in wanted.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what {options.results} says: run {Path(__file__).name}")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
