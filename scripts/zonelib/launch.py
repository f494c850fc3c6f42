# SPDX-License-Identifier: Apache-2.0
"""Starts a program, passes signals on to it and gives back its exit code as a shell would."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from zonelib.errors import ZoneError

# Sent to zone alone, these are meant for the program. SIGTSTP and SIGCONT keep their own effect, so
# that job control of a shell works on zone and the program alike.
PASSED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
}

# Python ignores these for itself; the program gets the defaults back.
IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]

# A terminal's Ctrl-C goes to every process of the group: the program has it already.
SI_KERNEL = 0x80


def exit_code(status: int) -> int:
    """A wait status as a shell shows it: 128+n for signal n."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def not_started(program: str, error: OSError) -> ZoneError:
    """The shell's codes: 127 if there is no such program, 126 if it cannot be run."""
    missing = isinstance(error, FileNotFoundError)
    return ZoneError(f"{program}: {error.strerror}", 127 if missing else 126)


def replace(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Becomes the program."""
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(env))
    except OSError as error:
        raise not_started(command[0], error) from None


def run_and_wait(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs the program to its end and returns its exit code."""
    waited_for = PASSED_ON | {signal.SIGCHLD}
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(env),
            setsigmask=old_mask,
            setsigdef=IGNORED_BY_PYTHON,
        )
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        raise not_started(command[0], error) from None
    try:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == pid:
                return exit_code(status)
            info = signal.sigwaitinfo(waited_for)
            if info.si_signo in PASSED_ON and info.si_code != SI_KERNEL:
                os.kill(pid, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
