# SPDX-License-Identifier: Apache-2.0
"""Tests of what the GPU suite decides by itself: no GPU is needed, and none is imitated."""

import io
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import build, checks_driver, checks_frameworks, record, runner, suite, turns
from harness.context import Case, Context


def run_with(label: str = "native", **metrics: float | str) -> record.Run:
    return record.Run(label, ["program"], {}, 0, 0.1, False, dict(metrics), "")


class Metrics(unittest.TestCase):
    def test_only_name_value_lines_count(self) -> None:
        output = "hello\nwrong=0\ntotal_ms=5.25\nnot a name=3\nwrong=2\n=4\n"
        self.assertEqual(record.parse_metrics(output), {"wrong": 2.0, "total_ms": 5.25})

    def test_what_a_float_would_spoil_stays_text(self) -> None:
        parsed = record.parse_metrics("checksum=12345678901234567\nloss=0x1.8p+3\nbad=nan\n")
        self.assertEqual(
            parsed, {"checksum": "12345678901234567", "loss": "0x1.8p+3", "bad": "nan"}
        )

    def test_medians_need_a_number(self) -> None:
        runs = [run_with(ms=3.0), run_with(ms=1.0), run_with(ms=2.0), run_with(ms="nan")]
        self.assertEqual(record.median_of(runs, "ms"), 2.0)
        self.assertEqual(record.best_of(runs, "ms"), 1.0)
        self.assertIsNone(record.median_of(runs, "other"))
        self.assertEqual(record.total_of(runs, "ms"), 6.0)
        self.assertIsNone(record.ratio(1.0, None))
        self.assertIsNone(record.ratio(1.0, 0.0))


class Requirements(unittest.TestCase):
    def test_nothing_required_is_nothing_proved(self) -> None:
        self.assertFalse(record.Test("a", "").ok)
        self.assertTrue(record.Test("a", "", informational=True).ok)

    def test_a_missing_value_fails(self) -> None:
        test = record.Test("a", "")
        test.require("zero", 0, "==", 0)
        self.assertTrue(test.ok)
        test.require("unmeasured", None, "<=", 3)
        self.assertFalse(test.ok)

    def test_no_limit_fails(self) -> None:
        test = record.Test("a", "")
        test.require("no native value to compare with", 1.0, "<=", None)
        self.assertFalse(test.ok)

    def test_a_failed_run_fails_whatever_it_printed(self) -> None:
        test = record.Test("a", "")
        test.require("zero", 0, "==", 0)
        run = run_with()
        run.problem = "libzone was not loaded"
        test.require_ran([run])
        self.assertFalse(test.ok)

    def test_the_table_marks_what_failed(self) -> None:
        test = record.Test("name", "title")
        test.require("speed", 3.25, "<=", 3.0)
        text = record.table([test])
        self.assertIn("FAIL name", text)
        self.assertIn("! speed: 3.25 (wanted <= 3)", text)


class Reports(unittest.TestCase):
    REPORT = {
        "options": "",
        "notes": ["a note"],
        "devices": [{"backing": "segments", "counters": {"hits": 7}}],
        "total": {"hits": 7, "ooms": 0, "allocation": {"current": 0, "allocated": 9}},
    }

    def test_counters_are_the_totals(self) -> None:
        self.assertEqual(record.counter(self.REPORT, "allocation", "allocated"), 9)
        self.assertIsNone(record.counter(self.REPORT, "frees"))
        self.assertIsNone(record.counter(None, "hits"))

    def test_zeros_are_not_kept(self) -> None:
        self.assertEqual(
            record.compact_report(self.REPORT),
            {
                "notes": ["a note"],
                "backing": ["segments"],
                "total": {"hits": 7, "allocation": {"allocated": 9}},
            },
        )

    def test_a_library_that_did_not_load_is_a_problem(self) -> None:
        here = Path(__file__)
        warning = "ERROR: ld.so: object 'x' from LD_PRELOAD cannot be preloaded: ignored."
        self.assertEqual(runner.preload_problem(here, "", {"a": 1}), "")
        self.assertIn("not loaded", runner.preload_problem(here, warning, {"a": 1}))
        self.assertIn("not loaded", runner.preload_problem(Path("/no/such"), "", {"a": 1}))
        self.assertIn("no report", runner.preload_problem(here, "", None))


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.runner = runner.Runner(
            Path("/no/libzone.so"), Path(self.work.name), io.StringIO(), time.monotonic() + 60
        )

    def test_a_run_is_ended_at_its_limit_with_its_children(self) -> None:
        start = time.monotonic()
        run = self.runner.run("slow", ["sh", "-c", "echo ms=1; sleep 30 & wait"], timeout_s=1)
        self.assertLess(time.monotonic() - start, 10)
        self.assertTrue(run.timed_out)
        self.assertFalse(run.ok)
        self.assertEqual(run.metrics, {"ms": 1.0})

    def test_a_program_that_is_not_there_is_a_failed_run(self) -> None:
        run = self.runner.run("none", ["/no/such/program"])
        self.assertEqual(run.rc, 127)

    def test_native_runs_see_none_of_libzone(self) -> None:
        full, ours = self.runner.environment(None, "free_order:sync", None, {"A": "b"})
        self.assertEqual(ours, {"A": "b"})
        self.assertFalse([name for name in full if name.startswith("ZONE_")])

    def test_preloads_are_appended(self) -> None:
        full, _ = self.runner.environment(Path("/z/libzone.so"), "x:1", Path("/r.json"), {})
        self.assertTrue(full["LD_PRELOAD"].endswith("/z/libzone.so"))
        self.assertEqual(full["ZONE_ALLOC_CONF"], "x:1")
        self.assertEqual(full["ZONE_REPORT"], "/r.json")

    def test_cases_take_turns_and_a_failed_one_is_dropped(self) -> None:
        ctx = Context(Path(), Path(), Path(), Path(self.work.name), self.runner, reps=3)
        test = record.Test("a", "")
        done = ctx.repeat(
            test,
            [
                Case("good", ["true"]),
                Case("bad", ["false"]),
                Case("once", ["true"], reps=1),
            ],
        )
        self.assertEqual(
            {label: len(runs) for label, runs in done.items()}, {"good": 3, "bad": 1, "once": 1}
        )
        self.assertEqual([run.label for run in test.runs], ["good", "bad", "once", "good", "good"])
        self.assertFalse(test.ok)

    def test_more_rounds_only_as_long_as_a_ratio_is_missed(self) -> None:
        ctx = Context(Path(), Path(), Path(), Path(self.work.name), self.runner, reps=2)

        def judge_at(rounds: int) -> int:
            def judge(test: record.Test, done: dict[str, list[record.Run]]) -> None:
                test.require("rounds", len(done["good"]), ">=", rounds)

            test = record.Test("a", "")
            cases = [Case("good", ["true"]), Case("once", ["true"], reps=1)]
            done = ctx.repeat(test, cases, judge=judge)
            self.assertEqual(len(done["once"]), 1)
            self.assertEqual(len(test.requirements), 1)
            self.assertEqual(test.ok, len(done["good"]) >= rounds)
            return len(done["good"])

        self.assertEqual([judge_at(rounds) for rounds in (1, 2, 3, 99)], [2, 2, 3, 6])
        ctx.spare_s = 0.0
        self.assertEqual(judge_at(3), 2)
        ctx.spare_s, ctx.quick = 80.0, True
        self.assertEqual(judge_at(3), 1)

    def turns(
        self, program: str, rounds: int = 6
    ) -> tuple[record.Test, dict[str, record.Run], Any]:
        ctx = Context(Path(), Path(), Path(), Path(self.work.name), self.runner)
        test = record.Test("a", "")
        cases = [Case(label, ["sh", "-c", program, label]) for label in ("one", "two", "three")]
        runs, times = turns.take_turns(ctx, test, cases, ("x", "y"), rounds)
        return test, runs, times

    def test_turns_end_well(self) -> None:
        program = """
            n=1; [ $0 = two ] && n=2; echo seen=5; echo ready
            while read name; do echo noise; echo $name=$n.5; done; echo left=3"""
        test, runs, times = self.turns(program)
        self.assertTrue(test.ok, test.requirements)
        self.assertEqual([run.metrics["seen"] for run in runs.values()], [5.0, 5.0, 5.0])
        self.assertEqual(runs["two"].metrics["left"], 3.0)
        self.assertEqual(times["two"]["y"], [2.5] * 6)
        self.assertAlmostEqual(turns.paired_ratio(times["two"]["x"], times["one"]["x"]), 2.5 / 1.5)
        self.assertEqual([run.label for run in test.runs], ["one", "two", "three"])

    def test_turns_end_when_one_does_not_play(self) -> None:
        test, _, times = self.turns("[ $0 = two ] && exit 3; echo ready; cat")
        self.assertFalse(test.ok)
        self.assertEqual(times["one"]["x"], [])
        test, _, times = self.turns(
            "echo ready; while read name; do [ $0 = two ] && exit; echo $name=1.5; done"
        )
        self.assertFalse(test.ok)
        self.assertIsNone(turns.paired_ratio(times["two"]["x"], times["one"]["x"]))

    def test_a_broken_check_is_an_error_and_no_more(self) -> None:
        def broken(_ctx: Context, _test: record.Test) -> None:
            raise ValueError("broken on purpose")

        ctx = Context(Path(), Path(), Path(), Path(self.work.name), self.runner)
        check = suite.Check("broken", "", broken)
        self.assertIn("on purpose", suite.run_check(check, ctx, time.monotonic() + 60).error)
        self.assertIn("not run", suite.run_check(check, ctx, time.monotonic() - 1).error)


class SameResults(unittest.TestCase):
    def judge(self, native: list[record.Run], zone: list[record.Run]) -> bool:
        test = record.Test("a", "")
        checks_frameworks.require_same_results(test, "loss", native, zone)
        return test.ok

    def test_to_the_bit_where_native_is(self) -> None:
        native = [run_with(loss_0="0x1.8p+1"), run_with(loss_0="0x1.8p+1")]
        self.assertTrue(self.judge(native, [run_with("zone", loss_0="0x1.8p+1")]))
        self.assertFalse(self.judge(native, [run_with("zone", loss_0="0x1.8000001p+1")]))

    def test_within_a_tolerance_where_native_is_not(self) -> None:
        native = [run_with(loss_0="0x1.8p+1"), run_with(loss_0="0x1.8000001p+1")]
        self.assertTrue(self.judge(native, [run_with("zone", loss_0="0x1.8000002p+1")]))
        self.assertFalse(self.judge(native, [run_with("zone", loss_0="0x1.9p+1")]))
        self.assertFalse(self.judge(native, [run_with("zone")]))

    def test_no_result_is_not_the_same_result(self) -> None:
        self.assertFalse(self.judge([run_with()], [run_with("zone")]))


class Building(unittest.TestCase):
    def test_the_driver_program_is_linked_without_cudart(self) -> None:
        program = next(each for each in build.PROGRAMS if each.name == "pair_driver")
        command = build.nvcc_command("/usr/local/cuda/bin/nvcc", Path("src"), program, Path("out"))
        self.assertIn("none", command)
        self.assertEqual(command[-1], "-lcuda")

    def test_every_source_exists(self) -> None:
        here = Path(__file__).resolve().parent
        for program in build.PROGRAMS:
            self.assertTrue((here / program.source).exists(), program.source)

    def test_suites_that_need_a_gpu(self) -> None:
        listed = '[{"suite": ["libzone:victims"]}, {"suite": ["libzone:lint"]}, {"suite": []}]'
        self.assertEqual(checks_driver.victim_suites(listed), ["libzone:victims"])


class Choosing(unittest.TestCase):
    def test_the_benchmark_is_the_timed_checks(self) -> None:
        names = {check.name for check in suite.choose("bench", "")}
        self.assertIn("pair", names)
        self.assertNotIn("victims", names)
        self.assertEqual(
            [c.name for c in suite.choose("gpu-test", "walk,fault")], ["walk", "fault"]
        )
        with self.assertRaises(SystemExit):
            suite.choose("gpu-test", "walk,nonsense")

    def test_names_are_unique(self) -> None:
        names = [check.name for check in suite.CHECKS]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
