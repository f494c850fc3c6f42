# SPDX-License-Identifier: Apache-2.0
"""LD_PRELOAD as a list: libzone is appended, what others put there stays."""

from __future__ import annotations

import re
from pathlib import Path

from zonelib.errors import ZoneError
from zonelib.paths import LIBRARY

# ld.so takes both as separators, and has no way to quote them.
SEPARATORS = re.compile(r"[ :]+")


def entries(value: str) -> list[str]:
    """The objects named by an LD_PRELOAD value."""
    return [entry for entry in SEPARATORS.split(value) if entry]


def has_libzone(value: str) -> bool:
    """Is a libzone.so, this one or another, in the list already?"""
    return any(Path(entry).name == LIBRARY for entry in entries(value))


def with_libzone(value: str, library: Path) -> str:
    """The value with libzone appended, unless one is there: one pool is enough."""
    if SEPARATORS.search(str(library)):
        raise ZoneError(
            f"{library}: LD_PRELOAD cannot carry a path with a space or a colon; link it elsewhere",
            2,
        )
    if has_libzone(value):
        return value
    return ":".join([*entries(value), str(library)])
