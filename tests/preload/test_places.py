# SPDX-License-Identifier: Apache-2.0
"""Where the report cannot go: the program ends as natively; where it can be said, it is said."""

from __future__ import annotations

import os
import resource
import subprocess
import unittest

from harness import HELPERS, LIBZONE, PreloadTest, need_driver

PROGRAM = [str(HELPERS / "driver_look"), str(HELPERS / "libdriverlook.so")]
NOBODY = 65534
SMALL = 100


class Places(PreloadTest):
    def setUp(self) -> None:
        super().setUp()
        need_driver()

    def run_to(self, stderr: int, **extra: str) -> int:
        """Exit code of the program with this descriptor as its standard error."""
        done = subprocess.run(
            PROGRAM,
            env=self.environment(LIBZONE, driver=True, extra=extra),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=60,
        )
        self.assertIn("allocated and freed", done.stdout)
        return done.returncode

    def complaint(self, target: str, reason: str, *prefix: str) -> None:
        """The one line that a report file gets that cannot be written; the exit code stays."""
        done = self.run_in([*prefix, *PROGRAM], LIBZONE, driver=True, ZONE_REPORT=target)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(
            done.stderr, rf"^zone\[\d+\] ZONE_REPORT: cannot write {target}: .*{reason}.*\n\Z"
        )

    def test_pipe_that_nobody_reads(self) -> None:
        """A program that writes nothing must not be killed by a pipe of ours."""
        for conf in ("", "no_such_key:1"):
            reader, writer = os.pipe()
            os.close(reader)
            try:
                self.assertEqual(self.run_to(writer, ZONE_ALLOC_CONF=conf), 0)
            finally:
                os.close(writer)

    def test_full_device_as_stderr(self) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(self.run_to(full.fileno()), 0)

    def test_stderr_closed_from_the_start(self) -> None:
        """Its number then belongs to what is opened next: a data file, a device of the driver."""
        target = self.folder / "data"
        target.touch()
        script = f"exec 2>&-; exec {' '.join(PROGRAM)}"
        done = self.run_in(["sh", "-c", script], LIBZONE, driver=True)
        native = self.run_in(["sh", "-c", script], None, driver=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(native.returncode, 0)
        code = (
            "import ctypes, os\n"
            f"assert os.open({str(target)!r}, os.O_RDWR) == 2\n"
            f"assert ctypes.CDLL({PROGRAM[1]!r}).driver_look() == 0\n"
        )
        subprocess.run(
            ["/usr/bin/python3", "-c", code],
            env=self.environment(LIBZONE, driver=True, extra={}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.close(2),
            check=True,
        )
        self.assertEqual(target.read_text(encoding="utf-8"), "")

    def test_limit_on_the_size_of_files(self) -> None:
        """The limit comes after the simulated driver has made its memory, which is a file."""
        target = self.folder / "report"
        code = (
            "import ctypes, resource\n"
            f"assert ctypes.CDLL({PROGRAM[1]!r}).driver_look() == 0\n"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({SMALL}, {SMALL}))\n"
        )
        done = self.run_in(
            ["/usr/bin/python3", "-c", code], LIBZONE, driver=True, ZONE_REPORT=str(target)
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"^zone\[\d+\] ZONE_REPORT: cannot write .*: File too large")
        self.assertEqual(target.stat().st_size, SMALL)

    def test_full_disk(self) -> None:
        self.complaint("/dev/full", "No space left")

    def test_full_disk_json(self) -> None:
        (self.folder / "x.json").symlink_to("/dev/full")
        self.complaint(str(self.folder / "x.json"), "symbolic links")

    def test_no_such_folder(self) -> None:
        self.complaint(str(self.folder / "none" / "report"), "No such file")

    def test_a_folder(self) -> None:
        self.complaint(str(self.folder), "Is a directory")

    def test_pipe_without_a_reader(self) -> None:
        os.mkfifo(self.folder / "fifo")
        self.complaint(str(self.folder / "fifo"), "No such device")

    def test_read_only_folder(self) -> None:
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)
        prefix: list[str] = []
        if os.geteuid() == 0:
            prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            if self.run_in([*prefix, "test", "-x", PROGRAM[0]], None).returncode != 0:
                self.skipTest("the build folder is not readable for everybody")
        self.complaint(str(self.folder / "report"), "Permission denied", *prefix)

    def test_read_only_file_system(self) -> None:
        self.complaint("/proc/zone-report", "")

    def test_folder_that_is_gone(self) -> None:
        """The program's own working directory: the default report is there, a file is refused."""
        script = f"mkdir x; cd x; rmdir ../x; exec {' '.join(PROGRAM)}"
        done = self.run_in(["sh", "-c", script], LIBZONE, driver=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("driver_look on Simulated GPU", done.stderr)
        self.complaint("report", "No such file", "sh", "-c", f"{script.split('exec')[0]}exec $0 $1")

    def test_no_descriptor_left(self) -> None:
        """The driver needs some itself; then one after another is missing for ours."""
        for limit in range(5, 24):

            def limit_descriptors(limit: int = limit) -> None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

            native = subprocess.run(
                PROGRAM,
                env=self.environment(None, driver=True, extra={}),
                capture_output=True,
                preexec_fn=limit_descriptors,
            )
            if native.returncode == 0:
                zone = subprocess.run(
                    PROGRAM,
                    env=self.environment(LIBZONE, driver=True, extra={}),
                    capture_output=True,
                    preexec_fn=limit_descriptors,
                )
                self.assertEqual(zone.returncode, 0, limit)


if __name__ == "__main__":
    unittest.main()
