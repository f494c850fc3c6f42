# SPDX-License-Identifier: Apache-2.0
"""Runs a program, and every program that it starts, with libzone.

Sets ZONE_ALLOC_CONF and ZONE_REPORT, appends libzone.so to LD_PRELOAD, passes signals on and
returns the program's exit code (128+n if signal n ended it, 127 if it was not found). Unless
--report or ZONE_REPORT sends the reports elsewhere, they are printed on stderr when the program has
ended, and one line says so if no process asked for GPU memory through libzone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from zonelib import launch, preload
from zonelib.errors import ZoneError
from zonelib.paths import find_library

HELP = "run a program with libzone"
USAGE = "zone run [-h] [-c CONF] [-r PATTERN] [--off] [--lib FILE] [--] PROGRAM [ARGUMENT ...]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of zone run."""
    parser.add_argument(
        "-c",
        "--conf",
        action="append",
        default=[],
        metavar="CONF",
        help="settings, key:value,… as in ZONE_ALLOC_CONF, and added to it; may be given again",
    )
    parser.add_argument(
        "-r",
        "--report",
        metavar="PATTERN",
        help="a report file for each process: %%p is the process id, %%h the host, %%r the rank, "
        "%%q{VAR} a variable; JSON if it ends in .json; 'none' for no report",
    )
    parser.add_argument(
        "--off", action="store_true", help="preload libzone but switch it off (ZONE_DISABLE=1)"
    )
    parser.add_argument("--lib", metavar="FILE", help="another libzone.so")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def make_environment(args: argparse.Namespace, library: Path) -> dict[str, str]:
    """The program's environment: ours with the four settings."""
    env = dict(os.environ)
    env["LD_PRELOAD"] = preload.with_libzone(env.get("LD_PRELOAD", ""), library)
    if args.conf:
        inherited = env.get("ZONE_ALLOC_CONF", "")
        env["ZONE_ALLOC_CONF"] = ",".join(part for part in [inherited, *args.conf] if part)
    if args.report is not None:
        env["ZONE_REPORT"] = args.report
    if args.off:
        env["ZONE_DISABLE"] = "1"
    return env


def print_reports(folder: Path, program: str) -> None:
    """What the processes left in the folder, in the order in which they ended."""
    reports = sorted(folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for report in reports:
        sys.stderr.write(report.read_text(encoding="utf-8", errors="replace"))
    if not reports:
        print(
            f"zone: {program} never asked for GPU memory through libzone, or was ended before it "
            "could report; zone doctor checks whether libzone works here",
            file=sys.stderr,
        )


def main(args: argparse.Namespace) -> int:
    """Runs the program and returns its exit code."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ZoneError("run: no program given; usage: " + USAGE, 2)
    env = make_environment(args, find_library(args.lib))
    if env.get("ZONE_DISABLE") == "1" or env.get("ZONE_REPORT"):
        # Nothing is left to do afterwards, so the program may as well take our place.
        launch.replace(command, env)
    folder = Path(tempfile.mkdtemp(prefix="zone-run-"))
    try:
        env["ZONE_REPORT"] = str(folder).replace("%", "%%") + "/%p.txt"
        code = launch.run_and_wait(command, env)
        print_reports(folder, command[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code
