# SPDX-License-Identifier: Apache-2.0
"""The rows: tests/sabotage/NAME.json, each one change that removes one rule.

{"name": as the file, "rule": what is removed, in words,
 "file": path, "old": text that occurs exactly once in it, "new": what stands there instead,
 "caught_by": names of meson tests, "cases": what in them must fail (may be empty)}
old and new may be lists of lines.

tests/sabotage/stress/hunted.txt lists rows that the stress run must find by itself, "kind name" a
line. They are those above or, where only stress notices, others beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("fence", "order", "lock", "bound", "state")
HUNTED = Path("tests") / "sabotage" / "stress"
KEYS = {"name", "rule", "file", "old", "new", "caught_by", "cases"}


class RowError(Exception):
    """A row that cannot be used, with the reason."""


@dataclass(frozen=True)
class Row:
    name: str
    rule: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    cases: tuple[str, ...]

    def apply(self, text: str) -> str:
        """The file's text with the rule removed."""
        found = text.count(self.old)
        if found != 1:
            raise RowError(f"{self.name}: `old` occurs {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def text_of(value: Any) -> str:
    """A string, or a list of lines."""
    return "\n".join(value) if isinstance(value, list) else str(value)


def parse(name: str, data: Any) -> Row:
    """A row from its JSON; RowError says what is wrong with it."""
    if not isinstance(data, dict) or set(data) != KEYS:
        raise RowError(f"{name}: the keys must be {', '.join(sorted(KEYS))}")
    row = Row(
        name=data["name"],
        rule=data["rule"],
        file=data["file"],
        old=text_of(data["old"]),
        new=text_of(data["new"]),
        caught_by=tuple(data["caught_by"]),
        cases=tuple(data["cases"]),
    )
    if row.name != name:
        raise RowError(f"{name}: is named {row.name}")
    if not row.old or row.old == row.new:
        raise RowError(f"{name}: changes nothing")
    if not row.rule or not row.caught_by:
        raise RowError(f"{name}: names no rule or no test")
    return row


def load(root: Path, folder: Path = HUNTED.parent) -> list[Row]:
    """All rows of a source tree, by name."""
    rows = []
    for path in sorted((root / folder).glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RowError(f"{path.stem}: not JSON: {error}") from error
        rows.append(parse(path.stem, data))
    return rows


def load_hunted(root: Path) -> list[tuple[str, Row]]:
    """The rows that stress must find, each with its kind."""
    known = {row.name: row for row in [*load(root), *load(root, HUNTED)]}
    found = []
    for line in (root / HUNTED / "hunted.txt").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2 or words[0] not in KINDS or words[1] not in known:
            raise RowError(f"hunted.txt: not a kind and the name of a row: {line}")
        found.append((words[0], known[words[1]]))
    return found


def pick(rows: list[Row], names: list[str]) -> list[Row]:
    """The named rows, all if none is named."""
    known = {row.name: row for row in rows}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RowError(f"no row {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else rows


def problems(root: Path) -> list[str]:
    """What is wrong with the rows of a tree: each must still apply to its file."""
    found = []
    try:
        rows = [*load(root), *load(root, HUNTED)]
    except RowError as error:
        return [str(error)]
    for row in rows:
        path = root / row.file
        if not path.is_file():
            found.append(f"{row.name}: there is no {row.file}")
            continue
        try:
            row.apply(path.read_text(encoding="utf-8"))
        except RowError as error:
            found.append(str(error))
    return found
