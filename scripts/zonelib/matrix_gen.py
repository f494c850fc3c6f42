#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of public programs in docs/COMPATIBILITY.md from the result files of
scripts/gpu-test --matrix.

Each program's newest result counts, so the shards of a run, and runs of single programs, add up.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from zonelib.perf_gen import load, row, shown  # noqa: E402

BEGIN = "<!-- written by scripts/zonelib/matrix_gen.py -->"
END = "<!-- end of what matrix_gen.py writes -->"
SETTINGS = ("default", "sync", "cut", "off")


def newest(results: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """For each program what the newest file says of it; a skipped run hides no earlier one."""
    found: dict[str, dict[str, Any]] = {}
    for name, result in results:
        for test in result["tests"]:
            for program, each in test["measured"].items() if test["name"] == "matrix" else ():
                if each["result"] != "skipped" or program not in found:
                    found[program] = {**each, "file": name}
    return found


def speed(each: dict[str, Any], setting: str) -> str:
    seen = each.get(setting)
    if not seen or not each.get("native_s"):
        return "–"
    times = seen["seconds"] / each["native_s"]
    return f"{times:.2f}" if seen["same"] else "**differs**"


def block(found: dict[str, dict[str, Any]]) -> str:
    lines = [BEGIN, ""]
    if not found:
        return "\n".join([*lines, "Not run yet.", "", END])
    ran = [each for each in found.values() if each["result"] != "skipped"]
    same = sum(each["result"] == "same" for each in ran)
    lines += [
        f"{same} of {len(ran)} programs are as natively with every setting; "
        f"{len(found) - len(ran)} were skipped. Times are those of the whole process, divided "
        "by the native one.",
        "",
        row(["program", "result", "natively, s", *SETTINGS, "remarks"]),
        row(["---"] * (len(SETTINGS) + 4)),
    ]
    for program, each in sorted(found.items()):
        cells = [program, each["result"], shown(each.get("native_s"))]
        cells += [speed(each, setting) for setting in SETTINGS]
        lines.append(row([*cells, shown(each.get("remark", ""))]))
    return "\n".join([*lines, "", END])


def put(text: str, found: dict[str, dict[str, Any]]) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError("docs/COMPATIBILITY.md has no place for the programs")
    before, rest = text.split(BEGIN)
    return before + block(found) + rest.split(END)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "COMPATIBILITY.md")
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    wanted = put(text, newest(load(options.results)))
    if options.check and wanted != text:
        print(f"{options.page} is not what {options.results} says: run {Path(__file__).name}")
        return 1
    if not options.check:
        options.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
