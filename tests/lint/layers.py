# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom: layers.py ROOT

The shim knows CUDA and the process, the pool knows memory: the pool includes no CUDA header and
nothing of the shim, and calls neither dlsym nor getenv. No file includes itself in the end.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tree import c_files, finish, without_comments

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
CUDA_HEADER = re.compile(r"cu(da|blas|fft|dnn|pti|rand)?\w*\.h|.*/crt/.*|nccl\.h|nvml\.h")
POOL_NEVER_CALLS = ("dlsym", "dlvsym", "dlopen", "getenv", "secure_getenv", "setenv", "putenv")


def includes(path: Path) -> list[str]:
    """What the file includes, as written."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return INCLUDE.findall(text)


def resolve(root: Path, path: Path, name: str) -> Path | None:
    """The file of this project that an include names, if it is one."""
    for place in (path.parent, root, root / "pool", root / "shim"):
        candidate = (place / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate
    return None


def check_pool(root: Path) -> list[str]:
    """The pool's own rules."""
    problems = []
    for path in c_files(root, ["pool"], ".c .h .def"):
        place = path.relative_to(root)
        for name in includes(path):
            if CUDA_HEADER.fullmatch(Path(name).name):
                problems.append(f"{place}: includes the CUDA header {name}")
            target = resolve(root, path, name)
            if target is not None and target.is_relative_to(root / "shim"):
                problems.append(f"{place}: includes {name} of the shim")
            if target is not None and target.is_relative_to(root / "tests"):
                problems.append(f"{place}: includes {name} of the tests")
        text = without_comments(path.read_text(encoding="utf-8"))
        for function in POOL_NEVER_CALLS:
            if re.search(rf"\b{function}\b", text):
                problems.append(f"{place}: names {function}; that is the shim's business")
    return problems


def check_shim(root: Path) -> list[str]:
    """The shim includes nothing of the tests."""
    problems = []
    for path in c_files(root, ["shim"], ".c .h .def .S"):
        for name in includes(path):
            target = resolve(root, path, name)
            if target is not None and target.is_relative_to(root / "tests"):
                problems.append(f"{path.relative_to(root)}: includes {name} of the tests")
    return problems


def check_cycles(root: Path, folders: list[str]) -> list[str]:
    """Cycles among the headers. Tables (.def) are included again and again on purpose."""
    graph: dict[Path, list[Path]] = {}
    for path in c_files(root, folders):
        targets = [resolve(root, path, name) for name in includes(path)]
        graph[path.resolve()] = [t for t in targets if t is not None and t.suffix == ".h"]
    problems: list[str] = []
    done: set[Path] = set()

    def visit(path: Path, trail: list[Path]) -> None:
        if path in trail:
            names = [str(p.relative_to(root)) for p in [*trail[trail.index(path) :], path]]
            problems.append("include cycle: " + " → ".join(names))
            return
        if path in done:
            return
        for target in graph.get(path, []):
            visit(target, [*trail, path])
        done.add(path)

    for path in sorted(graph):
        visit(path, [])
    return problems


def check(root: Path) -> list[str]:
    """All problems of a source tree."""
    root = root.resolve()
    return check_pool(root) + check_shim(root) + check_cycles(root, ["pool", "shim", "tests"])


if __name__ == "__main__":
    ROOT = Path(sys.argv[1]).resolve()
    sys.exit(finish(check(ROOT), len(c_files(ROOT, ["pool", "shim"])), "files"))
