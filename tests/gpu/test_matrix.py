# SPDX-License-Identifier: Apache-2.0
"""Tests of the matrix of public programs: no GPU is needed, and no program of others."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import matrix, matrix_build, record, runner
from harness.context import Context

ROOT = Path(__file__).resolve().parents[2]


class Table(unittest.TestCase):
    def test_the_table_is_whole(self) -> None:
        programs = matrix_build.read_table(ROOT / "tests" / "gpu" / "matrix.toml")
        self.assertGreaterEqual(len(programs), 60)
        for program in programs:
            self.assertRegex(program.source.commit, r"^[0-9a-f]{40}$")
            self.assertFalse(program.folder.startswith("/") or ".." in program.folder)

    def test_shards_are_everything_once(self) -> None:
        programs = matrix_build.read_table(ROOT / "tests" / "gpu" / "matrix.toml")
        parts = [matrix.parse_shard(f"{k}/3").part(programs) for k in (1, 2, 3)]
        names = sorted(program.name for part in parts for program in part)
        self.assertEqual(names, sorted(program.name for program in programs))
        for bad in ("0/3", "4/3", "1", "a/b", "1/0", "-1/2"):
            with self.assertRaises(SystemExit):
                matrix.parse_shard(bad)


class Compare(unittest.TestCase):
    def test_what_is_stable_must_be_equal(self) -> None:
        one, two = "sum 5\ntime 1.5 ms\n", "sum 5\ntime 1.7 ms\n"
        self.assertEqual(
            matrix.compare(one, two, "sum 5\ntime 9e-3 ms\n"), (True, "1 of 2 lines vary natively")
        )
        self.assertFalse(matrix.compare(one, two, "sum 6\ntime 1.5 ms\n")[0])
        self.assertFalse(matrix.compare(one, two, "sum 5\ntime failed\n")[0])
        self.assertFalse(matrix.compare(one, two, "sum 5\n")[0])
        self.assertEqual(matrix.compare(one, one, one), (True, ""))

    def test_libzones_own_lines_do_not_count(self) -> None:
        self.assertTrue(matrix.compare("a\n", "a\n", "a\nzone[12] libzone 0.1.0: x\n")[0])

    def test_outputs_of_different_length_are_said(self) -> None:
        same, remark = matrix.compare("a\n", "a\nb\n", "c\n")
        self.assertTrue(same)
        self.assertIn("not compared", remark)


class Programs(unittest.TestCase):
    """Shell scripts in place of programs; libzone is not there, so that only `off` can be told."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = Path(self.folder.name)
        self.log = open(self.home / "log", "w", encoding="utf-8")  # noqa: SIM115
        self.addCleanup(self.log.close)
        library = self.home / "libzone.so"
        self.runner = runner.Runner(library, self.home, self.log, time.monotonic() + 60)
        self.ctx = Context(Path(), Path(), Path(), self.home, self.runner)

    def program(self, name: str, script: str) -> matrix_build.Program:
        source = matrix_build.Source("s", "", "0" * 40, "make")
        folder = self.home / "programs" / "s" / name
        folder.mkdir(parents=True)
        (folder / "main").write_text("#!/bin/sh\n" + script)
        os.chmod(folder / "main", 0o755)
        return matrix_build.Program(f"s/{name}", source, name, ("3",))

    def test_a_difference_is_found_and_said(self) -> None:
        program = self.program("p", '[ -z "$LD_PRELOAD" ] && echo $1 || echo 4')
        test = record.Test("matrix", "")
        matrix.run_matrix(self.ctx, test, [program], self.home)
        found = test.measured["s/p"]
        self.assertEqual((found["result"], found["native_rc"]), ("differs", 0))
        self.assertFalse(found["default"]["same"])
        self.assertFalse(test.ok)
        self.assertEqual(test.runs, [])

    def test_what_cannot_be_compared_is_skipped_and_named(self) -> None:
        source = matrix_build.Source("s", "", "0" * 40, "make")
        none = matrix_build.Program("s/none", source, "none", ())
        moody = self.program("moody", f"echo x >> {self.home}/n; exit $(wc -l < {self.home}/n)")
        test = record.Test("matrix", "")
        matrix.run_matrix(self.ctx, test, [none, moody], self.home)
        self.assertEqual(test.measured["s/none"]["remark"], "not built")
        self.assertIn("native exit codes", test.measured["s/moody"]["remark"])
        self.assertFalse(test.ok)  # nothing ran

    def test_builds_and_says_why_not(self) -> None:
        tree = self.home / "src" / "s" / "p"
        tree.mkdir(parents=True)
        (tree / "Makefile").write_text("main: ; cp /bin/true main\n")
        (tree / "data.txt").write_text("1")
        (tree / "main.cu").write_text("")
        source = matrix_build.Source("s", "", "0" * 40, "make")
        good = matrix_build.Program("s/good", source, "p", ())
        gone = matrix_build.Program("s/gone", source, "q", ())
        problems = matrix_build.build_all([good, gone], self.home, 1)
        if problems["s/good"] == "nvcc not found":
            self.skipTest("nvcc is not installed")
        self.assertEqual(problems["s/good"], "")
        self.assertEqual(problems["s/gone"], "s has no q")
        there = sorted(path.name for path in (self.home / "programs" / "s" / "good").iterdir())
        self.assertEqual(there, ["Makefile", "data.txt", "main"])


if __name__ == "__main__":
    unittest.main()
