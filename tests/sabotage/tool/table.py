# SPDX-License-Identifier: Apache-2.0
"""The table of rules, tests and failures, for the terminal and for docs/TESTING.md."""

from __future__ import annotations

import statistics
from pathlib import Path

from .check import Failure, Outcome

BEGIN = "<!-- written by scripts/sabotage check --write -->"
END = "<!-- end of what scripts/sabotage writes -->"
HUNT_BEGIN = "<!-- written by scripts/sabotage hunt --write -->"
HUNT_END = "<!-- end of what scripts/sabotage hunt writes -->"
HOW_MAX = 110


def cell(text: str) -> str:
    """Text that a table cell may hold."""
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= HOW_MAX else text[: HOW_MAX - 1] + "…"


def most_telling(outcome: Outcome) -> Failure | None:
    """The first failure among those that the row names, else the first of all."""
    for failure in outcome.failures:
        if failure.case in outcome.row.cases:
            return failure
    return outcome.failures[0] if outcome.failures else None


def line(outcome: Outcome) -> str:
    """One row of the table."""
    failure = most_telling(outcome)
    if failure is None:
        return f"| {cell(outcome.row.rule)} | – | {cell(outcome.problem)} |"
    more = len(outcome.failures) - 1
    where = f"{failure.test}: {failure.case}" if failure.case else failure.test
    where += f", {more} more" if more else ""
    return f"| {cell(outcome.row.rule)} | {cell(where)} | {cell(failure.how)} |"


def markdown(outcomes: list[Outcome]) -> str:
    """The table as docs/TESTING.md holds it."""
    head = ["| rule | test | how it failed |", "| --- | --- | --- |"]
    return "\n".join([*head, *(line(outcome) for outcome in outcomes)])


def hunted(kinds: dict[str, str], hunts: list[list[Outcome]]) -> str:
    """The table of what stress found, from all runs of each row."""
    lines = ["| kind | rule | found after | how |", "| --- | --- | --- | --- |"]
    for outcomes in hunts:
        row = outcomes[0].row
        missed = [outcome for outcome in outcomes if not outcome.is_caught()]
        if missed:
            when, how = f"missed {len(missed)} of {len(outcomes)}", missed[0].problem
        else:
            when = f"{statistics.median(outcome.seconds for outcome in outcomes):.1f} s"
            how = outcomes[0].failures[0].how
        lines.append(f"| {kinds[row.name]} | {cell(row.rule)} | {when} | {cell(how)} |")
    return "\n".join(lines)


def write(path: Path, content: str, begin: str = BEGIN, end: str = END) -> None:
    """Puts a table between its marks."""
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path}: the two marks of the table are not there")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n{content}\n{end}{after}", encoding="utf-8")
