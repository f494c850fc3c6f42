# SPDX-License-Identifier: Apache-2.0
"""Which run of a check the page about performance shows."""

import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import perf_gen

UNUSED = "not run: the time for the whole suite was used up"


def test_of(name: str, error: str = "", timed_out: bool = False) -> dict[str, Any]:
    return {"name": name, "error": error, "runs": [{"timed_out": timed_out}]}


class Newest(unittest.TestCase):
    def chosen(self, *files: list[dict[str, Any]]) -> dict[str, str]:
        results = [(f"{at}.json", {"tests": tests}) for at, tests in enumerate(files)]
        return {s.test["name"]: s.file for s in perf_gen.newest_tests(results)}

    def test_the_newest_that_ran_counts(self) -> None:
        chosen = self.chosen([test_of("a"), test_of("b")], [test_of("a"), test_of("b", UNUSED)])
        self.assertEqual(chosen, {"a": "1.json", "b": "0.json"})

    def test_what_ran_when_the_time_was_up_does_not_count(self) -> None:
        old = [test_of("a"), test_of("b"), test_of("c")]
        new = [test_of("a"), test_of("b", timed_out=True), test_of("c", UNUSED)]
        self.assertEqual(self.chosen(old, new), {"a": "1.json", "b": "0.json", "c": "0.json"})

    def test_a_check_that_hangs_by_itself_counts(self) -> None:
        new = [test_of("a", timed_out=True), test_of("b"), test_of("c", UNUSED)]
        self.assertEqual(self.chosen(new), {"a": "0.json", "b": "0.json"})


if __name__ == "__main__":
    unittest.main()
