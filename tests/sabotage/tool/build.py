# SPDX-License-Identifier: Apache-2.0
"""Copies of the source tree, and Meson in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Never part of a copy where git cannot be asked: what .gitignore names.
LEFT_OUT = {".git", ".venv", ".cuda", ".root", ".out", "__pycache__"}
# What libzone.so is built from.
LIBRARY = ("meson.build", "meson_options.txt", "include/", "pool/", "shim/")
NO_TESTS = "# SPDX-License-Identifier: Apache-2.0\n# Only the library is built here.\n"


class BuildError(Exception):
    """A command that failed, with what it printed."""


def run(command: list[str], cwd: Path | None = None) -> str:
    """Runs a command that must succeed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def meson() -> list[str]:
    """How Meson is called here."""
    found = shutil.which("meson")
    return [found] if found else [sys.executable, "-m", "mesonbuild.mesonmain"]


def files_of_git(root: Path) -> list[str] | None:
    """Tracked files and new ones that are not ignored; None where git does not know."""
    if not (root / ".git").exists() or not shutil.which("git"):
        return None
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def files_of_folder(root: Path) -> Iterator[str]:
    """The same by looking, without git."""
    for folder, names, files in os.walk(root):
        place = Path(folder).relative_to(root)
        top = place == Path()
        names[:] = sorted(
            name
            for name in names
            if name not in LEFT_OUT and not (top and name.startswith("build"))
        )
        for name in sorted(files):
            yield str(place / name)


def source_files(root: Path) -> list[str]:
    """The files of a source tree that exist."""
    listed = files_of_git(root)
    names = files_of_folder(root) if listed is None else listed
    return [name for name in names if (root / name).is_file()]


def put(path: Path, data: bytes) -> None:
    """Writes a file unless it is so already: an untouched file is not compiled again."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def copy_tree(root: Path, to: Path, wanted: Callable[[str], bool]) -> None:
    """Makes `to` the same as the tree's wanted files; what is more there goes."""
    names = {name for name in source_files(root) if wanted(name)}
    for name in names:
        put(to / name, (root / name).read_bytes())
        shutil.copymode(root / name, to / name)
    if to.is_dir():
        for name in list(files_of_folder(to)):
            if name not in names:
                (to / name).unlink()


def toolkit(root: Path, arguments: list[str]) -> list[str]:
    """Where the copy finds CUDA's headers: where the tree does."""
    headers = root / ".cuda" / "include"
    given = any(argument.startswith("-Dtoolkit_include=") for argument in arguments)
    return [f"-Dtoolkit_include={headers}"] if headers.is_dir() and not given else []


def configure(root: Path, source: Path, build: Path, arguments: list[str]) -> None:
    """meson setup, once for a build folder."""
    if not (build / "build.ninja").is_file():
        shutil.rmtree(build, ignore_errors=True)
        # A sabotage may leave a variable unused.
        options = [*toolkit(root, arguments), "-Dwerror=false", *arguments]
        run([*meson(), "setup", str(build), str(source), *options])


def is_library(name: str) -> bool:
    return name.startswith(LIBRARY)


def build_library(
    root: Path, change: Callable[[Path], None], out: Path, arguments: list[str]
) -> Path:
    """Builds libzone.so from a changed copy of the tree in out/src; returns out/shim/libzone.so."""
    source, build, library = out / "src", out / "build", out / "shim" / "libzone.so"
    copy_tree(root, source, is_library)
    for folder in ("tests", "scripts"):
        put(source / folder / "meson.build", NO_TESTS.encode())
    change(source)
    configure(root, source, build, ["-Dcheck=disabled", *arguments])
    run(["ninja", "-C", str(build), "shim/libzone.so"])
    library.parent.mkdir(parents=True, exist_ok=True)
    library.unlink(missing_ok=True)
    shutil.copy2(build / "shim" / "libzone.so", library)
    return library


def introspect(build: Path, what: str) -> list[dict[str, Any]]:
    """Meson's own lists, such as tests and targets."""
    return list(json.loads(run([*meson(), "introspect", f"--{what}", str(build)])))
