#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn kernels.ptx into a C string: kernels.py IN OUT."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    lines = [
        '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'
        for line in source.read_text(encoding="utf-8").splitlines()
    ]
    target.write_text(
        '#include "victim.h"\n\nconst char victim_ptx[] =\n' + "\n".join(lines) + ";\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
