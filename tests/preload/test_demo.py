# SPDX-License-Identifier: Apache-2.0
"""The program of scripts/try: the same result in every mode, and a report where one is due."""

from __future__ import annotations

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from harness import LIBZONE, PreloadTest, need_driver

DEMO = os.environ["TEST_DEMO"]
ZONE = str(Path(__file__).resolve().parents[2] / "scripts" / "zone")
STEPS = "12"


class Demo(PreloadTest):
    def setUp(self) -> None:
        super().setUp()
        need_driver()

    def demo(self, preload: str | None, **extra: str) -> tuple[str, str]:
        """The checksum line and what came on stderr."""
        done = self.run_in([DEMO, STEPS], preload, driver=True, **extra)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.splitlines()[0], done.stderr

    def test_same_checksum_in_every_mode(self) -> None:
        native, said = self.demo(None)
        self.assertRegex(native, r"^checksum [0-9a-f]{16}$")
        self.assertEqual(said, "")
        for conf in (
            "",
            "backend:off",
            "free_order:sync",
            "free_order:event",
            "free_order:unsafe",
            "max_cached_mb:0",
            "max_pending_mb:0",
            "roundup_power2_divisions:4",
        ):
            self.assertEqual(self.demo(LIBZONE, ZONE_ALLOC_CONF=conf)[0], native, conf)

    def test_disabled(self) -> None:
        self.assertEqual(self.demo(LIBZONE, ZONE_DISABLE="1"), self.demo(None))

    def test_report(self) -> None:
        _, report = self.demo(LIBZONE)
        lines = report.splitlines()
        self.assertTrue(1 <= len(lines) <= 12, report)
        for line in lines:
            self.assertRegex(line, r"^zone\[\d+\] ")
        self.assertIn("not freed: nothing", report)

    def test_no_report(self) -> None:
        self.assertEqual(self.demo(LIBZONE, ZONE_REPORT="none")[1], "")

    def test_report_file(self) -> None:
        self.assertEqual(self.demo(LIBZONE, ZONE_REPORT=f"{self.folder}/x.%p.json")[1], "")
        (path,) = self.folder.iterdir()
        self.assertRegex(path.name, r"^x\.\d+\.json$")
        json.loads(path.read_text(encoding="utf-8"))

    def test_bad_setting_is_said_once(self) -> None:
        _, said = self.demo(LIBZONE, ZONE_ALLOC_CONF="no_such_key:1")
        self.assertEqual(len(re.findall("no_such_key", said)), 1)

    def test_abort_conf(self) -> None:
        done = self.run_in(
            [DEMO, STEPS], LIBZONE, driver=True, ZONE_ALLOC_CONF="abort_conf:True,no_such_key:1"
        )
        self.assertEqual(done.returncode, 78)

    def test_zone_run(self) -> None:
        done = subprocess.run(
            [ZONE, "run", "--lib", LIBZONE, "--", DEMO, STEPS],
            env=self.environment(None, driver=True, extra={}),
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.splitlines()[0], self.demo(None)[0])
        self.assertRegex(done.stderr, r"^zone\[\d+\] libzone ")
        self.assertNotIn("never asked", done.stderr)


if __name__ == "__main__":
    unittest.main()
