# SPDX-License-Identifier: Apache-2.0
"""Look-ups under libzone: everybody's answers stay, except the driver functions that it serves."""

from __future__ import annotations

import os
import unittest

from harness import HELPERS, LIBZONE, PreloadTest, need_driver

LOOK = [str(HELPERS / "look_main"), str(HELPERS / "liblook.so")]
DRIVER_LOOK = str(HELPERS / "driver_look")
DRIVER_LIBRARY = str(HELPERS / "libdriverlook.so")
# A hook that gives the next one in line its turn, and one that goes straight to libc.
TAIL_HOOK = str(HELPERS / "libtailhook.so")
STRAIGHT_HOOK = str(HELPERS / "libstraighthook.so")
ZONE = os.path.basename(LIBZONE)


class Lookups(PreloadTest):
    """RTLD_NEXT, RTLD_DEFAULT, real handles and dlvsym, from a library opened with RTLD_LOCAL."""

    def test_the_program_tells_answers_apart(self) -> None:
        """Natively: or else the comparisons below would prove nothing."""
        text = self.run_in(LOOK, None).stdout
        self.assertRegex(text, r"library next look_in_both: liblookdep\.so\+0x")
        self.assertRegex(text, r"library default look_in_both: liblook\.so\+0x")
        self.assertRegex(text, r"library next look_around: none \(.*undefined symbol")
        self.assertRegex(text, r"library default cuserid: libc\.so\.6\+0x")
        self.assertRegex(text, r"library dlerror gone: none \(no error\)")

    def test_same_under_libzone(self) -> None:
        self.assert_same(LOOK)

    def test_same_when_disabled(self) -> None:
        self.assert_same(LOOK, ZONE_DISABLE="1")

    def test_same_beside_another_hook(self) -> None:
        """In both orders: what the hook alone gives is what both give."""
        for hook in (TAIL_HOOK, STRAIGHT_HOOK):
            alone = self.run_in(LOOK, hook)
            self.assertEqual(alone.returncode, 0)
            for preload in (f"{hook}:{LIBZONE}", f"{LIBZONE}:{hook}"):
                both = self.run_in(LOOK, preload)
                self.assertEqual((both.returncode, both.stdout), (0, alone.stdout), preload)


class DriverLookups(PreloadTest):
    """The driver's functions, looked up as libcudart does."""

    def setUp(self) -> None:
        super().setUp()
        need_driver()

    def look(self, preload: str | None, *args: str, **extra: str) -> dict[str, str]:
        """What driver_look prints, by the first words of each line."""
        done = self.run_in([DRIVER_LOOK, DRIVER_LIBRARY, *args], preload, driver=True, **extra)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("allocated and freed", done.stdout)
        self.report = done.stderr
        rows = (line.rpartition(" ") for line in done.stdout.splitlines())
        return {head: last for head, _, last in rows}

    def assert_served(self, found: dict[str, str], file: str) -> None:
        self.assertEqual(found["dlsym cuMemAlloc_v2"], file)
        self.assertEqual(found["cuGetProcAddress cuMemAlloc"], file)
        self.assertEqual(found["dlsym and cuGetProcAddress"], "agree")
        self.assertEqual(found["dlsym cuInit"], "libcuda.so.1")

    def test_native(self) -> None:
        self.assert_served(self.look(None), "libcuda.so.1")

    def test_served(self) -> None:
        self.assert_served(self.look(LIBZONE), ZONE)
        self.assertRegex(self.report, r"(?m)^zone\[\d+\] ")

    def test_disabled(self) -> None:
        self.assert_served(self.look(LIBZONE, ZONE_DISABLE="1"), "libcuda.so.1")
        self.assertEqual(self.report, "")

    def test_hook_in_front(self) -> None:
        found = self.look(f"{TAIL_HOOK}:{LIBZONE}")
        self.assert_served(found, ZONE)
        self.assertEqual(found["tail_hook saw"], "look-ups")

    def test_hook_behind(self) -> None:
        """libzone is in front and must hand on to the other hook, not to libc."""
        for hook in (TAIL_HOOK, STRAIGHT_HOOK):
            found = self.look(f"{LIBZONE}:{hook}")
            self.assert_served(found, ZONE)
            self.assertEqual(found["tail_hook saw"], "look-ups")

    def test_hook_that_passes_libzone_by(self) -> None:
        """In front, straight to libc: libzone cannot be reached, and the program runs natively."""
        self.assert_served(self.look(f"{STRAIGHT_HOOK}:{LIBZONE}"), "libcuda.so.1")

    def test_preloaded_twice(self) -> None:
        self.assert_served(self.look(f"{LIBZONE}:{LIBZONE}"), ZONE)

    def test_deepbind_passes_by(self) -> None:
        """RTLD_DEEPBIND binds to libc's dlsym; the program must work all the same, natively."""
        self.assert_served(self.look(LIBZONE, "deepbind"), "libcuda.so.1")


if __name__ == "__main__":
    unittest.main()
