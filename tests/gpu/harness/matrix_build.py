# SPDX-License-Identifier: Apache-2.0
"""The public programs of tests/gpu/matrix.toml: fetched, and built for the matrix.

Everything lies under one folder: src/SOURCE, build/PROGRAM, and programs/PROGRAM, which holds the
executable `main` and the data files beside it, and is all that the machine with the GPU needs.
"""

import os
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .machine import find_nvcc
from .runner import run_limited

BUILD_LIMIT_S = 400.0
DATA_LIMIT_BYTES = 4 << 20
# What is no data file of a program.
CODE = {".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".o", ".md", ".txt~", ".vcxproj", ".sln"}


@dataclass(frozen=True)
class Source:
    name: str
    repository: str
    commit: str
    build: str
    include: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    name: str
    source: Source
    folder: str
    run: tuple[str, ...]
    flags: tuple[str, ...] = ()
    lone: bool = False


def read_table(path: Path) -> list[Program]:
    with open(path, "rb") as file:
        table = tomllib.load(file)
    sources = {
        name: Source(
            name, each["repository"], each["commit"], each["build"], tuple(each.get("include", ()))
        )
        for name, each in table["source"].items()
    }
    programs = [
        Program(
            f"{each['source']}/{each['name']}",
            sources[each["source"]],
            each["folder"],
            tuple(each["run"].split()),
            tuple(each.get("flags", ())),
            each.get("lone", False),
        )
        for each in table["program"]
    ]
    names = [program.name for program in programs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: more than once: {', '.join(twice)}")
    return programs


def fetch(source: Source, home: Path) -> str:
    """Empty, or why there is no source tree."""
    folder = home / "src" / source.name
    if folder.exists():
        return ""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for command in (
        ["git", "init", "--quiet"],
        ["git", "fetch", "--quiet", "--depth", "1", source.repository, source.commit],
        ["git", "checkout", "--quiet", "FETCH_HEAD"],
    ):
        done = subprocess.run(
            command, cwd=part, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            return f"{source.repository} cannot be fetched: {done.stdout.strip()[-300:]}"
    part.rename(folder)
    return ""


def commands(program: Program, nvcc: str, tree: Path) -> list[str]:
    """One command, run in the program's folder, that makes `main` or what the Makefile names."""
    if program.source.build == "make":
        return ["make", "ARCH=sm_90", f"CC={nvcc}"]
    here = tree / program.folder
    name = program.name.rpartition("/")[2]
    files = [f"{name}.cu"]
    if not program.lone:
        files = sorted(path.name for end in ("cu", "cpp") for path in here.glob(f"*.{end}"))
    includes = [f"-I{tree / folder}" for folder in program.source.include]
    return [
        nvcc,
        "-arch=sm_90",
        "-O3",
        "-std=c++17",
        *includes,
        *files,
        "-o",
        "main",
        *program.flags,
    ]


def executable_of(folder: Path) -> Path | None:
    """The newest file that can be run; `main` if there is one."""
    if (folder / "main").exists():
        return folder / "main"
    found = [
        path
        for path in folder.iterdir()
        if path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF"
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def build(program: Program, home: Path) -> str:
    """Empty, or why there is no executable."""
    done = home / "programs" / program.name
    tree = home / "src" / program.source.name
    nvcc = find_nvcc()
    if (done / "main").exists():
        return ""
    if not nvcc:
        return "nvcc not found"
    if not (tree / program.folder).is_dir():
        return f"{program.source.name} has no {program.folder}"
    work = home / "build" / program.name
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(tree / program.folder, work)
    command = commands(program, nvcc, tree)
    environment = dict(os.environ)
    rc, output, timed_out = run_limited(command, environment, BUILD_LIMIT_S, work)
    made = executable_of(work)
    if rc != 0 or timed_out or not made:
        (work / "build.log").write_text(output, encoding="utf-8")
        return f"does not build: {output.strip()[-300:]}"
    part = done.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for path in work.iterdir():
        small = path.is_file() and path.stat().st_size <= DATA_LIMIT_BYTES
        if small and path.suffix not in CODE and path != made and not program.lone:
            shutil.copy2(path, part)
    shutil.copy2(made, part / "main")
    subprocess.run(["strip", "-s", str(part / "main")], check=False)
    part.rename(done)
    shutil.rmtree(work, ignore_errors=True)
    return ""


def build_all(programs: list[Program], home: Path, jobs: int) -> dict[str, str]:
    """For each program why it cannot be run, empty if it can."""
    with ThreadPoolExecutor(max_workers=jobs) as workers:
        problems = list(workers.map(lambda each: build(each, home), programs))
    return {program.name: why for program, why in zip(programs, problems, strict=True)}
