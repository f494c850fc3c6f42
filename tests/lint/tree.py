# SPDX-License-Identifier: Apache-2.0
"""What the lints share: which files there are, and how a lint reports and ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDERS = ("shim", "pool", "include", "tests", "scripts", "docs", ".ci")
SKIPPED = 77


def files(root: Path, folders: Iterable[str] = FOLDERS) -> Iterator[Path]:
    """Every file of these folders, sorted; nothing hidden, no caches."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".whl":
                yield path


def c_files(root: Path, folders: Iterable[str] = FOLDERS, suffixes: str = ".c .h") -> list[Path]:
    """The C sources and headers of these folders."""
    return [path for path in files(root, folders) if path.suffix in suffixes.split()]


def shell_files(root: Path) -> list[Path]:
    """Scripts with a shell in their first line."""
    found = []
    for path in files(root):
        with path.open("rb") as stream:
            first = stream.readline(100)
        if re.match(rb"#!.*\b(ba)?sh\b", first):
            found.append(path)
    return found


def without_comments(text: str) -> str:
    """C text with comments and string contents blanked; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith(("/*", "//")):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + found[-1]

    pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def finish(problems: list[str], checked: int, what: str) -> int:
    """Prints the problems, one a line, and returns the exit code. Checking nothing is a failure."""
    for problem in problems:
        print(problem)
    if checked == 0:
        print(f"nothing to check: no {what}")
        return 1
    print(f"{checked} {what} checked, {len(problems)} problems")
    return 1 if problems else 0


def skip(why: str) -> int:
    """Says why nothing could be checked; meson counts the test as skipped."""
    print(f"skipped: {why}", file=sys.stderr)
    return SKIPPED
