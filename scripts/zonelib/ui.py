# SPDX-License-Identifier: Apache-2.0
"""Tables for people: Rich on a terminal if it is installed, aligned plain text everywhere else."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

# Column texts that carry a meaning get a colour on a terminal.
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows under headers."""
    if sys.stdout.isatty() and _print_rich(headers, rows):
        return
    for line in _aligned([headers, *rows]):
        print(line)


def print_checks(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Prints status, name, finding and advice; in plain text the advice has a line of its own."""
    if sys.stdout.isatty() and _print_rich(("", "check", "found", "what to do"), rows):
        return
    for line, row in zip(_aligned([row[:3] for row in rows]), rows, strict=True):
        print(line)
        if row[3]:
            print(f"      -> {row[3]}")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One text a row. On a terminal the last column is folded, so that it stays a column."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    offset = sum(width + 2 for width in widths)
    room = shutil.get_terminal_size().columns - offset if sys.stdout.isatty() else 0
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        last = textwrap.wrap(row[-1], room) if room > 20 else [row[-1]]
        text = ("\n" + " " * offset).join(last)
        lines.append("  ".join([*cells, text]).rstrip())
    return lines


def _print_rich(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(*headers, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console().print(table)
    return True
