# SPDX-License-Identifier: Apache-2.0
"""Writes the tables in docs/OPTIONS.md and docs/STATS.md from libzone's own tables.

docs_gen.py [--check] ZONE_CONF DOCS

A page is prose with marked places: what stands between `<!-- NAME -->` and `<!-- end NAME -->` is
generated. --check changes nothing and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

UNITS = {"bytes": "bytes", "count": "", "ns": "ns", "code": "CUresult"}
KINDS = {"gauge": "gauge", "level": "now", "sum": "sum", "last": "last"}


def ask(tool: str, what: str) -> Any:
    """One of zone-conf's tables."""
    done = subprocess.run([tool, what], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    headers = list(headers)
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in r)} |" for r in lines
    )


def served_options(options: list[dict[str, Any]]) -> str:
    """A section per option that has an effect."""
    parts = []
    for option in options:
        if option["served"]:
            origin = " A key of PyTorch." if option["origin"] == "PyTorch" else ""
            live = " Can be changed while the program runs." if option["live"] else ""
            parts.append(
                f"### {option['key']}\n\n{option['doc']}{origin}{live}\n\n"
                f"Takes {option['expected']}. Default: `{option['default']}`."
            )
    return "\n\n".join(parts)


def other_options(options: list[dict[str, Any]], origin: str) -> str:
    """The options that are read and checked, and do nothing."""
    return table(
        ("key", "default", "takes", "what it is for", "why it has no effect"),
        (
            (f"`{o['key']}`", f"`{o['default']}`", o["expected"], o["doc"], o["reason"])
            for o in options
            if not o["served"] and o["origin"] == origin
        ),
    )


def counters(answer: dict[str, Any]) -> str:
    """Every counter."""
    return table(
        ("name", "kind", "unit", "meaning"),
        (
            (f"`{c['name']}`", KINDS[c["kind"]], UNITS[c["unit"]], c["doc"])
            for c in answer["counters"]
        ),
    )


def balances(answer: dict[str, Any]) -> str:
    """The equations among counters."""
    return "\n".join(f"- `{balance}`" for balance in answer["balances"])


def fill(page: str, parts: dict[str, Callable[[], str]]) -> str:
    """The page with the marked places filled in; each place must be there once."""
    for name, part in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            raise SystemExit(f"docs_gen: {start} … {end} must be there once")
        text = f"{start}\n{part()}\n{end}"
        page = re.sub(
            f"{re.escape(start)}.*?{re.escape(end)}", lambda _, text=text: text, page, flags=re.S
        )
    return page


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Fills the tables of docs/ from libzone's own.")
    parser.add_argument(
        "--check", action="store_true", help="say what is out of date, write nothing"
    )
    parser.add_argument("zone_conf")
    parser.add_argument("docs", type=Path)
    args = parser.parse_args(argv)
    options = ask(args.zone_conf, "--table")
    counted = ask(args.zone_conf, "--counters")
    pages: dict[str, dict[str, Callable[[], str]]] = {
        "OPTIONS.md": {
            "served": lambda: served_options(options),
            "pytorch": lambda: other_options(options, "PyTorch"),
            "own": lambda: other_options(options, "libzone"),
        },
        "STATS.md": {
            "counters": lambda: counters(counted),
            "balances": lambda: balances(counted),
        },
    }
    stale = 0
    for name, parts in pages.items():
        path = args.docs / name
        before = path.read_text(encoding="utf-8")
        after = fill(before, parts)
        if before == after:
            continue
        stale += 1
        if args.check:
            print(f"{path} is out of date: run scripts/zonelib/docs_gen.py {args.zone_conf} docs")
        else:
            path.write_text(after, encoding="utf-8")
            print(f"{path} written")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
