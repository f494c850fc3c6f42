#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the linker's version script: every intercepted name of hooks.def and every call of
libzone.h, unversioned."""

import re
import sys
from pathlib import Path


def main() -> None:
    """exports.py HOOKS_DEF LIBZONE_H OUTPUT"""
    hooks, header, output = sys.argv[1:]
    names = re.findall(r"^HOOK\((\w+),", Path(hooks).read_text(), re.MULTILINE)
    calls = re.findall(r"^int (zone_\w+)\(", Path(header).read_text(), re.MULTILINE)
    exported = "".join(f"    {name};\n" for name in ["dlsym", *calls, *names])
    # An anonymous node: programs bound to the driver's names would pass a version of ours by.
    Path(output).write_text("{\nglobal:\n" + exported + "local:\n    *;\n};\n")


if __name__ == "__main__":
    main()
