# SPDX-License-Identifier: Apache-2.0
"""Tests of the page that is generated from result files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from zonelib import headline, perf_gen

ROOT = Path(__file__).resolve().parents[2]


def result(date: str, commit: str, **tests: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "gpu-test",
        "date": date,
        "commit": commit,
        "machine": {"gpu": "A card", "driver": "580", "cuda": "13.0", "cpu": "A CPU", "cores": 2},
        "tests": [
            {
                "name": name,
                "title": f"title of {name}",
                "ok": True,
                "error": "",
                "requirements": [],
                "measured": {},
                **content,
            }
            for name, content in tests.items()
        ],
    }


class Page(unittest.TestCase):
    def test_without_results_it_says_so(self) -> None:
        self.assertIn("no results yet", perf_gen.page([]))

    def test_the_newest_file_that_ran_a_check_counts(self) -> None:
        old = result("2026-01-01", "old", pair={"measured": {"ns": 1}}, walk={})
        new = result(
            "2026-01-02", "new", pair={"measured": {"ns": 2}}, walk={"error": "not run: x"}
        )
        page = perf_gen.page([("old.json", old), ("new.json", new)])
        self.assertIn("- ns: 2", page)
        self.assertNotIn("- ns: 1", page)
        self.assertIn("Check `walk` of old.json", page)

    def test_what_was_not_met_is_said(self) -> None:
        requirement = {"text": "speed", "op": "<=", "limit": 3.0, "measured": 3.25, "ok": False}
        failed = {"ok": False, "requirements": [requirement]}
        page = perf_gen.page([("a.json", result("2026-01-01", "c", pair=failed))])
        self.assertIn("| speed | <= 3 | 3.25 | **no** |", page)
        self.assertIn("(not met)", page)

    def test_cases_make_a_table(self) -> None:
        measured = {
            "native": {"total_ms": 50.123456, "report": {"x": 1}},
            "zone": {"total_ms": 5.7, "wrong": 0.0},
        }
        page = perf_gen.page([("a.json", result("2026-01-01", "c", s={"measured": measured}))])
        self.assertIn("| case | total_ms | wrong |", page)
        self.assertIn("| native | 50.12 | – |", page)
        self.assertIn("| zone | 5.7 | 0 |", page)

    def test_files_are_ordered_by_date_and_others_ignored(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "a.json").write_text(json.dumps(result("2026-01-02", "new")))
            (path / "b.json").write_text(json.dumps(result("2026-01-01", "old")))
            (path / "c.json").write_text("[]")
            self.assertEqual([name for name, _ in perf_gen.load(path)], ["b.json", "a.json"])

    def test_check_tells_a_page_that_is_behind(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            readme = Path(folder) / "readme.md"
            readme.write_text(f"a\n{headline.BEGIN}\nold\n{headline.END}\nb\n")
            command = [sys.executable, str(ROOT / "scripts" / "zonelib" / "perf_gen.py")]
            command += ["--results", folder, "--page", str(page), "--readme", str(readme)]

            def run(*more: str) -> int:
                return subprocess.run([*command, *more], stdout=subprocess.DEVNULL).returncode

            self.assertEqual(run("--check"), 1)
            self.assertEqual(run(), 0)
            self.assertEqual(run("--check"), 0)
            self.assertNotIn("old", readme.read_text())
            page.write_text(page.read_text() + "edited\n")
            self.assertEqual(run("--check"), 1)

    def test_headline_takes_what_was_measured_from_the_newest_run(self) -> None:
        pair = {"static native": {"single_64KiB_ns": 73247.6}}
        old = {**pair, "static zone": {"single_64KiB_ns": 150.0}}
        new = {**pair, "static zone": {"single_64KiB_ns": 132.635}}
        four = {"native": {"total_ms": 50.0}}  # nothing under libzone
        results = [
            ("a.json", result("2026-01-01", "c", pair={"measured": old})),
            (
                "b.json",
                result("2026-01-02", "d", pair={"measured": new}, four_streams={"measured": four}),
            ),
        ]
        text = headline.put(
            f"a\n{headline.BEGIN}\nold\n{headline.END}\nb\n", perf_gen.newest_tests(results)
        )
        self.assertIn("| A card, driver 580 | natively | with libzone |", text)
        self.assertIn("| 73.2 µs | 0.133 µs |", text)
        self.assertNotIn("four streams", text)
        self.assertTrue(text.startswith("a\n") and text.endswith("\nb\n"))
        with self.assertRaises(ValueError):
            headline.put("no place", [])


if __name__ == "__main__":
    unittest.main()
