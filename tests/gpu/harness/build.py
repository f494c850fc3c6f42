# SPDX-License-Identifier: Apache-2.0
"""Builds libzone and the victims with Meson and the programs of tests/gpu with nvcc."""

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .machine import find_nvcc
from .runner import run_limited

BUILD_LIMIT_S = 240.0


@dataclass(frozen=True)
class Program:
    """One executable: nvcc's flags decide how it reaches the driver."""

    name: str
    source: str
    flags: tuple[str, ...] = ()


SHARED = ("-cudart", "shared")
DRIVER = ("-cudart", "none", "-DUSE_DRIVER_API", "-lcuda")

# The longest to compile first.
PROGRAMS = (
    Program("thrust_sort", "thrust_sort.cu"),
    Program("thrust_sort_shared", "thrust_sort.cu", SHARED),
    Program("four_streams", "four_streams.cu"),
    Program("four_streams_shared", "four_streams.cu", SHARED),
    Program("waiting_kernel", "waiting_kernel.cu"),
    Program("launch_latency", "launch_latency.cu"),
    Program("fill_card", "fill_card.cu"),
    Program("fault", "fault.cu"),
    Program("reset", "reset.cu"),
    Program("driver_facts", "driver_facts.cu", ("-lcuda", "-ldl")),
    Program("driver_facts_async", "driver_facts_async.cu", ("-lcuda",)),
    Program("async_pair", "async_pair.c"),
    Program("pair_static", "pair.c"),
    Program("pair_shared", "pair.c", SHARED),
    Program("pair_driver", "pair.c", DRIVER),
    Program("counts_static", "counts.c"),
    Program("counts_shared", "counts.c", SHARED),
    Program("counts_driver", "counts.c", DRIVER),
    Program("scale", "scale.c"),
    Program("walk", "walk.c", ("-cudart", "none", "-ldl")),
)


@dataclass
class Step:
    """One build command and how it went."""

    name: str
    ok: bool
    seconds: float
    output: str


def timed(name: str, command: list[str], limit_s: float = BUILD_LIMIT_S) -> Step:
    start = time.monotonic()
    rc, output, timed_out = run_limited(command, os.environ, limit_s)
    ok = rc == 0 and not timed_out
    return Step(name, ok, round(time.monotonic() - start, 2), "" if ok else output[-4000:])


def nvcc_command(nvcc: str, source_dir: Path, program: Program, out: Path) -> list[str]:
    cuda = Path(nvcc).resolve().parent.parent
    libraries = [flag for flag in program.flags if flag.startswith("-l")]
    others = [flag for flag in program.flags if not flag.startswith("-l")]
    return [
        nvcc,
        "-arch=sm_90",
        "-O2",
        "-D_GNU_SOURCE",
        "-Xcompiler=-Wall,-Wextra",
        *others,
        str(source_dir / program.source),
        "-o",
        str(out / program.name),
        f"-L{cuda / 'lib64' / 'stubs'}",
        f"-Xlinker=-rpath,{cuda / 'lib64'}",
        "-lpthread",
        *libraries,
    ]


def is_current(program: Program, source_dir: Path, out: Path) -> bool:
    """Built after the last change of any source here: headers are shared."""
    built = out / program.name
    sources = [path for end in ("c", "h", "cu", "cuh") for path in source_dir.glob(f"*.{end}")]
    changed = max(path.stat().st_mtime for path in sources)
    return built.exists() and built.stat().st_mtime > changed


def build_program(nvcc: str, source_dir: Path, program: Program, out: Path) -> Step:
    if is_current(program, source_dir, out):
        return Step(program.name, True, 0.0, "")
    return timed(program.name, nvcc_command(nvcc, source_dir, program, out))


def build_programs(source_dir: Path, out: Path, names: set[str] | None = None) -> list[Step]:
    nvcc = find_nvcc()
    if not nvcc:
        return [Step("nvcc", False, 0.0, "nvcc not found")]
    out.mkdir(parents=True, exist_ok=True)
    wanted = [program for program in PROGRAMS if names is None or program.name in names]
    with ThreadPoolExecutor(max_workers=max(2, (os.cpu_count() or 2) // 2)) as workers:
        return list(workers.map(lambda each: build_program(nvcc, source_dir, each, out), wanted))


def meson() -> list[str]:
    found = shutil.which("meson")
    return [found] if found else [sys.executable, "-m", "mesonbuild.mesonmain"]


def cuda_options(root: Path, cuda: Path) -> list[str]:
    """The project's options for CUDA's headers and libraries, by the names that it declares."""
    declared = re.findall(
        r"^option\(\s*'(\w+)'", read_text(root / "meson_options.txt"), re.MULTILINE
    )
    folders = {"include": cuda / "include", "lib": cuda / "lib64"}
    return [
        f"-D{name}={folder}"
        for name in declared
        for ending, folder in folders.items()
        if name.endswith("_" + ending)
    ]


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def build_libzone(root: Path, build_dir: Path, buildtype: str) -> list[Step]:
    """Warnings of another compiler than CI's do not stop a measurement, nor does one bad victim."""
    nvcc = find_nvcc()
    cuda = Path(nvcc).resolve().parent.parent if nvcc else Path("/usr/local/cuda")
    setup = [*meson(), "setup", str(build_dir), str(root)]
    if (build_dir / "build.ninja").exists():
        setup.append("--reconfigure")
    setup += [
        "-Dreal_cuda=true",
        "-Dcheck=disabled",
        "-Dwerror=false",
        f"-Dbuildtype={buildtype}",
        *cuda_options(root, cuda),
    ]
    steps = [timed("meson setup", setup)]
    if steps[0].ok:
        steps.append(timed("ninja", ["ninja", "-C", str(build_dir), "-k", "0"]))
    return steps


def build_sabotaged(root: Path, name: str, out: Path) -> tuple[Path | None, str]:
    """A libzone with one rule removed (scripts/sabotage), or None and why there is none."""
    script = root / "scripts" / "sabotage"
    if not script.exists():
        return None, "scripts/sabotage does not exist"
    step = timed(f"sabotage {name}", [str(script), "build", name, str(out)], 120.0)
    library = out / "shim" / "libzone.so"
    if not step.ok or not library.exists():
        return None, f"scripts/sabotage build {name} failed: {step.output[-500:]}"
    return library, ""


def tests_of(build_dir: Path) -> str:
    """Meson's own list of tests, as JSON text."""
    done = subprocess.run(
        [*meson(), "introspect", "--tests", str(build_dir)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout
