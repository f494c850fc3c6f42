# SPDX-License-Identifier: Apache-2.0
"""Runs one checker over the source tree: tools.py NAME ROOT BUILD [CUDA_INCLUDE]

NAME is format (clang-format), tidy (clang-tidy), cppcheck, shellcheck or ruff.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tree import c_files, files, finish, shell_files, skip

HERE = Path(__file__).resolve().parent


def run(command: list[str]) -> str:
    """The command's output if it failed, else nothing."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return ""
    said = (done.stdout + done.stderr).strip()
    return said or f"{command[0]}: exit code {done.returncode}"


def over_all(commands: list[list[str]]) -> list[str]:
    """Runs the commands, as many at once as there are cores; what the failed ones said."""
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        return [said for said in workers.map(run, commands) if said]


def check_format(root: Path, _build: Path, _cuda: str) -> tuple[list[str], int, str]:
    """clang-format, with the file at the top of the tree."""
    sources = c_files(root)
    command = ["clang-format", "--dry-run", "--Werror", "--style=file"]
    said = run(command + [str(path) for path in sources])
    return ([said] if said else []), len(sources), "files"


def check_tidy(root: Path, build: Path, _cuda: str) -> tuple[list[str], int, str]:
    """clang-tidy on the pool and the shim, with the flags that meson compiles them with."""
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    compiled = {(build / entry["file"]).resolve() for entry in database}
    sources = [path for path in c_files(root, ["pool", "shim"], ".c") if path in compiled]
    command = [
        "clang-tidy",
        "--quiet",
        f"--config-file={HERE / 'clang-tidy.yaml'}",
        "-p",
        str(build),
    ]
    # The flags are gcc's; clang need not know every warning among them.
    command += ["--extra-arg=-Wno-unknown-warning-option", "--warnings-as-errors=*"]
    return over_all([[*command, str(path)] for path in sources]), len(sources), "files"


def check_cppcheck(root: Path, _build: Path, cuda: str) -> tuple[list[str], int, str]:
    """cppcheck on the pool and the shim."""
    sources = c_files(root, ["pool", "shim"], ".c")
    command = ["cppcheck", "--quiet", "--error-exitcode=1", "--std=c11", "--platform=unix64"]
    command += ["--enable=warning,performance,portability", "--inline-suppr", "-D_GNU_SOURCE"]
    command += ["-D__x86_64__=1", "-D__linux__=1", "-D__GLIBC__=2", "-D__GLIBC_MINOR__=36"]
    command += ["-D__STDC_VERSION__=201710L"]
    command += [f"--suppressions-list={HERE / 'cppcheck.txt'}", f"--suppress=*:{cuda}/*"]
    command += [f"-I{root / 'pool'}", f"-I{root / 'shim'}", f"-I{root}", f"-I{cuda}"]
    said = run([*command, "-j", str(os.cpu_count()), *map(str, sources)])
    return ([said] if said else []), len(sources), "files"


def check_shellcheck(root: Path, _build: Path, _cuda: str) -> tuple[list[str], int, str]:
    """shellcheck on everything whose first line names a shell."""
    scripts = shell_files(root)
    said = run(["shellcheck", *map(str, scripts)])
    return ([said] if said else []), len(scripts), "scripts"


def check_ruff(root: Path, _build: Path, _cuda: str) -> tuple[list[str], int, str]:
    """ruff on every Python file."""
    sources = [path for path in files(root) if path.suffix == ".py"]
    said = run(
        ["ruff", "check", "--no-cache", f"--config={HERE / 'ruff.toml'}", *map(str, sources)]
    )
    return ([said] if said else []), len(sources), "files"


CHECKS: dict[str, tuple[str, Callable[[Path, Path, str], tuple[list[str], int, str]]]] = {
    "format": ("clang-format", check_format),
    "tidy": ("clang-tidy", check_tidy),
    "cppcheck": ("cppcheck", check_cppcheck),
    "shellcheck": ("shellcheck", check_shellcheck),
    "ruff": ("ruff", check_ruff),
}


def main(argv: list[str]) -> int:
    name, root, build = argv[1], Path(argv[2]).resolve(), Path(argv[3]).resolve()
    cuda = argv[4] if len(argv) > 4 else ""
    program, check = CHECKS[name]
    # ruff comes with scripts/setup's Python tools.
    os.environ["PATH"] = f"{root / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    if shutil.which(program) is None:
        return skip(f"no {program} here; scripts/setup installs it")
    return finish(*check(root, build, cuda))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
