# SPDX-License-Identifier: Apache-2.0
"""What machine the numbers come from, and which commit they are for."""

import os
import platform
import shutil
import subprocess
from pathlib import Path


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[0] if done.returncode == 0 and lines else ""


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def nvcc_release() -> str:
    nvcc = find_nvcc()
    if not nvcc:
        return ""
    done = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        if "release" in line:
            return line.partition("release")[2].split(",")[0].strip()
    return ""


def find_nvcc() -> str:
    found = shutil.which("nvcc")
    usual = "/usr/local/cuda/bin/nvcc"
    return found or (usual if os.path.exists(usual) else "")


def has_gpu() -> bool:
    return os.path.exists("/dev/nvidiactl") or bool(first_line(["nvidia-smi", "-L"]))


def describe() -> dict[str, str | int]:
    query = "name,driver_version,memory.total"
    fields = first_line(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]).split(", ")
    name, driver, memory = [*fields, "", "", ""][:3]
    return {
        "gpu": name,
        "driver": driver,
        "gpu_memory": memory,
        "cuda": nvcc_release(),
        "cpu": cpu_name(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def commit_of(root: Path, given: str) -> str:
    """Given, else $COMMIT, else a file COMMIT, else what git says; a copied tree has no .git."""
    if given:
        return given
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    noted = root / "COMMIT"
    if noted.exists():
        return noted.read_text(encoding="utf-8").strip()
    return first_line(["git", "-C", str(root), "rev-parse", "HEAD"]) or "unknown"
