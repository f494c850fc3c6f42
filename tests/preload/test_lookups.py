# SPDX-License-Identifier: Apache-2.0
"""Look-ups under libzone: everybody's answers stay, except the driver functions that it serves."""

from __future__ import annotations

import os
import shutil
import unittest

from harness import DRIVER_DIR, HELPERS, LIBZONE, PreloadTest, need_driver

LOOK = [str(HELPERS / "look_main"), str(HELPERS / "liblook.so")]
DRIVER_LOOK = str(HELPERS / "driver_look")
DRIVER_LIBRARY = str(HELPERS / "libdriverlook.so")
# A hook that gives the next one in line its turn, and one that goes straight to libc.
TAIL_HOOK = str(HELPERS / "libtailhook.so")
STRAIGHT_HOOK = str(HELPERS / "libstraighthook.so")
# A hook of the memory calls by name.
MEM_HOOK = str(HELPERS / "libmemhook.so")
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
        self.assertRegex(self.report, r"^zone\[\d+\] libcuda was loaded past libzone .*\n\Z")

    def test_namespace_of_its_own(self) -> None:
        """A preload is not there: natively, and nothing can be known about it."""
        self.assert_served(self.look(LIBZONE, "namespace"), "libcuda.so.1")
        self.assertEqual(self.report, "")

    def test_opened_and_closed_again(self) -> None:
        """The library and, by it, the driver; each time its functions are libzone's."""
        self.assert_served(self.look(LIBZONE, "again"), ZONE)
        self.assertIn("in all 16.0 KiB in 4 allocations", self.report)

    def test_copy_under_another_name(self) -> None:
        """Opened later than the driver, or before: then the loader takes it for the driver."""
        copy = self.folder / "libother.so"
        shutil.copy(f"{DRIVER_DIR}/libcuda.so.1", copy)
        native = self.look(None, "beside", str(copy))
        self.assertEqual(native["dlsym cuInit"], "libother.so")
        found = self.look(LIBZONE, "beside", str(copy))
        self.assertEqual(found, native | {key: ZONE for key in native if "cuMemAlloc" in key})
        self.assertIn("in 1 allocation\n", self.report)


class ForwardingDriver(DriverLookups):
    """libcuda.so.1 is a thin library that opens the driver proper, a second one of that name."""

    def environment(
        self, preload: str | None, driver: bool, extra: dict[str, str]
    ) -> dict[str, str]:
        env = super().environment(preload, driver, extra)
        return env | {"LD_LIBRARY_PATH": str(HELPERS / "forward")}

    def assert_served(self, found: dict[str, str], file: str) -> None:
        """What its cuGetProcAddress gives is the inner driver's own, natively too."""
        self.assertEqual(found["dlsym cuMemAlloc_v2"], file)
        self.assertEqual(found["dlsym cuInit"], "libcuda.so.1")
        self.assertEqual(found["cuGetProcAddress cuMemAlloc"], "libcuda.so.1")

    def test_deepbind_passes_by(self) -> None:
        """The driver is closed again before the exit, when libzone would have noticed it."""
        self.assert_served(self.look(LIBZONE, "deepbind"), "libcuda.so.1")
        self.assertEqual(self.report, "")


class MemoryHook(PreloadTest):
    """Another preload wraps the memory calls by name."""

    def setUp(self) -> None:
        super().setUp()
        need_driver()

    def smoke(self, preload: str) -> tuple[str, str]:
        done = self.run_in([os.environ["TEST_SMOKE"]], preload, driver=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_in_front(self) -> None:
        """Both see the calls of a linked program."""
        said, report = self.smoke(f"{MEM_HOOK}:{LIBZONE}")
        self.assertEqual(said, "memhook 13 13\n")
        self.assertIn("in 13 allocations", report)

    def test_behind(self) -> None:
        """libzone asks the driver, not the next in line."""
        said, report = self.smoke(f"{LIBZONE}:{MEM_HOOK}")
        self.assertEqual(said, "memhook 0 0\n")
        self.assertIn("in 13 allocations", report)


if __name__ == "__main__":
    unittest.main()
