# SPDX-License-Identifier: Apache-2.0
"""What the Python programs share: the form of what they print, turns, and how much of the card is
in use, asked of the driver from outside this process.

What a process under libzone is told as free counts what the pool would give back, so the memory
that a run really took is read by nvidia-smi, which must not run under the preload itself.
"""

import os
import subprocess
import sys
from collections.abc import Callable


def device_used_mib() -> int | None:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.strip()
    return int(text) if text.isdigit() else None


def put(name: str, value: object) -> None:
    """One measured value, in the form that the harness reads."""
    print(f"{name}={value}", flush=True)


def take_turns(works: dict[str, Callable[[], float]]) -> None:
    """Does each once, to be warm, and then what the lines of standard input name."""
    for work in works.values():
        work()
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        put(name, works[name]())
