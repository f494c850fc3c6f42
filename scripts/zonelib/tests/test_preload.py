# SPDX-License-Identifier: Apache-2.0
"""LD_PRELOAD values and where libzone.so is looked for."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from zonelib import paths, preload
from zonelib.errors import ZoneError

LIBRARY = Path("/opt/zone/libzone.so")


class Preload(unittest.TestCase):
    def test_alone(self) -> None:
        self.assertEqual(preload.with_libzone("", LIBRARY), "/opt/zone/libzone.so")

    def test_others_stay_in_front(self) -> None:
        self.assertEqual(
            preload.with_libzone("/a/one.so two.so:/b/three.so", LIBRARY),
            "/a/one.so:two.so:/b/three.so:/opt/zone/libzone.so",
        )

    def test_never_twice(self) -> None:
        for value in ("/opt/zone/libzone.so", "a.so:/elsewhere/libzone.so", "libzone.so b.so"):
            self.assertEqual(preload.with_libzone(value, LIBRARY), value)

    def test_similar_name_is_another_library(self) -> None:
        self.assertTrue(preload.with_libzone("/a/notlibzone.so", LIBRARY).endswith(str(LIBRARY)))

    def test_path_that_ld_so_would_split(self) -> None:
        for path in ("/a b/libzone.so", "/a:b/libzone.so"):
            with self.assertRaises(ZoneError):
                preload.with_libzone("", Path(path))


class FindLibrary(unittest.TestCase):
    def installed(self, *folders: str) -> Path:
        """A prefix with libzone.so in each of these folders, from which the code seems to run."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        prefix = Path(folder.name)
        for name in folders:
            (prefix / name / "zone").mkdir(parents=True)
            (prefix / name / "zone" / "libzone.so").touch()
        code = prefix / "share" / "libzone"
        patch = mock.patch.object(paths, "_code_dir", return_value=code)
        patch.start()
        self.addCleanup(patch.stop)
        return prefix

    def test_installed(self) -> None:
        for folder in ("lib", "lib64"):
            prefix = self.installed(folder)
            self.assertEqual(paths.find_library(), prefix / folder / "zone" / "libzone.so")

    def test_not_found_names_the_places(self) -> None:
        prefix = self.installed()
        with self.assertRaises(ZoneError) as caught:
            paths.find_library()
        self.assertIn(str(prefix / "lib64" / "zone"), str(caught.exception))

    def test_named(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            self.assertEqual(paths.find_library(file.name), Path(file.name))
        with self.assertRaises(ZoneError):
            paths.find_library("/no/such/libzone.so")

    def test_in_the_source_tree(self) -> None:
        (place,) = paths.library_places()
        self.assertEqual(place.parts[-3:], ("build", "shim", "libzone.so"))


if __name__ == "__main__":
    unittest.main()
