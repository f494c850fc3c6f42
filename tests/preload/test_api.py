# SPDX-License-Identifier: Apache-2.0
"""The calls of libzone.h from Python, as docs/API.md shows them, with and without libzone."""

from __future__ import annotations

import os
import re
import unittest
from pathlib import Path

from harness import LIBZONE, PreloadTest, need_driver

PAGE = Path(os.environ["TEST_ROOT"], "docs", "API.md").read_text(encoding="utf-8")
HEADER = Path(os.environ["TEST_ROOT"], "include", "libzone.h").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"<!-- example -->\n```python\n(.*?)```\n<!-- end example -->", PAGE, re.S)[0]

USE = """
runtime = ctypes.CDLL("libcudart.so.13")
pointers = [ctypes.c_void_p() for i in range(3)]
codes = [runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(4 << 20)) for p in pointers]
codes += [runtime.cudaFree(p) for p in pointers[:2]]
print(set(codes), summary())
"""

# A process without CUDA: all is 0, and no driver comes in.
IDLE = """
print(summary(), zone.zone_report(), "libcuda" in open("/proc/self/maps").read())
"""


def python(program: str) -> list[str]:
    return ["/usr/bin/python3", "-c", EXAMPLE + program]


class Api(PreloadTest):
    def test_the_page_is_complete(self) -> None:
        declared = set(re.findall(r"^int (zone_\w+)\(", HEADER, re.M))
        self.assertEqual(len(declared), 8)
        self.assertEqual(set(re.findall(r"^\| `(zone_\w+)\(", PAGE, re.M)), declared)
        codes = set(re.findall(r"^#define (ZONE_\w+) +\(?(-?\d+)", HEADER, re.M))
        rows = re.findall(r"^\| (-?\d+) \| `(ZONE_\w+)`", PAGE, re.M)
        self.assertEqual({(name, code) for code, name in rows}, codes)

    def test_example(self) -> None:
        need_driver()
        zone = self.run_in(python(USE), LIBZONE, driver=True)
        self.assertEqual(
            zone.stdout,
            "{0} held 4194304, at most 12582912, reserved 12582912, given back 8388608\n",
            zone.stderr,
        )
        self.assertIn("options: max_cached_mb:64", zone.stderr)

    def test_without_libzone(self) -> None:
        need_driver()
        native = self.run_in(python(USE), None, driver=True)
        self.assertEqual(native.stdout, "{0} libzone is not loaded\n", native.stderr)

    def test_without_cuda(self) -> None:
        for driver in (False, True):
            zone = self.run_in(python(IDLE), LIBZONE, driver=driver)
            self.assertEqual(
                (zone.returncode, zone.stdout, zone.stderr),
                (0, "held 0, at most 0, reserved 0, given back 0 0 False\n", ""),
            )
        self.assertEqual([], list(self.folder.iterdir()))

    def test_switched_off(self) -> None:
        zone = self.run_in(python(IDLE), LIBZONE, ZONE_DISABLE="1")
        self.assertIn("libzone: code -1", zone.stderr)


if __name__ == "__main__":
    unittest.main()
