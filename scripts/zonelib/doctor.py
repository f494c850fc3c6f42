# SPDX-License-Identifier: Apache-2.0
"""Tells whether libzone can work on this machine, and what to do where it cannot.

Looks at the C library, the preload, the driver and its devices, MIG and MPS, the folders for shared
files and the environment. Exit code 1 if anything fails; warnings alone give 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zonelib import preload, ui
from zonelib.errors import ZoneError
from zonelib.paths import LIBRARY, find_library

HELP = "check whether libzone works on this machine"

OLDEST_GLIBC = (2, 17)
OLDEST_DRIVER = 12000
CONTEXT_EVENTS_DRIVER = 12050
VARIABLES = {"ZONE_ALLOC_CONF", "ZONE_REPORT", "ZONE_TRACE", "ZONE_DISABLE"}
CHILD_TIMEOUT_S = 30


@dataclass(frozen=True)
class Check:
    """One row: status is ok, warn or fail; advice is empty when there is nothing to do."""

    name: str
    status: str
    found: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of zone doctor."""
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.add_argument("--lib", metavar="FILE", help="another libzone.so")


# Children ----------------------------------------------------------------------------------------


def clean_environment(**extra: str) -> dict[str, str]:
    """Our environment without what would make libzone talk."""
    env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    env.pop("LD_PRELOAD", None)
    return env | extra


def run_probe(what: str, env: dict[str, str]) -> dict[str, Any]:
    """Runs probe.py in a child; {"error": …} if it hung or died."""
    probe = Path(__file__).with_name("probe.py")
    try:
        done = subprocess.run(
            [sys.executable, str(probe), what],
            env=env,
            capture_output=True,
            text=True,
            timeout=CHILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {CHILD_TIMEOUT_S} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"exit code {done.returncode}: {last}"}
    return json.loads(done.stdout.splitlines()[-1])


# Checks: each yields its rows --------------------------------------------------------------------


def check_system() -> Iterator[Check]:
    """Linux, x86-64 or aarch64, glibc."""
    machine = platform.machine()
    good = sys.platform == "linux" and machine in ("x86_64", "aarch64")
    yield Check(
        "system",
        "ok" if good else "fail",
        f"{platform.system()} {machine}",
        "" if good else "libzone runs on Linux, x86-64 and aarch64",
    )
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        text = ""
    version = tuple(int(part) for part in text.removeprefix("glibc ").split(".") if part.isdigit())
    if version >= OLDEST_GLIBC:
        yield Check("C library", "ok", text)
    else:
        yield Check(
            "C library",
            "fail",
            text or "not glibc",
            "glibc 2.17 or newer is needed; musl has no driver",
        )


def check_library(explicit: str | None) -> Iterator[Check]:
    """libzone.so is there, loads in front of any program and answers look-ups."""
    try:
        library = find_library(explicit)
        value = preload.with_libzone("", library)
    except ZoneError as error:
        yield Check("libzone", "fail", str(error), "build or install it, or name it with --lib")
        return
    yield Check("libzone", "ok", str(library))
    yield check_preload_quiet(value)
    yield check_preload_answers(value)


def check_preload_quiet(value: str) -> Check:
    """/bin/true under the preload: ld.so says so on stderr if it cannot load the object."""
    done = subprocess.run(
        ["/bin/true"], env=clean_environment(LD_PRELOAD=value), capture_output=True, text=True
    )
    said = (done.stderr + done.stdout).strip()
    if done.returncode == 0 and not said:
        return Check("preload", "ok", "/bin/true runs under it, silently")
    return Check(
        "preload",
        "fail",
        said.splitlines()[0] if said else f"/bin/true: exit code {done.returncode}",
        "the file must be readable, for this architecture, on a file system without noexec",
    )


def check_preload_answers(value: str) -> Check:
    """A child's dlsym, and the driver's functions if there is a driver, must come from libzone."""
    name = "interception"
    found = run_probe("preload", clean_environment(LD_PRELOAD=value))
    if "error" in found:
        return Check(name, "fail", found["error"], "please report this, with zone doctor --json")
    missed = [
        what
        for what in ("dlsym", "exported", "resolved")
        if what in found and not is_libzone(found[what])
    ]
    if missed:
        what = missed[0]
        return Check(
            name,
            "fail",
            f"{what} is answered by {found[what] or 'nobody'}",
            "something else answers look-ups in front of libzone; see LD_PRELOAD and LD_AUDIT",
        )
    if "resolved" in found:
        return Check(name, "ok", "look-ups of cuMemAlloc reach libzone")
    return Check(name, "ok", "dlsym reaches libzone (no driver to look up)")


def is_libzone(path: str | None) -> bool:
    """Is this the file that was preloaded?"""
    return path is not None and Path(path).name == LIBRARY


def check_driver() -> Iterator[Check]:
    """The driver's version, whether it starts, and each device."""
    found = run_probe("driver", clean_environment())
    if "error" in found:
        yield Check("driver", "fail", found["error"], "nvidia-smi should work first")
        return
    if "load_error" in found:
        yield Check(
            "driver",
            "fail",
            found["load_error"],
            "install the NVIDIA driver; start a container with its GPUs (--gpus all)",
        )
        return
    yield from driver_rows(found)


def driver_rows(found: dict[str, Any]) -> Iterator[Check]:
    """Rows from what probe.py found of a driver that loads."""
    version = found.get("cuda_version", 0)
    kernel = kernel_module_version()
    text = f"CUDA {version // 1000}.{version % 1000 // 10}" + (
        f", driver {kernel}" if kernel else ""
    )
    old = version < OLDEST_DRIVER
    yield Check(
        "driver",
        "warn" if old else "ok",
        f"{text} ({found.get('path') or 'unknown path'})",
        "libzone is built for CUDA 12.0 drivers and newer" if old else "",
    )
    if found["context_events"]:
        yield Check("context events", "ok", "cuCtxRecordEvent is there")
    else:
        yield Check(
            "context events",
            "warn",
            "no cuCtxRecordEvent",
            "drivers for CUDA 12.5 and newer have it; with this one every free waits, as natively",
        )
    if found["init"] != 0:
        yield Check(
            "devices",
            "fail",
            f"cuInit answers {found['init']}",
            "nvidia-smi should work first; are /dev/nvidia* there and readable?",
        )
        return
    if not found["devices"]:
        yield Check("devices", "fail", "none", "CUDA_VISIBLE_DEVICES hides all, or none is there")
    for device in found["devices"]:
        yield from device_rows(device)


def device_rows(device: dict[str, Any]) -> Iterator[Check]:
    """One device: its name and memory, its compute mode, the VMM calls."""
    name = f"device {device['ordinal']}"
    mode = device.get("compute_mode", 0)
    total = device.get("total_bytes", 0) / 2**30
    yield Check(
        name,
        "fail" if mode == 2 else "ok",
        f"{device.get('name', '?')}, {total:.1f} GiB",
        "compute mode is 'prohibited': nvidia-smi -c DEFAULT" if mode == 2 else "",
    )
    if device.get("vmm"):
        yield Check(f"{name} pages", "ok", "virtual memory management is there")
    else:
        yield Check(
            f"{name} pages",
            "warn",
            "no virtual memory management",
            "expandable_segments needs it; everything else works",
        )


def kernel_module_version() -> str:
    """The version of the loaded kernel module, if one is."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    words = [word for word in text.split() if word[0].isdigit() and word.count(".") >= 1]
    return words[0] if words else ""


def check_sharing() -> Iterator[Check]:
    """MIG and MPS: both work, and both change how much memory there is."""
    yield mig_row()
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (pipe / "control").exists():
        yield Check(
            "MPS",
            "warn",
            f"a control daemon at {pipe}",
            "clients share one device's memory: bound each one's cache with max_cached_mb",
        )
    else:
        yield Check("MPS", "ok", "not in use")


def mig_row() -> Check:
    """Asks nvidia-smi, which is the only one to tell without a context."""
    command = ["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return Check("MIG", "ok", "not known: no nvidia-smi here")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S)
    except (subprocess.TimeoutExpired, OSError):
        return Check("MIG", "warn", "nvidia-smi does not answer", "nvidia-smi should work first")
    if "Enabled" in done.stdout.split():
        return Check(
            "MIG",
            "warn",
            "enabled on a device",
            "a process sees one instance, and the limits in MiB are to fit its memory",
        )
    return Check("MIG", "ok", "not in use")


def check_folders() -> Iterator[Check]:
    """Where shared files go: XDG_RUNTIME_DIR, else /dev/shm."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [("XDG_RUNTIME_DIR", runtime)] if runtime else []
    for name, folder in [*folders, ("/dev/shm", "/dev/shm")]:
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            yield Check(name, "ok", "writable" if name == folder else f"{folder} is writable")
        else:
            yield Check(
                name,
                "warn",
                f"{folder} is not a writable folder",
                "statistics that outlive a killed process need it; mount it writable",
            )


def check_environment() -> Iterator[Check]:
    """Variables that change what libzone does, or that look like a slip of the pen."""
    named = {key: value for key, value in os.environ.items() if key.startswith("ZONE_")}
    unknown = sorted(set(named) - VARIABLES)
    if unknown:
        yield Check(
            "environment",
            "warn",
            f"{', '.join(unknown)}: nothing reads this",
            "libzone reads " + ", ".join(sorted(VARIABLES)),
        )
    if named.get("ZONE_DISABLE") == "1":
        yield Check("environment", "warn", "ZONE_DISABLE=1", "libzone is switched off; unset it")
    others = [
        entry
        for entry in preload.entries(os.environ.get("LD_PRELOAD", ""))
        if Path(entry).name != LIBRARY
    ]
    if others:
        yield Check(
            "environment",
            "warn",
            f"LD_PRELOAD also has {', '.join(others)}",
            "fine for most; if it hooks dlsym or CUDA too, try it before and after libzone.so",
        )
    if not unknown and not others and named.get("ZONE_DISABLE") != "1":
        text = ", ".join(f"{key}={value}" for key, value in sorted(named.items()))
        yield Check("environment", "ok", text or "no ZONE_ variable is set")


# Output ------------------------------------------------------------------------------------------


def all_checks(library: str | None) -> list[Check]:
    """Every row, in the order in which a person would ask."""
    groups: list[Callable[[], Iterator[Check]]] = [
        check_system,
        lambda: check_library(library),
        check_driver,
        check_sharing,
        check_folders,
        check_environment,
    ]
    return [check for group in groups for check in group()]


def main(args: argparse.Namespace) -> int:
    """Prints the rows; 1 if one fails."""
    checks = all_checks(args.lib)
    failed = sum(check.status == "fail" for check in checks)
    if args.json:
        print(json.dumps({"ok": failed == 0, "checks": [asdict(c) for c in checks]}, indent=2))
        return 1 if failed else 0
    rows = [(check.status, check.name, check.found, check.advice) for check in checks]
    ui.print_checks(rows)
    print(f"\n{failed} of {len(checks)} checks failed" if failed else "\nlibzone can work here")
    return 1 if failed else 0
