# SPDX-License-Identifier: Apache-2.0
"""scripts/count_results.py: no failed or vanished test may be counted as passed."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import count_results

JUNIT = """<testsuites><testsuite name="libzone"><testcase name="s / a"/></testsuite>
<testsuite name="libzone.libzone:unit / tap">{cases}</testsuite></testsuites>"""


class Count(unittest.TestCase):
    def count(self, rows: list[tuple[str, str]], code: int, cases: str = "") -> tuple[int, str]:
        """Exit code and last line for one meson run with these (name, result) rows."""
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder, "log")
            lines = [
                {"name": name, "result": result, "returncode": 1, "command": ["x"], "stdout": ""}
                for name, result in rows
            ]
            if rows:
                text = "".join(json.dumps(line) + "\n" for line in lines)
                Path(f"{base}.json").write_text(text, encoding="utf-8")
            if cases:
                Path(f"{base}.junit.xml").write_text(JUNIT.format(cases=cases), encoding="utf-8")
            table = Path(folder, "table")
            table.write_text(f"build\t0\t1\t-\nrun\t{code}\t1\t{base}\n", encoding="utf-8")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                result = count_results.main(str(table))
            return result, said.getvalue().splitlines()[-1]

    def test_plain(self) -> None:
        rows = [("s / a", "OK"), ("s / b", "SKIP"), ("s / c", "EXPECTEDFAIL")]
        self.assertEqual(self.count(rows, 0), (0, "3 passed, 0 failed, 1 skipped"))

    def test_every_kind_of_failure(self) -> None:
        for result in ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"):
            rows = [("s / a", "OK"), ("s / b", result)]
            self.assertEqual(self.count(rows, 1), (1, "2 passed, 1 failed, 0 skipped"))

    def test_parts(self) -> None:
        cases = "<testcase/><testcase/><testcase><skipped/></testcase>"
        rows = [("libzone:unit / tap", "OK")]
        self.assertEqual(self.count(rows, 0, cases), (0, "3 passed, 0 failed, 1 skipped"))

    def test_failed_part(self) -> None:
        cases = "<testcase/><testcase><failure/></testcase>"
        rows = [("libzone:unit / tap", "FAIL")]
        self.assertEqual(self.count(rows, 1, cases), (1, "2 passed, 1 failed, 0 skipped"))

    def test_crash_after_good_parts(self) -> None:
        rows = [("libzone:unit / tap", "ERROR")]
        self.assertEqual(
            self.count(rows, 1, "<testcase/><testcase/>"), (1, "3 passed, 1 failed, 0 skipped")
        )

    def test_run_that_left_no_log(self) -> None:
        self.assertEqual(self.count([], 2), (1, "1 passed, 1 failed, 0 skipped"))

    def test_failed_step(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder, "table")
            table.write_text("build\t1\t1\t-\nextra\t77\t1\t-\n", encoding="utf-8")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(count_results.main(str(table)), 1)
            self.assertTrue(said.getvalue().endswith("\n0 passed, 1 failed, 1 skipped\n"))


if __name__ == "__main__":
    unittest.main()
