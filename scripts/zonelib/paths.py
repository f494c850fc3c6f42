# SPDX-License-Identifier: Apache-2.0
"""Where libzone.so and the small C tools are: in the build folder beside scripts/, or installed."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from zonelib.errors import ZoneError

LIBRARY = "libzone.so"


def _code_dir() -> Path:
    return Path(__file__).resolve().parent.parent


def _source_root() -> Path | None:
    """The source tree, if this code runs from its scripts/ folder."""
    code = _code_dir()
    if code.name == "scripts" and (code.parent / "meson.build").is_file():
        return code.parent
    return None


def _prefix() -> Path:
    """The installation prefix: the code is in PREFIX/share/libzone."""
    return _code_dir().parent.parent


def _library_dirs(prefix: Path) -> list[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    names = ([f"lib/{multiarch}"] if multiarch else []) + ["lib64", "lib"]
    return [prefix / name / "zone" for name in names]


def library_places() -> list[Path]:
    """Every path where libzone.so may be, the best first."""
    root = _source_root()
    if root is not None:
        return [root / "build" / "shim" / LIBRARY]
    return [folder / LIBRARY for folder in _library_dirs(_prefix())]


def find_library(explicit: str | None = None) -> Path:
    """The absolute path of libzone.so; ZoneError says where it was looked for."""
    if explicit is not None:
        path = Path(explicit).absolute()
        if not path.is_file():
            raise ZoneError(f"{explicit}: no such file", 2)
        return path
    places = library_places()
    for path in places:
        if path.is_file():
            return path
    hint = "; scripts/try or scripts/test builds it" if _source_root() else ""
    raise ZoneError(f"{LIBRARY} not found at {', '.join(map(str, places))}{hint}", 2)


def find_tool(name: str, build_path: str) -> Path:
    """A C tool: BUILD/build_path in the source tree, beside libzone.so or in bin when installed."""
    root = _source_root()
    if root is not None:
        places = [root / "build" / build_path]
    else:
        prefix = _prefix()
        folders = [prefix / "libexec" / "zone", *_library_dirs(prefix), prefix / "bin"]
        places = [folder / name for folder in folders]
    for path in places:
        if path.is_file():
            return path
    raise ZoneError(f"{name} not found at {', '.join(map(str, places))}", 2)
