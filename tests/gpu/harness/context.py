# SPDX-License-Identifier: Apache-2.0
"""What every check gets: where things were built, and how to run a case several times."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .record import Run, Test
from .runner import Runner


@dataclass(frozen=True)
class Case:
    """One way to run one program; cases of a check take turns, so that drift hits all alike."""

    label: str
    command: Sequence[str]
    zone: Path | bool = False
    conf: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    reps: int | None = None
    cwd: Path | None = None


@dataclass
class Context:
    root: Path
    build_dir: Path
    programs: Path
    work: Path
    runner: Runner
    reps: int = 3
    quick: bool = False
    # Seconds for more rounds than asked for, of all checks together.
    spare_s: float = 80.0

    def program(self, name: str, *arguments: str) -> list[str]:
        return [str(self.programs / name), *arguments]

    def script(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "tests" / "gpu" / name), *arguments]

    def run(self, test: Test, case: Case) -> Run:
        done = self.runner.run(
            f"{test.name}/{case.label}",
            case.command,
            zone=case.zone,
            conf=case.conf,
            extra=case.extra,
            timeout_s=case.timeout_s,
            cwd=case.cwd,
        )
        done.label = case.label
        test.runs.append(done)
        return done

    def repeat(
        self,
        test: Test,
        cases: Sequence[Case],
        reps: int | None = None,
        judge: Callable[[Test, dict[str, list[Run]]], None] | None = None,
    ) -> dict[str, list[Run]]:
        """Every case once a round. A case that failed is not tried again.

        `judge` is for checks that compare best times: it writes figures and requirements into the
        test. As long as they are not met, more rounds of all cases follow, because what else a
        shared machine does only adds time: at most twice as many as asked for, and only while
        there are seconds to spare.
        """
        rounds = 1 if self.quick else (reps or self.reps)
        done: dict[str, list[Run]] = {case.label: [] for case in cases}
        for _ in range(rounds):
            self.round(test, cases, done)
        for _ in range(2 * rounds if judge and not self.quick else 0):
            trial = Test(test.name, test.title)
            if judge is not None:
                judge(trial, done)
            if trial.ok or self.spare_s <= 0:
                break
            start = time.monotonic()
            self.round(test, cases, done)
            self.spare_s -= time.monotonic() - start
        for runs in done.values():
            test.require_ran(run for run in runs if not run.ok)
        if judge is not None:
            judge(test, done)
        return done

    def round(self, test: Test, cases: Sequence[Case], done: dict[str, list[Run]]) -> None:
        for case in cases:
            earlier = done[case.label]
            if case.reps is not None and len(earlier) >= case.reps:
                continue
            if earlier and not earlier[-1].ended_well:
                continue
            earlier.append(self.run(test, case))
