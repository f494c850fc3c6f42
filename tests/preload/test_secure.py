# SPDX-License-Identifier: Apache-2.0
"""A setuid program takes nothing from its caller's environment: no settings, no file."""

from __future__ import annotations

import os
import shutil
import unittest

from harness import DRIVER_DIR, HELPERS, LIBZONE, PreloadTest, need_driver

NOBODY = 65534


class Secure(PreloadTest):
    def setUp(self) -> None:
        super().setUp()
        need_driver()
        if os.geteuid() != 0:
            self.skipTest("only root can make a file setuid root")
        self.folder.chmod(0o755)
        self.program = self.folder / "linked"
        shutil.copy(HELPERS / "linked", self.program)
        self.program.chmod(0o4755)

    def run_as_nobody(self, **extra: str) -> tuple[str, str]:
        """Runs the setuid program; it must have become privileged."""
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        done = self.run_in([*prefix, str(self.program)], None, driver=True, **extra)
        if "plain" in done.stdout:
            self.skipTest("set-user-id bits have no effect on this file system")
        if "cannot open shared object" in done.stderr:
            self.skipTest("the build folder is not readable for everybody")
        self.assertEqual(done.stdout, "privileged\n", done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_report_file_is_not_written(self) -> None:
        outside = self.folder / "made"
        outside.mkdir(mode=0o777)
        self.run_as_nobody(ZONE_REPORT=str(outside / "report"))
        self.assertEqual(list(outside.iterdir()), [])

    def test_settings_are_not_read(self) -> None:
        _, said = self.run_as_nobody(ZONE_ALLOC_CONF="no_such_key:1")
        self.assertNotIn("no_such_key", said)

    def test_preload_is_dropped_by_the_loader(self) -> None:
        """With a slash in the path ld.so drops it; nothing of libzone runs in such a program."""
        target = self.folder / "true"
        shutil.copy("/bin/true", target)
        target.chmod(0o4755)
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        done = self.run_in([*prefix, str(target)], None, LD_PRELOAD=LIBZONE, TEST=DRIVER_DIR)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
