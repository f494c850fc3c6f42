# SPDX-License-Identifier: Apache-2.0
"""zone doctor: what it makes of a machine, and that a broken driver cannot hang it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from zonelib import doctor

ZONE = str(Path(__file__).resolve().parents[2] / "zone")
LIBZONE = os.environ["TEST_LIBZONE"]
DRIVER_DIR = os.environ["TEST_DRIVER_DIR"]

GOOD_DRIVER: dict[str, Any] = {
    "path": "/lib/libcuda.so.1",
    "cuda_version": 13000,
    "context_events": True,
    "init": 0,
    "devices": [{"ordinal": 0, "name": "X", "total_bytes": 2**34, "vmm": 1, "compute_mode": 0}],
}


def statuses(rows: list[doctor.Check]) -> dict[str, str]:
    return {row.name: row.status for row in rows}


class DriverRows(unittest.TestCase):
    def rows(self, **changes: Any) -> dict[str, str]:
        return statuses(list(doctor.driver_rows(GOOD_DRIVER | changes)))

    def test_good(self) -> None:
        self.assertEqual(set(self.rows().values()), {"ok"})

    def test_before_context_events(self) -> None:
        self.assertEqual(self.rows(context_events=False)["context events"], "warn")

    def test_old(self) -> None:
        self.assertEqual(self.rows(cuda_version=11080)["driver"], "warn")

    def test_does_not_start(self) -> None:
        self.assertEqual(self.rows(init=999)["devices"], "fail")

    def test_no_device(self) -> None:
        self.assertEqual(self.rows(devices=[])["devices"], "fail")

    def test_device_without_vmm(self) -> None:
        device = GOOD_DRIVER["devices"][0] | {"vmm": 0}
        self.assertEqual(self.rows(devices=[device])["device 0 pages"], "warn")

    def test_prohibited(self) -> None:
        device = GOOD_DRIVER["devices"][0] | {"compute_mode": 2}
        self.assertEqual(self.rows(devices=[device])["device 0"], "fail")


class Probes(unittest.TestCase):
    def test_hanging_driver(self) -> None:
        sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
        real = subprocess.run

        def hang(_command: list[str], **options: Any) -> Any:
            return real(sleeper, **options)

        with (
            mock.patch.object(doctor, "CHILD_TIMEOUT_S", 0.2),
            mock.patch.object(subprocess, "run", hang),
        ):
            (row,) = doctor.check_driver()
        self.assertEqual(row.status, "fail")
        self.assertIn("no answer", row.found)

    def test_crashing_driver(self) -> None:
        dead = subprocess.CompletedProcess([], -11, "", "")
        with mock.patch.object(subprocess, "run", return_value=dead):
            (row,) = doctor.check_driver()
        self.assertEqual(row.status, "fail")
        self.assertIn("-11", row.found)


class Library(unittest.TestCase):
    def test_good(self) -> None:
        rows = statuses(list(doctor.check_library(LIBZONE)))
        self.assertEqual(rows, {"libzone": "ok", "preload": "ok", "interception": "ok"})

    def test_missing(self) -> None:
        (row,) = doctor.check_library("/no/libzone.so")
        self.assertEqual(row.status, "fail")

    def test_not_a_library(self) -> None:
        rows = statuses(list(doctor.check_library("/etc/passwd")))
        self.assertEqual(rows["preload"], "fail")

    def test_a_library_that_hooks_nothing(self) -> None:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            libc = next(line.split()[-1] for line in maps if "libc.so.6" in line)
        rows = statuses(list(doctor.check_library(libc)))
        self.assertEqual(rows["interception"], "fail")


class Environment(unittest.TestCase):
    def rows(self, **variables: str) -> list[doctor.Check]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ZONE_")}
        clean.pop("LD_PRELOAD", None)
        with mock.patch.dict(os.environ, clean | variables, clear=True):
            return list(doctor.check_environment())

    def test_clean(self) -> None:
        self.assertEqual([row.status for row in self.rows()], ["ok"])
        self.assertEqual([row.status for row in self.rows(ZONE_ALLOC_CONF="a:1")], ["ok"])

    def test_slip_of_the_pen(self) -> None:
        (row,) = self.rows(ZONE_ALOC_CONF="a:1")
        self.assertEqual(row.status, "warn")
        self.assertIn("ZONE_ALOC_CONF", row.found)

    def test_switched_off(self) -> None:
        (row,) = self.rows(ZONE_DISABLE="1")
        self.assertEqual(row.status, "warn")

    def test_other_preloads(self) -> None:
        (row,) = self.rows(LD_PRELOAD="/x/other.so:/y/libzone.so")
        self.assertIn("/x/other.so", row.found)
        self.assertNotIn("libzone.so", row.found.replace("/x/other.so", ""))


class Command(unittest.TestCase):
    """The command against the simulated driver, and without any driver."""

    def doctor(self, *args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("ZONE_")}
        return subprocess.run(
            [ZONE, "doctor", "--lib", LIBZONE, *args],
            env=env | extra,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def test_simulated_driver(self) -> None:
        if not Path(DRIVER_DIR, "libcuda.so.1").exists():
            self.skipTest("no simulated driver in this build")
        done = self.doctor("--json", LD_LIBRARY_PATH=DRIVER_DIR)
        answer = json.loads(done.stdout)
        rows = {row["name"]: row for row in answer["checks"]}
        self.assertTrue(answer["ok"], done.stdout)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(rows["interception"]["found"], "look-ups of cuMemAlloc reach libzone")
        self.assertEqual(rows["context events"]["status"], "ok")
        self.assertEqual(rows["device 0"]["status"], "ok")

    def test_text(self) -> None:
        """Every row of the JSON is a line of the text, whatever this machine has."""
        done = self.doctor()
        rows = json.loads(self.doctor("--json").stdout)["checks"]
        for row in rows:
            self.assertRegex(done.stdout, rf"(?m)^{row['status']}\s+{row['name']}\s")
        failed = any(row["status"] == "fail" for row in rows)
        self.assertEqual(done.returncode, 1 if failed else 0)
        self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
