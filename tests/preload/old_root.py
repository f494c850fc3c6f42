# SPDX-License-Identifier: Apache-2.0
"""Preloads libzone.so in a Debian 11 root, with its older glibc: old_root.py LIBZONE ROOT

A symbol that the older glibc lacks would make every program of that system fail to start. ROOT is
made with debootstrap the first time and kept. Exit code 77 where it cannot be made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
COMMANDS = (
    ["/bin/true"],
    ["/bin/sh", "-c", ":"],
    ["/bin/sh", "-c", "ls /proc >/dev/null; echo a | cat >/dev/null"],
    ["/usr/bin/perl", "-e", "exit 0"],
)


def make_root(root: Path) -> str:
    """Makes the root if it is not there; returns why that was not possible."""
    complete = root / ".complete"
    if complete.exists():
        return ""
    if os.geteuid() != 0:
        return "only root can make a root"
    if shutil.which("debootstrap") is None:
        return "no debootstrap"
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", "bullseye", str(root)])
    if done.returncode != 0:
        return "debootstrap failed: no mirror with this release?"
    complete.touch()
    return ""


def run_in(root: Path, command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the root. LD_PRELOAD is set inside, or chroot itself would be preloaded."""
    settings = [f"{key}={value}" for key, value in extra.items()]
    return subprocess.run(
        ["chroot", str(root), "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", *settings, *command],
        capture_output=True,
        text=True,
    )


def check(root: Path) -> list[str]:
    """What goes wrong in there."""
    problems = []
    # Bound at once: a missing symbol shows itself in /bin/true, not in the first CUDA program.
    for extra in ({}, {"LD_BIND_NOW": "1"}):
        for command in COMMANDS:
            done = run_in(root, command, LD_PRELOAD="/opt/libzone.so", **extra)
            if (done.returncode, done.stdout, done.stderr) != (0, "", ""):
                problems.append(f"{command}: code {done.returncode}: {done.stdout}{done.stderr}")
    links = run_in(root, ["ldd", "-r", "/opt/libzone.so"])
    said = links.stdout + links.stderr
    print(said)
    if "undefined" in said or "not found" in said or "libc.so.6" not in said:
        problems.append("ldd -r: see above")
    return problems


def main(library: str, root: Path) -> int:
    why = make_root(root)
    if why:
        print(f"skipped: {why}")
        return SKIPPED
    shutil.copy(library, root / "opt" / "libzone.so")
    print("glibc there:", run_in(root, ["ldd", "--version"]).stdout.splitlines()[0])
    # As the control: the preload is what the commands below are about.
    missing = run_in(root, ["/bin/true"], LD_PRELOAD="/opt/absent.so")
    if "cannot be preloaded" not in missing.stderr:
        print("the loader does not complain of a missing preload: this test would prove nothing")
        return 1
    problems = check(root)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).resolve()))
