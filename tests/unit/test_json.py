# SPDX-License-Identifier: Apache-2.0
"""The report as JSON says what the text says, and docs/STATS.md explains every line of the text.

test_json.py REPORT_SAMPLE STATS_MD
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

SAMPLE = ""
STATS = Path()


def sample(which: str, form: str) -> str:
    """What report_sample prints; it must be UTF-8 if it is JSON."""
    done = subprocess.run([SAMPLE, which, form], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "strict" if form == "json" else "replace")


class Report(unittest.TestCase):
    def report(self, which: str) -> dict[str, Any]:
        """The parsed report; a name that stands twice in one object is an error."""

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            self.assertEqual(len(pairs), len(dict(pairs)))
            return dict(pairs)

        return json.loads(sample(which, "json"), object_pairs_hook=unique)

    def test_head(self) -> None:
        report = self.report("full")
        self.assertEqual(report["zone_report"], 1)
        self.assertEqual(report["pid"], 4711)
        self.assertEqual(report["program"], "träin\ufffd\n\x1b[31m")
        self.assertEqual(report["options"], "max_pending_mb:512,free_order:event")
        self.assertEqual(report["notes"], ['a note with "quotes" and a \\', "another note"])
        self.assertEqual([d["ordinal"] for d in report["devices"]], list(range(8)))
        self.assertEqual({d["name"] for d in report["devices"]}, {"NVIDIA H200"})

    def test_total_is_the_sum(self) -> None:
        report = self.report("full")
        parts = [report["process"], *(device["counters"] for device in report["devices"])]
        for name, total in report["total"].items():
            values = [part[name] for part in parts]
            if name == "fault_code":
                self.assertEqual(total, max(values))
            elif isinstance(total, dict):
                for key in total:
                    self.assertEqual(total[key], sum(value[key] for value in values), name)
            else:
                self.assertEqual(total, sum(values), name)

    def test_says_what_the_text_says(self) -> None:
        report = self.report("small")
        total, text = report["total"], sample("small", "text")
        self.assertIn(f" in {total['allocation']['allocated']} allocations\n", text)
        self.assertIn(f"not freed: {total['allocation']['current']} allocations", text)
        self.assertIn(f"try: {report['try']}\n", text)

    def test_out_of_memory(self) -> None:
        oom = self.report("full")["out_of_memory"]
        self.assertEqual(
            oom["total_bytes"],
            sum(
                oom[part + "_bytes"]
                for part in ("free", "allocated", "pending", "cached", "other", "rest")
            ),
        )
        self.assertEqual(oom["verdict"], "limit")
        self.assertNotIn("out_of_memory", self.report("small"))
        stats = STATS.read_text(encoding="utf-8")
        for name in oom:
            self.assertIn(f"`{name}`", stats)

    def test_every_line_is_explained(self) -> None:
        stats = STATS.read_text(encoding="utf-8")
        for line in sample("full", "text").splitlines():
            label = re.match(r"zone\[\d+\] ([a-z ]+): ", line)
            if label:
                self.assertIn(f"**{label.group(1)}**", stats)


if __name__ == "__main__":
    SAMPLE, STATS = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0]])
