# SPDX-License-Identifier: Apache-2.0
"""Checks a configuration string, as ZONE_ALLOC_CONF takes it, and explains every setting.

The answer comes from libzone's own parser. Without a string the current ZONE_ALLOC_CONF is read.
Exit code 1 if the string has a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from typing import Any

from zonelib import ui
from zonelib.errors import ZoneError
from zonelib.paths import find_tool

HELP = "check and explain a configuration string"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of zone conf."""
    parser.add_argument("conf", nargs="?", metavar="CONF", help="key:value,key:[value,…],…")
    parser.add_argument("--json", action="store_true", help="print what the parser says as JSON")


def ask_parser(conf: str) -> dict[str, Any]:
    """What the C parser makes of the string."""
    tool = find_tool("zone-conf", "scripts/conf/zone-conf")
    done = subprocess.run([str(tool), "--json", conf], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise ZoneError(f"{tool}: {said}") from None


def main(args: argparse.Namespace) -> int:
    """Prints problems and settings; 1 if there is a problem."""
    conf = os.environ.get("ZONE_ALLOC_CONF", "") if args.conf is None else args.conf
    answer = ask_parser(conf)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print_answer(answer)
    return 1 if answer["problems"] else 0


def print_answer(answer: dict[str, Any]) -> None:
    """Problems first, then remarks, then the settings as they are in effect."""
    remarks = [*answer["problems"], *answer["notes"]]
    for remark in remarks:
        print(remark["text"])
    if remarks:
        print()
    rows = [setting_row(setting) for setting in answer["settings"] if is_shown(setting)]
    ui.print_table(("", "setting", "value", "default", "meaning"), rows)


def is_shown(setting: dict[str, Any]) -> bool:
    """What is in effect, and what the string names; not every key that PyTorch knows."""
    return setting["served"] or setting["given"]


def setting_row(setting: dict[str, Any]) -> tuple[str, ...]:
    """A star marks what the string sets; a key without effect says why."""
    meaning = setting["doc"] if setting["served"] else f"no effect: {setting['reason']}"
    mark = "*" if setting["given"] else ""
    return (mark, setting["key"], setting["value"], setting["default"], meaning)
