# SPDX-License-Identifier: Apache-2.0
"""The table of rules, tests and failures, for the terminal and for docs/TESTING.md."""

from __future__ import annotations

from pathlib import Path

from .check import Failure, Outcome

BEGIN = "<!-- written by scripts/sabotage check --write -->"
END = "<!-- end of what scripts/sabotage writes -->"
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


def write(path: Path, outcomes: list[Outcome]) -> None:
    """Puts the table between the marks."""
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{path}: the two marks of the table are not there")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{markdown(outcomes)}\n{END}{after}", encoding="utf-8")
