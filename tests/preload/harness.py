# SPDX-License-Identifier: Apache-2.0
"""What the preload tests share: run a command natively and under libzone, and compare.

The build passes paths in TEST_… variables: the library, the built helpers, the simulated driver.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

LIBZONE = os.environ["TEST_LIBZONE"]
HELPERS = Path(os.environ["TEST_HELPERS"])
DRIVER_DIR = os.environ.get("TEST_DRIVER_DIR", "")


class PreloadTest(unittest.TestCase):
    """Each test has an empty folder, self.folder, that every program runs in and calls home."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def environment(
        self, preload: str | None, driver: bool, extra: dict[str, str]
    ) -> dict[str, str]:
        """A small environment: nothing of the caller's but PATH and the locale."""
        env = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        for key in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR"):
            env[key] = str(self.folder)
        if preload:
            env["LD_PRELOAD"] = preload
        if driver:
            env["LD_LIBRARY_PATH"] = DRIVER_DIR
        return env | extra

    def run_in(
        self,
        command: list[str],
        preload: str | None,
        driver: bool = False,
        **extra: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command under this LD_PRELOAD value, None for natively."""
        return subprocess.run(
            command,
            env=self.environment(preload, driver, extra),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def assert_same(self, command: list[str], driver: bool = False, **extra: str) -> None:
        """Output and exit code are the same natively and under libzone, and no file appears."""
        before = shared_files()
        native = self.run_in(command, None, driver, **extra)
        zone = self.run_in(command, LIBZONE, driver, **extra)
        self.assertEqual(
            (zone.returncode, zone.stdout, zone.stderr),
            (native.returncode, native.stdout, native.stderr),
        )
        self.assertEqual([], sorted(path.name for path in self.folder.iterdir()))
        self.assertEqual(before, shared_files())


def shared_files() -> set[str]:
    """Where a library might leave shared files of its own."""
    return {name for name in os.listdir("/dev/shm") if "zone" in name}


def need_driver() -> None:
    """Skips the test where the simulated driver was not built."""
    if not Path(DRIVER_DIR, "libcuda.so.1").exists():
        raise unittest.SkipTest("no simulated driver in this build")
