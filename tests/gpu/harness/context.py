# SPDX-License-Identifier: Apache-2.0
"""What every check gets: where things were built, and how to run a case several times."""

import sys
from collections.abc import Mapping, Sequence
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


@dataclass
class Context:
    root: Path
    build_dir: Path
    programs: Path
    work: Path
    runner: Runner
    reps: int = 3
    quick: bool = False

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
        )
        done.label = case.label
        test.runs.append(done)
        return done

    def repeat(
        self, test: Test, cases: Sequence[Case], reps: int | None = None
    ) -> dict[str, list[Run]]:
        """Every case once a round. A case that failed is not tried again."""
        rounds = 1 if self.quick else (reps or self.reps)
        done: dict[str, list[Run]] = {case.label: [] for case in cases}
        for turn in range(rounds):
            for case in cases:
                earlier = done[case.label]
                if case.reps is not None and turn >= case.reps:
                    continue
                if earlier and not earlier[-1].ended_well:
                    continue
                earlier.append(self.run(test, case))
        for runs in done.values():
            test.require_ran(run for run in runs if not run.ok)
        return done
