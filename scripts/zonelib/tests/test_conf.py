# SPDX-License-Identifier: Apache-2.0
"""zone conf: what it shows of the parser's answer, and its exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from zonelib import cli, conf
from zonelib.errors import ZoneError


def setting(key: str, **changes: Any) -> dict[str, Any]:
    row = {"key": key, "value": "1", "default": "1", "given": False, "served": True}
    return row | {"doc": f"{key} is a setting", "reason": ""} | changes


class Conf(unittest.TestCase):
    def show(self, answer: dict[str, Any], *args: str) -> tuple[int, str]:
        """Exit code and output of zone conf, with this answer of the parser."""
        answer = {"problems": [], "notes": [], "settings": []} | answer
        said = io.StringIO()
        with mock.patch.object(conf, "ask_parser", return_value=answer) as asked:
            with contextlib.redirect_stdout(said):
                code = cli.main(["conf", *args])
            self.asked = asked.call_args.args[0]
        return code, said.getvalue()

    def test_settings(self) -> None:
        rows = [setting("a", value="2", given=True), setting("b")]
        code, text = self.show({"settings": rows}, "a:2")
        self.assertEqual((code, self.asked), (0, "a:2"))
        self.assertRegex(text, r"(?m)^\* +a +2 +1 +a is a setting$")
        self.assertRegex(text, r"(?m)^ +b +1 +1 +b is a setting$")

    def test_keys_without_effect(self) -> None:
        rows = [
            setting("named", given=True, served=False, reason="it is slow"),
            setting("absent", served=False, reason="x"),
        ]
        _, text = self.show({"settings": rows}, "named:1")
        self.assertIn("no effect: it is slow", text)
        self.assertNotIn("absent", text)

    def test_problem(self) -> None:
        problem = {"key": "a", "at": 0, "text": "a is no key"}
        code, text = self.show({"problems": [problem], "settings": [setting("b")]}, "a:1")
        self.assertEqual(code, 1)
        self.assertEqual(text.splitlines()[0], "a is no key")

    def test_environment(self) -> None:
        with mock.patch.dict("os.environ", ZONE_ALLOC_CONF="c:3"):
            self.show({"settings": [setting("a")]})
            self.assertEqual(self.asked, "c:3")
            self.show({"settings": [setting("a")]}, "")
            self.assertEqual(self.asked, "")

    def test_json(self) -> None:
        rows = {"settings": [setting("a")]}
        code, text = self.show(rows, "--json", "a:1")
        self.assertEqual((code, json.loads(text)["settings"]), (0, rows["settings"]))

    def test_parser_that_says_nothing_useful(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder, "zone-conf")
            tool.write_text("#!/bin/sh\necho broken >&2; exit 3\n", encoding="utf-8")
            tool.chmod(0o755)
            with (
                mock.patch.object(conf, "find_tool", return_value=tool),
                self.assertRaisesRegex(ZoneError, "broken"),
            ):
                conf.ask_parser("a:1")


if __name__ == "__main__":
    unittest.main()
