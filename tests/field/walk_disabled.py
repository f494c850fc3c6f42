# SPDX-License-Identifier: Apache-2.0
"""Switched off, libzone changes no pointer that a look-up gives: walk_disabled.py WALK LIBZONE

What the program's own scope holds (RTLD_DEFAULT) is another matter: libzone is loaded and in it.
"""

from __future__ import annotations

import os
import subprocess
import sys


def walk(program: str, extra: dict[str, str]) -> list[str]:
    """The lines of a walk over the driver's symbols, but for those about the program's scope."""
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([program], env=env | extra, stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("default ")]


def main(program: str, libzone: str) -> int:
    native = walk(program, {})
    served = walk(program, {"LD_PRELOAD": libzone})
    off = walk(program, {"LD_PRELOAD": libzone, "ZONE_DISABLE": "1"})
    # RTLD_NEXT from the program finds the preload's dlsym first, whatever that does.
    found = [
        f"{theirs}  |  {ours}"
        for theirs, ours in zip(native, off, strict=True)
        if theirs != ours and not theirs.startswith("next dlsym ")
    ]
    print("\n".join(found[:40]))
    print(f"{len(native)} lines, {len(found)} differences")
    return 1 if found or len(native) < 1000 or served == native else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
