# SPDX-License-Identifier: Apache-2.0
"""A process that never touches CUDA must not notice libzone."""

from __future__ import annotations

import os
import signal
import unittest

from harness import LIBZONE, PreloadTest


class Quiet(PreloadTest):
    def test_true(self) -> None:
        self.assert_same(["/bin/true"])

    def test_everything_bound_at_once(self) -> None:
        """A symbol of ours that nobody has would show itself in every process."""
        self.assert_same(["/bin/true"], LD_BIND_NOW="1")
        self.assert_same(["bash", "-c", "ls >/dev/null; ls | cat"], LD_BIND_NOW="1")

    def test_shell(self) -> None:
        self.assert_same(["sh", "-c", ":"])

    def test_shell_with_children(self) -> None:
        self.assert_same(["sh", "-c", "ls /proc/1 >/dev/null; (echo a | cat; exit 3); echo $?"])

    def test_python(self) -> None:
        self.assert_same(["/usr/bin/python3", "-c", "pass"])

    def test_python_threads_and_fork(self) -> None:
        code = (
            "import os, threading, subprocess\n"
            "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
            "pid = os.fork()\n"
            "os._exit(5) if pid == 0 else print(os.waitpid(pid, 0)[1])\n"
            "print(subprocess.run(['true']).returncode)\n"
        )
        self.assert_same(["/usr/bin/python3", "-u", "-c", code])

    def test_with_settings(self) -> None:
        """Neither good nor bad settings are read before the first allocation."""
        for conf in ("max_cached_mb:64", "C:\\x", "no_such_key:1,"):
            self.assert_same(
                ["/bin/true"], ZONE_ALLOC_CONF=conf, ZONE_REPORT=str(self.folder / "report.%p")
            )

    def test_abort_conf_spares_others(self) -> None:
        self.assert_same(["/bin/true"], ZONE_ALLOC_CONF="abort_conf:True,no_such_key:1")

    def test_exit_code(self) -> None:
        for code in (0, 1, 37, 255):
            self.assert_same(["sh", "-c", f"exit {code}"])

    def test_killed(self) -> None:
        for name in ("TERM", "KILL", "ABRT", "SEGV"):
            done = self.run_in(["sh", "-c", f"ulimit -c 0; kill -{name} $$"], LIBZONE)
            self.assertEqual(done.returncode, -getattr(signal, f"SIG{name}"))
            self.assertEqual(done.stdout, "")

    def test_closed_descriptors(self) -> None:
        self.assert_same(["sh", "-c", "exec 0<&- 1>&- 2>&-; exit 4"])


class Footprint(PreloadTest):
    """What the kernel shows of a preloaded process."""

    def mapped(self, preload: str | None) -> set[str]:
        done = self.run_in(["cat", "/proc/self/maps"], preload)
        return {line.split()[-1] for line in done.stdout.splitlines() if "/" in line}

    def test_mapped_files(self) -> None:
        added = {os.path.basename(path) for path in self.mapped(LIBZONE) - self.mapped(None)}
        # glibc before 2.34 had these two apart.
        self.assertEqual(added - {"libdl.so.2", "libpthread.so.0"}, {os.path.basename(LIBZONE)})

    def test_one_thread(self) -> None:
        self.assert_same(["sh", "-c", "ls /proc/self/task | wc -l"])

    def test_descriptors(self) -> None:
        self.assert_same(["sh", "-c", "ls /proc/self/fd | wc -l"])

    def test_signal_handlers(self) -> None:
        self.assert_same(["grep", "^Sig[BIC]", "/proc/self/status"])


class Disabled(PreloadTest):
    def test_true(self) -> None:
        self.assert_same(["/bin/true"], ZONE_DISABLE="1")


if __name__ == "__main__":
    unittest.main()
