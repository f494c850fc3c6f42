# SPDX-License-Identifier: Apache-2.0
"""Checks how files are written: sources.py ROOT

Every source file names its licence at the top and stays under 500 lines; C comments are /* */;
headers have #pragma once; no line ends in blanks.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tree import files, finish, without_comments

LINE_LIMIT = 500
LICENCE = "SPDX-License-Identifier: Apache-2.0"
SOURCES = {".c", ".h", ".S", ".cu", ".cuh", ".def", ".py", ".sh", ".build", ".map", ".ini"}
C_LIKE = {".c", ".h", ".cu", ".cuh", ".def", ".S"}
# Written by a program from NVIDIA's headers: a row for each driver symbol.
GENERATED = {"tests/sim/api.def"}


def is_source(path: Path) -> bool:
    """Code, as opposed to data and prose."""
    if path.suffix in SOURCES:
        return True
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def line_comment(text: str) -> int | None:
    """The line number of the first // comment of C text, outside strings and /* */."""
    blanked = re.sub(
        r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL
    )
    blanked = re.sub(r"\"(?:\\.|[^\"\\\n])*\"", '""', blanked)
    at = blanked.find("//")
    return None if at < 0 else blanked.count("\n", 0, at) + 1


def check_file(place: str, text: str) -> list[str]:
    """The problems of one file."""
    lines = text.splitlines()
    suffix = Path(place).suffix
    problems = []
    if not any(LICENCE in line for line in lines[:2]):
        problems.append(f"{place}:1: no {LICENCE} in the first line")
    if len(lines) > LINE_LIMIT and place not in GENERATED:
        problems.append(f"{place}: {len(lines)} lines, more than {LINE_LIMIT}: split it by job")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            problems.append(f"{place}:{number}: blanks at the end of the line")
    if suffix in C_LIKE:
        number = line_comment(text)
        if number is not None:
            problems.append(f"{place}:{number}: a // comment; write /* */")
    if suffix == ".h" and "#pragma once" not in without_comments(text):
        problems.append(f"{place}: no #pragma once")
    return problems


def all_sources(root: Path) -> list[Path]:
    """The source files of a tree and the build files at its top."""
    found = [path for path in files(root) if is_source(path)]
    return [*found, root / "meson.build", root / "meson_options.txt"]


if __name__ == "__main__":
    ROOT = Path(sys.argv[1])
    CHECKED = all_sources(ROOT)
    PROBLEMS: list[str] = []
    for source in CHECKED:
        PROBLEMS += check_file(str(source.relative_to(ROOT)), source.read_text(encoding="utf-8"))
    sys.exit(finish(PROBLEMS, len(CHECKED), "files"))
