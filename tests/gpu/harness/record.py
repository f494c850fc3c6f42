# SPDX-License-Identifier: Apache-2.0
"""What a run of the suite leaves behind: tests, their runs and requirements, as plain data."""

import math
import operator
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    ">": operator.gt,
}


@dataclass
class Run:
    """One process: how it was started and what it said."""

    label: str
    command: list[str]
    environment: dict[str, str]
    rc: int
    seconds: float
    timed_out: bool
    metrics: dict[str, float | str]
    tail: str
    report: Any = None
    # Why a run that ended well proves nothing all the same.
    problem: str = ""
    # All of it; the results keep the tail.
    output: str = ""

    @property
    def ended_well(self) -> bool:
        return self.rc == 0 and not self.timed_out

    @property
    def ok(self) -> bool:
        return self.ended_well and not self.problem


@dataclass
class Requirement:
    text: str
    measured: Any
    op: str
    limit: Any
    ok: bool


@dataclass
class Test:
    name: str
    title: str
    requirements: list[Requirement] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    informational: bool = False

    @property
    def ok(self) -> bool:
        """A test that required nothing has proved nothing."""
        if self.error:
            return False
        if self.informational:
            return True
        return bool(self.requirements) and all(each.ok for each in self.requirements)

    def require(self, text: str, measured: Any, op: str, limit: Any) -> None:
        """A value that was not measured fails its requirement."""
        ok = measured is not None and limit is not None and OPERATORS[op](measured, limit)
        self.requirements.append(Requirement(text, measured, op, limit, ok))

    def require_ran(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if not run.ok:
                how = run.problem if run.ended_well else f"exit status {run.rc}"
                how = "timed out" if run.timed_out else how
                self.require(f"{run.label} runs ({how})", run.rc, "==", 0)
                self.requirements[-1].ok = False

    def to_json(self) -> dict[str, Any]:
        kept = asdict(self)
        for run in kept["runs"]:
            del run["output"]
        return {"ok": self.ok, **kept}


def value_of(text: str) -> float | str:
    """A number, unless a float would not hold it exactly (checksums) or JSON cannot (nan)."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number) or (text.isdigit() and len(text) > 15):
        return text
    return number


def parse_metrics(output: str) -> dict[str, float | str]:
    """The lines `name=value` of a program's output; the last one of a name counts."""
    metrics: dict[str, float | str] = {}
    for line in output.splitlines():
        name, mark, text = line.partition("=")
        if mark and name.isidentifier():
            metrics[name] = value_of(text.strip())
    return metrics


def median_of(runs: Iterable[Run], metric: str) -> float | None:
    """Median of a number over the runs that have it; None if none has."""
    values = [run.metrics.get(metric) for run in runs]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return statistics.median(numbers) if numbers else None


def best_of(runs: Iterable[Run], metric: str) -> float | None:
    """The least of a number over the runs that have it: what else runs on a shared machine adds
    time and never takes it away, so the best runs are compared. None if none has it."""
    values = [run.metrics.get(metric) for run in runs]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return min(numbers) if numbers else None


def total_of(runs: Iterable[Run], metric: str) -> float | None:
    values = [run.metrics.get(metric) for run in runs]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return sum(numbers) if numbers else None


def texts_of(runs: Iterable[Run], prefix: str) -> set[str]:
    """All distinct answers of the runs under the metrics that begin with the prefix."""
    return {
        " ".join(f"{k}={v}" for k, v in sorted(run.metrics.items()) if k.startswith(prefix))
        for run in runs
    }


def ratio(above: float | None, below: float | None) -> float | None:
    if above is None or not below:
        return None
    return above / below


def counter(report: Any, *path: str) -> Any:
    """A counter of libzone's report, summed over the devices; None if it is not there."""
    found = report.get("total") if isinstance(report, dict) else None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def without_zeros(counters: Any) -> Any:
    if not isinstance(counters, dict):
        return counters
    kept = {name: without_zeros(value) for name, value in counters.items()}
    return {name: value for name, value in kept.items() if value not in (0, {})}


def compact_report(report: Any) -> Any:
    """What of a report is worth keeping for each of a hundred runs."""
    if not isinstance(report, dict) or "total" not in report:
        return report
    kept = {name: report[name] for name in ("options", "notes") if report.get(name)}
    backings = {str(device.get("backing", "")) for device in report.get("devices", [])}
    return {**kept, "backing": sorted(backings), "total": without_zeros(report["total"])}


def pool_counts(run: Run) -> dict[str, Any]:
    """What the pool did in a run, in the few numbers that a table has room for."""
    if run.report is None:
        return {}
    names = ("hits", "misses", "driver_free_calls", "throttle_waits", "sync_waits")
    counts = {name: counter(run.report, name) or 0 for name in names}
    peak = counter(run.report, "reserved_bytes", "peak") or 0
    return {**counts, "reserved_peak_mib": peak >> 20}


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e12 else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 28 else text[:25] + "..."


def table(tests: Iterable[Test]) -> str:
    """The short table at the end: a line a test, and under it a line a requirement."""
    lines = []
    for test in tests:
        state = "ok" if test.ok else "FAIL"
        if test.informational and test.ok:
            state = "info"
        lines.append(f"{state:4} {test.name:16} {test.seconds:6.1f} s  {test.title}")
        for each in test.requirements:
            mark = " " if each.ok else "!"
            wanted = f"(wanted {each.op} {shown(each.limit)})"
            lines.append(f"   {mark} {each.text}: {shown(each.measured)} {wanted}")
        if test.error:
            lines.append(f"   ! {test.error.strip().splitlines()[-1]}")
    return "\n".join(lines)
