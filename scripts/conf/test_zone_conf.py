# SPDX-License-Identifier: Apache-2.0
"""zone-conf prints valid JSON for any text, and the same findings as text.

test_zone_conf.py TOOL
"""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from typing import Any

TOOL = ""


def run(*args: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([TOOL, *args], capture_output=True)


def answer(text: str | bytes) -> dict[str, Any]:
    """The JSON for a text; its exit code says whether there are problems."""
    done = run("--json", text)
    found = json.loads(done.stdout.decode("utf-8"))
    assert done.returncode == (1 if found["problems"] else 0), done.returncode
    return found


class ZoneConf(unittest.TestCase):
    def test_settings(self) -> None:
        found = answer("max_pending_mb:512,pinned_free_catch_all:True")
        self.assertEqual(found["problems"], [])
        self.assertEqual([note["key"] for note in found["notes"]], ["pinned_free_catch_all"])
        settings = {setting["key"]: setting for setting in found["settings"]}
        self.assertEqual(settings["max_pending_mb"]["value"], "512")
        self.assertEqual(settings["max_pending_mb"]["default"], "auto")
        self.assertTrue(settings["max_pending_mb"]["given"])
        self.assertFalse(settings["min_free_mb"]["given"])

    def test_problems_point_into_the_text(self) -> None:
        text = "min_free_mb:7,oom_wait_ms:soon"
        (problem,) = answer(text)["problems"]
        self.assertEqual(text[problem["at"] :], "soon")
        self.assertIn("oom_wait_ms at 26", problem["text"])

    def test_any_bytes(self) -> None:
        for text in (b"\xff:\xfe", b"\x1b[1m", b'"\\:"', "ä:ö".encode(), b"," * 1000, b"[" * 500):
            self.assertTrue(answer(text)["problems"], text)

    def test_text(self) -> None:
        done = run("oom_wait_ms:soon,max_cached_mb:1")
        self.assertEqual(done.returncode, 1)
        lines = done.stdout.decode().splitlines()
        self.assertTrue(lines[0].startswith("ZONE_ALLOC_CONF: oom_wait_ms at 12: expected "))
        self.assertIn("max_cached_mb:1 (set)", lines)

    def test_tables(self) -> None:
        options = json.loads(run("--table").stdout)
        self.assertEqual(len({option["key"] for option in options}), len(options))
        counters = json.loads(run("--counters").stdout)
        self.assertIn("hits", [counter["name"] for counter in counters["counters"]])
        self.assertTrue(counters["balances"])

    def test_usage(self) -> None:
        for args in ([], ["--what"], ["--table", "x"]):
            self.assertEqual(run(*args).returncode, 2)


if __name__ == "__main__":
    TOOL = sys.argv[1]
    unittest.main(argv=[sys.argv[0]])
