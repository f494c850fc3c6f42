# SPDX-License-Identifier: Apache-2.0
"""zone run as a user sees it: environment, exit codes, signals, reports."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

ZONE = str(Path(__file__).resolve().parents[2] / "zone")
LIBZONE = os.environ["TEST_LIBZONE"]
VARIABLES = ("ZONE_ALLOC_CONF", "ZONE_REPORT", "ZONE_TRACE", "ZONE_DISABLE", "LD_PRELOAD")

STATUS = ("grep", "^Sig[BI]", "/proc/self/status")

# Writes a report as libzone would: the pattern's %p is the process id, %% a per cent sign.
REPORTING = (
    'file=$(printf %s "$ZONE_REPORT" | sed -e "s/%%/@/g" -e "s/%p/$$/g" -e "s/@/%/g"); '
    'echo "zone[$$] said by $0" >"$file"'
)


def default_signals() -> None:
    """A shell cannot trap what is ignored at its start, as in a background job or under nohup."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Run(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def command(self, *args: str) -> list[str]:
        return [ZONE, "run", "--lib", LIBZONE, *args]

    def environment(self, **extra: str) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        return env | {"TMPDIR": self.folder} | extra

    def zone(self, *args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args),
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(os.listdir(self.folder), [], "something was left behind")
        return done

    def shown(self, name: str, *args: str, **extra: str) -> str:
        """The value of a variable in the program."""
        done = self.zone(*args, "--", "sh", "-c", f'printf %s "${name}"', **extra)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    # Environment

    def test_preload(self) -> None:
        self.assertEqual(self.shown("LD_PRELOAD"), LIBZONE)

    def test_preload_is_appended(self) -> None:
        # A name that any process can load once more.
        self.assertEqual(self.shown("LD_PRELOAD", LD_PRELOAD="libc.so.6"), f"libc.so.6:{LIBZONE}")

    def test_conf(self) -> None:
        self.assertEqual(
            self.shown("ZONE_ALLOC_CONF", "-c", "a:1", "--conf", "b:[2,3]"), "a:1,b:[2,3]"
        )
        self.assertEqual(
            self.shown("ZONE_ALLOC_CONF", "-c", "a:1", ZONE_ALLOC_CONF="c:4"), "c:4,a:1"
        )
        self.assertEqual(self.shown("ZONE_ALLOC_CONF", ZONE_ALLOC_CONF="c:4"), "c:4")

    def test_report(self) -> None:
        self.assertEqual(self.shown("ZONE_REPORT", "-r", "x.%p.json"), "x.%p.json")
        self.assertEqual(self.shown("ZONE_REPORT", ZONE_REPORT="none"), "none")

    def test_off(self) -> None:
        self.assertEqual(self.shown("ZONE_DISABLE", "--off"), "1")

    def test_python_path_is_left_alone(self) -> None:
        self.assertEqual(self.shown("PYTHONPATH", PYTHONPATH="/mine"), "/mine")

    # Arguments

    def test_arguments_reach_the_program(self) -> None:
        done = self.zone("--", "printf", "<%s>", "a b", "-c", "--", "")
        self.assertEqual(done.stdout, "<a b><-c><--><>")

    def test_without_dashes(self) -> None:
        done = self.zone("printf", "%s", "-r")
        self.assertEqual(done.stdout, "-r")

    def test_no_program(self) -> None:
        done = self.zone()
        self.assertEqual(done.returncode, 2)
        self.assertIn("no program given", done.stderr)

    # Exit codes

    def test_exit_codes(self) -> None:
        for code in (0, 1, 42, 255):
            self.assertEqual(self.zone("--", "sh", "-c", f"exit {code}").returncode, code)

    def test_ended_by_a_signal(self) -> None:
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            done = self.zone("--", "sh", "-c", f"ulimit -c 0; kill -{int(number)} $$")
            self.assertEqual(done.returncode, 128 + number)

    def test_not_found(self) -> None:
        for extra in ([], ["-r", "none"]):
            done = self.zone(*extra, "--", "/no/such/program")
            self.assertEqual(done.returncode, 127)
            self.assertEqual(done.stderr, "zone: /no/such/program: No such file or directory\n")

    def test_not_executable(self) -> None:
        for extra in ([], ["-r", "none"]):
            done = self.zone(*extra, "--", "/etc/passwd")
            self.assertEqual(done.returncode, 126)

    def test_no_library(self) -> None:
        done = subprocess.run(
            [ZONE, "run", "--lib", "/no/libzone.so", "true"], capture_output=True, text=True
        )
        self.assertEqual(
            (done.returncode, done.stderr), (2, "zone: /no/libzone.so: no such file\n")
        )

    # Signals

    def test_signals_are_passed_on(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            # Ends by itself in the end, should the signal get lost.
            wait = "i=0; while [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done"
            script = f"trap 'exit 9' {int(number)}; echo ready; {wait}"
            with subprocess.Popen(
                self.command("--", "sh", "-c", script),
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=default_signals,
            ) as process:
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=30), 9)

    def test_signals_are_as_they_were(self) -> None:
        """Blocked and ignored ones, but for the two of the C library's own, 32 and 33."""
        native = subprocess.run([*STATUS], capture_output=True, text=True).stdout
        for extra in ([], ["-r", "none"]):
            done = self.zone(*extra, "--", *STATUS)
            for zone_line, native_line in zip(done.stdout.splitlines(), native.splitlines()):
                ours, theirs = (int(line.split()[1], 16) for line in (zone_line, native_line))
                self.assertEqual(ours & ~(3 << 31), theirs & ~(3 << 31), zone_line)

    # Reports

    def test_silent_program(self) -> None:
        done = self.zone("--", "true")
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("true never asked for GPU memory through libzone", done.stderr)

    def test_reports_come_at_the_end(self) -> None:
        done = self.zone("--", "sh", "-c", f"{REPORTING}; echo last >&2; exit 3", "first")
        last, report = done.stderr.splitlines()
        self.assertEqual(last, "last")
        self.assertRegex(report, r"^zone\[\d+\] said by first$")
        self.assertEqual(done.returncode, 3)

    def test_children_report_too(self) -> None:
        child = f"sh -c '{REPORTING}' child;"
        done = self.zone("--", "sh", "-c", f"{child} sleep 0.02; {REPORTING}", "parent")
        said = [line.rpartition(" ")[2] for line in done.stderr.splitlines()]
        self.assertEqual(said, ["child", "parent"])

    def test_odd_folder_name(self) -> None:
        """A per cent sign in TMPDIR is no pattern."""
        odd = os.path.join(self.folder, "100%p")
        os.mkdir(odd)
        done = subprocess.run(
            self.command("--", "sh", "-c", REPORTING, "odd"),
            env=self.environment(TMPDIR=odd),
            capture_output=True,
            text=True,
        )
        self.assertRegex(done.stderr, r"^zone\[\d+\] said by odd\n$")


if __name__ == "__main__":
    unittest.main()
