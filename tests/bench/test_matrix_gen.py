# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of public programs, from results made up here."""

import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from zonelib import matrix_gen  # noqa: E402

PAGE = f"before\n{matrix_gen.BEGIN}\nold\n{matrix_gen.END}\nafter\n"


def result(**programs: Any) -> dict[str, Any]:
    return {
        "tests": [{"name": "pair", "measured": {"x": 1}}, {"name": "matrix", "measured": programs}]
    }


def ran(state: str, default: bool = True) -> dict[str, Any]:
    each = {"same": True, "seconds": 1.0}
    settings = {
        "default": {"same": default, "seconds": 0.5},
        "sync": each,
        "cut": each,
        "off": each,
    }
    return {"result": state, "native_s": 1.0, "native_rc": 0, "remark": "a|b", **settings}


class Page(unittest.TestCase):
    def test_shards_add_up_and_the_newest_counts(self) -> None:
        skipped = {"result": "skipped", "remark": "not built"}
        found = matrix_gen.newest(
            [
                ("1.json", result(one=ran("differs", False), two=skipped)),
                ("2.json", result(one=ran("same"), three=ran("differs", False))),
                ("3.json", result(one=skipped)),
            ]
        )
        self.assertEqual(found["one"]["file"], "2.json")
        page = matrix_gen.put(PAGE, found)
        self.assertIn("1 of 2 programs are as natively with every setting; 1 were skipped", page)
        self.assertIn("| one | same | 1 | 0.50 | 1.00 | 1.00 | 1.00 | a\\|b |", page)
        self.assertIn("| three | differs | 1 | **differs** | 1.00", page)
        self.assertIn("| two | skipped | – | – | – | – | – | not built |", page)
        self.assertTrue(page.startswith("before\n") and page.endswith("\nafter\n"))
        self.assertEqual(matrix_gen.put(page, found), page)

    def test_nothing_yet_and_no_place(self) -> None:
        self.assertIn("Not run yet", matrix_gen.put(PAGE, {}))
        with self.assertRaises(ValueError):
            matrix_gen.put("no marks", {})

    def test_the_page_is_what_the_results_say(self) -> None:
        text = (ROOT / "docs" / "COMPATIBILITY.md").read_text(encoding="utf-8")
        found = matrix_gen.newest(matrix_gen.load(ROOT / "results"))
        self.assertEqual(matrix_gen.put(text, found), text)


if __name__ == "__main__":
    unittest.main()
