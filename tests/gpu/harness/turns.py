# SPDX-License-Identifier: Apache-2.0
"""Programs that run side by side and work in turns, for ratios on a machine that others use, too.

Its speed drifts for seconds at a time, by more than what is to be told apart. So all cases are
started once; in each round each of them does a short piece of work, one after the other, and the
ratio is the median over the rounds of what two neighbours took. A program says `ready` on a line
of its own when it is warm; for each name that it then reads it does that work and prints
`name=ms`; at the end of its input it ends.
"""

import contextlib
import queue
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence

from .context import Case, Context
from .record import Run, Test, value_of
from .runner import Prepared

Times = dict[str, dict[str, list[float]]]


class Player:
    """One of the processes. Its output is read by a thread, so that nothing waits for ever."""

    def __init__(self, ready: Prepared) -> None:
        self.ready = ready
        self.start = time.monotonic()
        self.output: list[str] = []
        self.lines: queue.Queue[str | None] = queue.Queue()  # None: there are no more
        self.process = subprocess.Popen(
            ready.command,
            env=ready.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            self.lines.put(line.strip())
        self.process.stdout.close()
        self.lines.put(None)

    def wait_for(self, start: str, deadline: float) -> str | None:
        """The next line that starts so, without the start; None if none came in time."""
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if line is None:
                self.lines.put(None)
                return None
            if line.startswith(start):
                return line[len(start) :]

    def play(self, name: str, deadline: float) -> float | None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        text = self.wait_for(name + "=", deadline)
        value = value_of(text) if text is not None else None
        return value if isinstance(value, float) else None

    def end(self, ctx: Context, deadline: float) -> Run:
        timed_out = False
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it may have ended already
            self.process.stdin.close()
        try:
            self.process.wait(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
            self.process.kill()
            self.process.wait()
        self.reader.join(timeout=5)
        seconds = time.monotonic() - self.start
        rc, text = self.process.returncode, "".join(self.output)
        run = ctx.runner.finish(self.ready, rc, text, timed_out, seconds)
        run.label = self.ready.label.partition("/")[2]
        return run


def take_turns(
    ctx: Context, test: Test, cases: Sequence[Case], names: Sequence[str], rounds: int
) -> tuple[dict[str, Run], Times]:
    """The runs, and for each case and name what each round took."""
    deadline = time.monotonic() + ctx.runner.limit(240.0)
    players = [
        Player(
            ctx.runner.prepare(
                f"{test.name}/{case.label}",
                case.command,
                zone=case.zone,
                conf=case.conf,
                extra=case.extra,
            )
        )
        for case in cases
    ]
    times: Times = {case.label: {name: [] for name in names} for case in cases}
    good = all(player.wait_for("ready", deadline) is not None for player in players)
    for turn in range(rounds if good else 0):
        for name in names:
            # Another one is first each time, so that none always follows the same.
            for at in range(len(cases)):
                which = (turn + at) % len(cases)
                took = players[which].play(name, deadline)
                good = good and took is not None
                times[cases[which].label][name].append(took if took is not None else 0.0)
        if not good:
            break
    runs = {}
    for case, player in zip(cases, players, strict=True):
        runs[case.label] = player.end(ctx, deadline)
        test.runs.append(runs[case.label])
    test.require_ran(run for run in runs.values() if not run.ok)
    test.require("all rounds were played", good, "==", True)
    return runs, times


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> float | None:
    """The median of the rounds' ratios; None if there are too few to say."""
    pairs = [one / other for one, other in zip(above, below, strict=False) if one > 0 < other]
    return statistics.median(pairs) if len(pairs) >= 5 else None


def middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
