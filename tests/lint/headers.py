# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of the pool and the shim alone: headers.py ROOT CUDA_INCLUDE COMPILER…

A header that needs another one included before it breaks whoever sorts includes. Those of include/
are for programs of others: they must do as C89 and as C++98, too.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tree import c_files, finish, skip

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
FLAGS = [*WARNINGS, "-std=gnu17", "-D_GNU_SOURCE", "-x", "c"]


PUBLIC = (
    ["-std=c89", "-pedantic-errors", "-x", "c"],
    ["-std=c++98", "-pedantic-errors", "-x", "c++"],
    ["-std=c++98", "-pedantic-errors", "-DLIBZONE_WEAK", "-x", "c++"],
)


def compile_alone(
    compiler: str, root: Path, cuda: str, header: Path, flags: list[str] = FLAGS
) -> str:
    """What the compiler says of a file that includes the header, twice, and nothing else."""
    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.write(f'#include "{header}"\n#include "{header}"\n')
        source.flush()
        command = [compiler, *flags, "-isystem", cuda]
        command += [f"-I{root / 'pool'}", f"-I{root / 'shim'}", f"-I{root}", source.name]
        return subprocess.run(command, capture_output=True, text=True).stderr


def main(root: Path, cuda: str, compilers: list[str]) -> int:
    present = [compiler for compiler in compilers if shutil.which(compiler)]
    if present != compilers:
        return skip(f"not all of {', '.join(compilers)} are here")
    headers = c_files(root, ["pool", "shim"], ".h")
    problems = []
    for header in headers:
        for compiler in compilers:
            said = compile_alone(compiler, root, cuda, header)
            if said:
                problems.append(f"{header.relative_to(root)} alone with {compiler}:\n{said}")
    public = c_files(root, ["include"], ".h")
    for header, compiler, flags in itertools.product(public, compilers, PUBLIC):
        said = compile_alone(compiler, root, cuda, header, [*WARNINGS, *flags])
        if said:
            problems.append(f"{header.relative_to(root)} with {compiler} {flags[0]}:\n{said}")
    headers += public
    return finish(problems, len(headers), "headers")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]))
