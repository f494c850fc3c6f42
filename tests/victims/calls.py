#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/CALLS.md: which failures of which driver calls were tried, and what the program saw.

    calls.py --check HOOKS_DEF CALLS_MD LIBZONE VICTIM…   fails if a run says something else
    calls.py --write HOOKS_DEF CALLS_MD LIBZONE VICTIM…   writes what a run says

The victims are fail_memory, fail_objects, fail_pools and fail_inside. Every row of hooks.def has to
be among what they tried, and nothing else may be.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# Calls of the driver that fail

Written by tests/victims/calls.py from a run of the victims fail_memory, fail_objects, fail_pools
and fail_inside on the simulated GPU, which scripts the failures; `meson test calls` fails if a run
says something else, or if a function of shim/hooks.def is missing here.

Each call failed with 2 (out of memory), 1 (invalid value), 801 (not supported) and 999 (unknown),
as the first call and after one that went well; calls made by libzone itself as the first, second
and third from then on. Each failed with 700 (illegal address) in a process of its own, where the
context is lost with it until a reset. After each failure memory, streams and captures work, and at
the end as much memory is free, and as many allocations, arrays, contexts, events, graphs, modules,
pools and streams live as before. Calls of the program give the same codes without libzone.

| the program sees | |
| --- | --- |
| the code | each code as it is |
| the code, 2 after another try | if a pool holds memory, 2 makes libzone give it back and call \
again; the code of that call counts |
| nothing | no call of the program fails |
| at most the code | one call of the program fails with it at most, or none |

| call | of | in libzone | the program sees |
| --- | --- | --- | --- |
"""

SEES = {
    "as it is": "the code",
    "again": "the code, 2 after another try",
    "never": "nothing",
    "once": "at most the code",
}


def kind_text(kind: str) -> str:
    if kind.startswith("RETRY"):
        return "passed on"
    return {"RESOLVE": "looks functions up", "SERVE": "served", "CALL": "called only"}[kind]


def run(victim: str, libzone: str) -> list[list[str]]:
    """The rows that a victim prints under libzone; ends the program if it fails."""
    env = dict(os.environ, LD_PRELOAD=libzone, ZSIM_MEMORY_MB="128", ZSIM_DEVICES="2")
    done = subprocess.run([victim], env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{victim}: {done.returncode}\n{done.stderr}")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [line[1:] for line in lines if line[0] == "call"]


def main() -> None:
    mode, hooks_def, calls_md, libzone, *victims = sys.argv[1:]
    text = re.sub(r"/\*.*?\*/", "", Path(hooks_def).read_text(encoding="utf-8"), flags=re.S)
    hooked = set(re.findall(r"^(?:HOOK|CALL)\((\w+),", text, re.M))
    rows = [row for victim in victims for row in run(victim, libzone)]
    tried = {row[0] for row in rows}
    if hooked - tried or tried - hooked:
        sys.exit(f"not tried: {sorted(hooked - tried)}, unknown: {sorted(tried - hooked)}")
    rows.sort(key=lambda row: (row[0], row[1] == "made by libzone itself", row[1]))
    table = [
        f"| {name} | {what} | {kind_text(kind)} | {SEES[sees]} |" for name, what, kind, sees in rows
    ]
    page = HEAD + "\n".join(table) + "\n"
    if mode == "--write":
        Path(calls_md).write_text(page, encoding="utf-8")
        return
    known = Path(calls_md).read_text(encoding="utf-8") if Path(calls_md).exists() else ""
    if known != page:
        said, now = known.splitlines(), page.splitlines()
        different = [line for line in now if line not in said]
        different += [f"no longer: {line}" for line in said if line not in now]
        sys.exit(f"{calls_md} is not what a run says; calls.py --write\n" + "\n".join(different))
    print(f"{len(table)} rows, {len(hooked)} functions")


if __name__ == "__main__":
    main()
