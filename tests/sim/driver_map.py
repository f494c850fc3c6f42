#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the version script of an older driver: driver_map.py api.def 12020 OUT.

Only the symbols that a driver of that version has are exported, so that dlsym does not find the
others either.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main() -> None:
    table, version, target = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    rows = re.findall(
        r"^API\((\w+), \w+, \w+, (\d+),", table.read_text(encoding="utf-8"), re.MULTILINE
    )
    names = [name for name, since in rows if int(since) <= version]
    lines = ["{", "global:", *(f"    {name};" for name in [*names, "zsim_*"])]
    lines += ["local:", "    *;", "};"]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
