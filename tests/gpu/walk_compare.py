#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the driver answers natively with what it answers under libzone.

Every code and status must be equal, and every pointer the driver's own, except pointers to the
functions named in shim/hooks.def: those must land in libzone.so, one wrapper for each driver
function. Exit status 0: no difference; 1: differences, listed; 77: there is no driver here.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

LIBZONE = "libzone.so"
# Exported by libzone and no driver name: a look-up in the global scope finds it there.
OWN_EXPORTS = {"dlsym"}


@dataclass
class Comparison:
    lines: int = 0
    substituted: int = 0
    wrappers: int = 0
    differences: list[str] = field(default_factory=list)


def hooked_names(hooks_text: str) -> set[str]:
    """The driver functions that the hook table substitutes; it also has rows of mere callees."""
    without_comments = re.sub(r"/\*.*?\*/", " ", hooks_text, flags=re.DOTALL)
    return set(re.findall(r"\bHOOK\w*\s*\(\s*(cu[A-Z]\w*)", without_comments))


def split_line(line: str) -> tuple[str, str]:
    """A line of walk: the question with its codes, and where the pointer led."""
    question, _, where = line.rpartition(" ")
    return question, where


def is_zone(where: str) -> bool:
    return where.startswith(LIBZONE + "+")


def driver_addresses(lines: list[str], hooked: set[str]) -> set[str]:
    """Where the driver keeps the functions that libzone wraps, from the native dlsym lines."""
    found = set()
    for line in lines:
        kind, name, *_ = line.split(" ")
        where = split_line(line)[1]
        if kind == "dlsym" and name in hooked and where != "null":
            found.add(where)
    return found


def expect_zone(question: str, where: str, wrapped_at: set[str], hooked: set[str]) -> bool:
    kind, name = question.split(" ")[:2]
    if kind in ("default", "next"):
        return name in OWN_EXPORTS or (kind == "default" and name in hooked)
    return where in wrapped_at


def compare(native: list[str], zone: list[str], hooked: set[str]) -> Comparison:
    result = Comparison(lines=len(native))
    if len(native) != len(zone):
        result.differences.append(f"{len(native)} lines natively, {len(zone)} under libzone")
    wrapped_at = driver_addresses(native, hooked)
    wrapper_of: dict[str, str] = {}
    for native_line, zone_line in zip(native, zone):
        question, native_where = split_line(native_line)
        zone_question, zone_where = split_line(zone_line)
        if question != zone_question:
            result.differences.append(f"{native_line}  |  {zone_line}")
            continue
        by_scope = question.startswith(("default ", "next "))
        if expect_zone(question, native_where, wrapped_at, hooked):
            # A name that this library does not export is found nowhere, as natively.
            if not is_zone(zone_where) and not (by_scope and zone_where == native_where):
                result.differences.append(f"not substituted: {native_line}  |  {zone_line}")
            elif not by_scope:
                result.substituted += 1
                known = wrapper_of.setdefault(native_where, zone_where)
                if known != zone_where:
                    result.differences.append(
                        f"two wrappers for {native_where}: {known} and {zone_where}"
                    )
        elif native_where != zone_where:
            result.differences.append(f"{native_line}  |  {zone_line}")
    result.wrappers = len(wrapper_of)
    if len(set(wrapper_of.values())) != len(wrapper_of):
        result.differences.append("one wrapper stands for two driver functions")
    return result


def run_walk(walk: str, preload: str | None) -> tuple[int, list[str]]:
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = preload
    done = subprocess.run([walk], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--walk", required=True, help="the built program tests/gpu/walk.c")
    parser.add_argument("--zone", required=True, help="libzone.so")
    parser.add_argument("--hooks", required=True, help="shim/hooks.def")
    parser.add_argument("--min-lines", type=int, default=1000, help="fewer mean walk saw no driver")
    options = parser.parse_args()

    hooked = hooked_names(Path(options.hooks).read_text(encoding="utf-8"))
    native_rc, native = run_walk(options.walk, None)
    if native_rc == 77:
        return 77
    zone_rc, zone = run_walk(options.walk, os.path.abspath(options.zone))
    if native_rc or zone_rc:
        print(f"walk gave {native_rc} natively, {zone_rc} under libzone")
        return 1
    result = compare(native, zone, hooked)
    if result.lines < options.min_lines or result.substituted == 0:
        result.differences.append("too little was compared to mean anything")
    for difference in result.differences[:40]:
        print(difference)
    print(f"lines={result.lines}")
    print(f"substituted={result.substituted}")
    print(f"wrappers={result.wrappers}")
    print(f"differences={len(result.differences)}")
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
