# SPDX-License-Identifier: Apache-2.0
"""Runs unittest modules and prints TAP, so that meson counts every test and every skip by itself.

tap.py FOLDER MODULE…
"""

from __future__ import annotations

import sys
import unittest
from types import TracebackType

ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]


class TapResult(unittest.TestResult):
    """One line a test, details as comments above it."""

    def _line(self, good: bool, test: unittest.TestCase, directive: str = "") -> None:
        name = test.id().replace("#", "")
        print(f"{'ok' if good else 'not ok'} {self.testsRun} {name}{directive}", flush=True)

    def _details(self, test: unittest.TestCase, error: ErrorInfo) -> None:
        for line in self._exc_info_to_string(error, test).splitlines():
            print(f"# {line}")

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._line(True, test)

    def addFailure(self, test: unittest.TestCase, err: ErrorInfo) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._details(test, err)
        self._line(False, test)

    def addError(self, test: unittest.TestCase, err: ErrorInfo) -> None:  # noqa: N802
        super().addError(test, err)
        self._details(test, err)
        self._line(False, test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._line(True, test, f" # SKIP {reason}")


def main(folder: str, modules: list[str]) -> int:
    sys.path.insert(0, folder)
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    print(f"1..{suite.countTestCases()}", flush=True)
    result = TapResult()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
