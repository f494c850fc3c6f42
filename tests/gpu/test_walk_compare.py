# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison of two walks: every way in which they may differ is told apart."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from walk_compare import compare, hooked_names

HOOKS = """
/* HOOK(cuNotThis, in a comment) */
HOOK(cuMemAlloc_v2, SERVE, (CUdeviceptr *dptr, size_t bytes), (dptr, bytes))
CALL(cuEventQuery, (CUevent event))
"""

NATIVE = [
    "dlsym cuInit libcuda.so.1+0x10",
    "dlsym cuMemAlloc libcuda.so.1+0x20",
    "dlsym cuMemAlloc_v2 libcuda.so.1+0x30",
    "default cuMemAlloc_v2 null",
    "default dlsym libc.so.6+0x5",
    "v1 cuMemAlloc 3020 0 0 libcuda.so.1+0x30",
    "v2 cuMemAlloc 2000 0 0 0 libcuda.so.1+0x20",
    "v2 cuMemAlloc 3020 0 0 0 libcuda.so.1+0x30",
    "v2 cuNoSuchFunction 3020 0 500 1 null",
]
ZONE = [
    "dlsym cuInit libcuda.so.1+0x10",
    "dlsym cuMemAlloc libcuda.so.1+0x20",
    "dlsym cuMemAlloc_v2 libzone.so+0x7",
    "default cuMemAlloc_v2 libzone.so+0x7",
    "default dlsym libzone.so+0x1",
    "v1 cuMemAlloc 3020 0 0 libzone.so+0x7",
    "v2 cuMemAlloc 2000 0 0 0 libcuda.so.1+0x20",
    "v2 cuMemAlloc 3020 0 0 0 libzone.so+0x7",
    "v2 cuNoSuchFunction 3020 0 500 1 null",
]


class Compare(unittest.TestCase):
    def differences(self, line: int | None = None, text: str = "") -> list[str]:
        zone = list(ZONE)
        if line is not None:
            zone[line] = text
        return compare(NATIVE, zone, hooked_names(HOOKS)).differences

    def test_only_substituted_rows_are_hooked(self) -> None:
        self.assertEqual(hooked_names(HOOKS), {"cuMemAlloc_v2"})

    def test_the_same_but_for_the_wrappers(self) -> None:
        result = compare(NATIVE, ZONE, hooked_names(HOOKS))
        self.assertEqual(result.differences, [])
        self.assertEqual(result.substituted, 3)
        self.assertEqual(result.wrappers, 1)

    def test_a_wrapper_for_what_is_not_hooked(self) -> None:
        self.assertTrue(self.differences(0, "dlsym cuInit libzone.so+0x9"))
        self.assertTrue(self.differences(6, "v2 cuMemAlloc 2000 0 0 0 libzone.so+0x7"))

    def test_a_hooked_function_that_got_away(self) -> None:
        self.assertTrue(self.differences(5, NATIVE[5]))

    def test_codes_and_statuses(self) -> None:
        self.assertTrue(self.differences(8, "v2 cuNoSuchFunction 3020 0 0 1 null"))
        self.assertTrue(self.differences(8, "v2 cuNoSuchFunction 3020 0 500 0 null"))
        self.assertTrue(self.differences(8, "v2 cuNoSuchFunction 3020 0 500 1 untouched"))

    def test_another_wrapper_by_another_way(self) -> None:
        self.assertTrue(self.differences(7, "v2 cuMemAlloc 3020 0 0 0 libzone.so+0x8"))

    def test_a_missing_line(self) -> None:
        self.assertTrue(compare(NATIVE, ZONE[:-1], {"cuMemAlloc_v2"}).differences)


if __name__ == "__main__":
    unittest.main()
