# SPDX-License-Identifier: Apache-2.0
"""Starts one process with a time limit, natively or under libzone, and reads what it printed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .record import Run, compact_report, parse_metrics

TAIL_CHARS = 2500
ZONE_VARIABLES = ("ZONE_ALLOC_CONF", "ZONE_REPORT", "ZONE_TRACE", "ZONE_DISABLE")


@dataclass
class Runner:
    libzone: Path
    work: Path
    log: TextIO
    deadline: float
    timeout_s: float = 60.0
    count: int = field(default=0)

    def environment(
        self, zone: Path | None, conf: str, report: Path | None, extra: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The whole environment, and the part of it that this suite set."""
        full = {k: v for k, v in os.environ.items() if k not in ZONE_VARIABLES}
        ours = dict(extra)
        if zone is not None:
            before = full.get("LD_PRELOAD", "")
            ours["LD_PRELOAD"] = f"{before}:{zone}" if before else str(zone)
            ours["ZONE_REPORT"] = str(report) if report else "none"
            if conf:
                ours["ZONE_ALLOC_CONF"] = conf
        full.update(ours)
        return full, ours

    def prepare(
        self,
        label: str,
        command: Sequence[str],
        *,
        zone: Path | bool = False,
        conf: str = "",
        extra: Mapping[str, str] | None = None,
    ) -> "Prepared":
        """`zone`: False natively, True under the library that was built, or another library."""
        self.count += 1
        library = self.libzone if zone is True else (zone or None)
        report = self.work / f"report-{self.count}.%p.json" if library else None
        full, ours = self.environment(library, conf, report, extra or {})
        return Prepared(label, list(command), library, self.count, full, ours)

    def now(self) -> float:
        """The clock of the deadline."""
        return time.monotonic()

    def limit(self, timeout_s: float | None) -> float:
        left = self.deadline - time.monotonic()
        return max(1.0, min(timeout_s or self.timeout_s, left))

    def finish(
        self, ready: "Prepared", rc: int, output: str, timed_out: bool, seconds: float
    ) -> Run:
        """The record of a process that has ended."""
        self.log.write(
            f"\n=== {ready.label}: {' '.join(ready.command)}\n    {ready.ours}\n{output}\n"
        )
        self.log.write(f"--- exit {rc}, {seconds:.2f} s{', timed out' if timed_out else ''}\n")
        self.log.flush()
        library = ready.library
        found = read_report(self.work, ready.number) if library else None
        return Run(
            label=ready.label,
            command=ready.command,
            environment=ready.ours,
            rc=rc,
            seconds=round(seconds, 3),
            timed_out=timed_out,
            metrics=parse_metrics(output),
            tail=output[-TAIL_CHARS:],
            output=output,
            report=compact_report(found),
            problem="" if library is None else preload_problem(library, output, found),
        )

    def run(
        self,
        label: str,
        command: Sequence[str],
        *,
        zone: Path | bool = False,
        conf: str = "",
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        cwd: Path | None = None,
    ) -> Run:
        ready = self.prepare(label, command, zone=zone, conf=conf, extra=extra)
        start = time.monotonic()
        rc, output, timed_out = run_limited(
            ready.command, ready.environment, self.limit(timeout_s), cwd
        )
        return self.finish(ready, rc, output, timed_out, time.monotonic() - start)


@dataclass(frozen=True)
class Prepared:
    """A process that is about to be started: the whole environment, and what of it is ours."""

    label: str
    command: list[str]
    library: Path | None
    number: int
    environment: dict[str, str]
    ours: dict[str, str]


def preload_problem(library: Path, output: str, report: Any) -> str:
    """The loader only warns of a library that it cannot preload, and the run would be native."""
    if not library.exists() or "cannot be preloaded" in output:
        return "libzone was not loaded"
    return "libzone left no report" if report is None else ""


def run_limited(
    command: list[str], environment: Mapping[str, str], limit_s: float, cwd: Path | None = None
) -> tuple[int, str, bool]:
    """Exit status, output and whether the limit ended it, with all its children."""
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"{command[0]}: {error}", False
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output, False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            output = ""
        return process.returncode if process.returncode is not None else 124, output or "", True


def read_report(work: Path, number: int) -> Any:
    """libzone's report of a run; of several processes the one that wrote most."""
    files = sorted(work.glob(f"report-{number}.*.json"), key=lambda path: path.stat().st_size)
    if not files:
        return None
    text = files[-1].read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return {"not_json": text[:500]}
