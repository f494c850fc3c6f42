# SPDX-License-Identifier: Apache-2.0
"""Every row applies to the tree as it is, the table names each, and the tool refuses nonsense."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from tool import build, check, cli, rows, table

ROOT = Path(__file__).resolve().parent.parent.parent
ROW = {
    "name": "one",
    "rule": "Numbers are positive",
    "file": "a.c",
    "old": ["x = 1;", "y = 2;"],
    "new": "x = -1;",
    "caught_by": ["t"],
    "cases": [],
}


class Tree(unittest.TestCase):
    """The rows of this tree."""

    def test_every_row_applies(self) -> None:
        self.assertEqual(rows.problems(ROOT), [])

    def test_table_names_every_rule(self) -> None:
        text = (ROOT / "docs" / "TESTING.md").read_text(encoding="utf-8")
        if table.BEGIN not in text:
            self.skipTest("docs/TESTING.md has no place for the table")
        written = text.split(table.BEGIN)[1].split(table.END)[0]
        for row in rows.load(ROOT):
            self.assertIn(table.cell(row.rule), written, "run scripts/sabotage check --write")

    def test_stress_hunts_all_kinds(self) -> None:
        hunted = rows.load_hunted(ROOT)
        names = [row.name for _, row in hunted]
        self.assertGreaterEqual(len(names), 20)
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({kind for kind, _ in hunted}, set(rows.KINDS))
        for path in (ROOT / rows.HUNTED).glob("*.json"):
            self.assertIn(path.stem, names)
        text = (ROOT / "docs" / "TESTING.md").read_text(encoding="utf-8")
        written = text.split(table.HUNT_BEGIN)[1].split(table.HUNT_END)[0]
        for kind, row in hunted:
            line = f"| {kind} | {table.cell(row.rule)} |"
            self.assertIn(line, written, "run scripts/sabotage hunt --write")


class Rows(unittest.TestCase):
    """One row."""

    def test_old_must_occur_once(self) -> None:
        row = rows.parse("one", ROW)
        self.assertEqual(row.apply("a\nx = 1;\ny = 2;\n"), "a\nx = -1;\n")
        for text in ("", "x = 1;", "x = 1;\ny = 2;\n" * 2):
            with self.assertRaises(rows.RowError):
                row.apply(text)

    def test_what_is_refused(self) -> None:
        wrong = [
            {**ROW, "name": "two"},
            {**ROW, "old": ""},
            {**ROW, "new": ROW["old"]},
            {**ROW, "caught_by": []},
            {**ROW, "more": 1},
            {key: value for key, value in ROW.items() if key != "rule"},
            [],
        ]
        for data in wrong:
            with self.assertRaises(rows.RowError):
                rows.parse("one", data)

    def test_hunted_are_a_kind_and_a_name(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / rows.HUNTED).mkdir(parents=True)
            (root / rows.HUNTED / "one.json").write_text(str(ROW).replace("'", '"'))
            listed = root / rows.HUNTED / "hunted.txt"
            listed.write_text("# words\nlock one\n")
            self.assertEqual(rows.load_hunted(root), [("lock", rows.parse("one", ROW))])
            for wrong in ("luck one", "lock two", "lock", "lock one two"):
                listed.write_text(wrong)
                with self.assertRaises(rows.RowError):
                    rows.load_hunted(root)

    def test_rows_of_a_tree_that_rotted(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "tests" / "sabotage").mkdir(parents=True)
            path = root / "tests" / "sabotage" / "one.json"
            path.write_text('{"name": "one"')
            self.assertEqual(len(rows.problems(root)), 1)
            path.write_text(str(ROW).replace("'", '"'))
            self.assertEqual(rows.problems(root), ["one: there is no a.c"])
            (root / "a.c").write_text("x = 1;\n")
            self.assertEqual(len(rows.problems(root)), 1)
            (root / "a.c").write_text("x = 1;\ny = 2;\n")
            self.assertEqual(rows.problems(root), [])

    def test_names(self) -> None:
        row = rows.parse("one", ROW)
        self.assertEqual(rows.pick([row], []), [row])
        self.assertEqual(rows.pick([row], ["one"]), [row])
        with self.assertRaises(rows.RowError):
            rows.pick([row], ["two"])


class Results(unittest.TestCase):
    """What a failed test said."""

    def test_check_cases(self) -> None:
        text = "1..2\nok 1 - a.c:fence:good: Passed\nnot ok 2 - ../a.c:fence:bad: x == 1 failed\n"
        failures = check.failures_of("fence", "FAIL", text, 1)
        self.assertEqual([(f.case, f.how) for f in failures], [("bad", "x == 1 failed")])

    def test_other_programs(self) -> None:
        self.assertEqual(check.failures_of("v", "TIMEOUT", "x", 0)[0].how, "did not end")
        self.assertEqual(check.failures_of("v", "FAIL", "a\nlast\n\n", 1)[0].how, "last")
        self.assertEqual(check.failures_of("v", "FAIL", "", 3)[0].how, "exit code 3")

    def test_messages_are_steady(self) -> None:
        text = "../src/tests/a.c:3: p == 0x7f9445c2fa80, n == 0x1f"
        self.assertEqual(check.steady(text), "tests/a.c:3: p == 0x…, n == 0x1f")

    def test_table(self) -> None:
        outcome = check.Outcome(rows.parse("one", {**ROW, "cases": ["b"]}))
        outcome.failures = [check.Failure("t", "a", "x"), check.Failure("t", "b", "y | z")]
        self.assertEqual(table.line(outcome), "| Numbers are positive | t: b, 1 more | y \\| z |")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "T.md"
            path.write_text(f"a\n{table.BEGIN}\nold\n{table.END}\nb\n")
            table.write(path, table.markdown([outcome]))
            text = path.read_text()
            self.assertTrue(text.startswith(f"a\n{table.BEGIN}\n| rule |"))
            self.assertTrue(text.endswith(f"y \\| z |\n{table.END}\nb\n"))
            path.write_text("no marks")
            with self.assertRaises(ValueError):
                table.write(path, table.markdown([outcome]))

    def test_stress_says_first_what_was_wrong(self) -> None:
        text = (
            "stress: seed 0x2 round 6 thread 1 step 9 (duet): word 0 is 0x1, not 0x2 (block.c:9)\n"
            "     0.052 ms ago, thread 1 step 9: write 0x1\n"
            "stress: seed 0x2 round 6 failed. Its settings: ...\n"
            "stress: again: stress --seed 0x2 --round 6\n"
        )
        failures = check.failures_of("stress/zone", "FAIL", text, 1)
        self.assertEqual(failures[0].how, "(duet): word 0 is 0x1, not 0x2")

    def test_table_of_the_hunt(self) -> None:
        row = rows.parse("one", ROW)
        failures = [check.Failure("t", "", "x")]
        found = [check.Outcome(row, failures, seconds=seconds) for seconds in (1.0, 9.0, 2.0)]
        late = check.Outcome(row, failures, seconds=61.0)
        cli.judge_time(found[0])
        cli.judge_time(late)
        self.assertFalse(late.is_caught())
        text = table.hunted({"one": "lock"}, [found, [*found, late]])
        self.assertIn("| lock | Numbers are positive | 2.0 s | x |", text)
        self.assertIn(
            "| lock | Numbers are positive | missed 1 of 4 | found after 61 s only |", text
        )


class Copies(unittest.TestCase):
    """The copy of the tree."""

    def test_copy_follows_the_tree(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root, to = Path(folder) / "root", Path(folder) / "to"
            (root / "pool").mkdir(parents=True)
            (root / "build-x").mkdir()
            (root / "pool" / "a.c").write_text("1")
            (root / "build-x" / "b.c").write_text("1")
            build.copy_tree(root, to, lambda name: True)
            self.assertEqual(list(build.files_of_folder(to)), ["pool/a.c"])
            before = (to / "pool" / "a.c").stat().st_mtime_ns
            build.copy_tree(root, to, lambda name: True)
            self.assertEqual((to / "pool" / "a.c").stat().st_mtime_ns, before)
            (root / "pool" / "a.c").rename(root / "pool" / "c.c")
            build.copy_tree(root, to, lambda name: True)
            self.assertEqual(list(build.files_of_folder(to)), ["pool/c.c"])


if __name__ == "__main__":
    unittest.main()
