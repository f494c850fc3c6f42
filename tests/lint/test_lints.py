# SPDX-License-Identifier: Apache-2.0
"""Each rule of tests/lint must catch what it is there for, and let good files through."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import binary
import layers
import links
import sources
import tree

HOOKS = "/* rows */\nHOOK(cuMemAlloc_v2, CALL, (int a), (a))\nHOOK(cuMemFree_v2, CALL, (), ())\n"
HEADER = "/* calls */\nint zone_stats(int device) LIBZONE_CALL;\n"
EXPORTS = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     6: 0000000000002000     0 SECTION LOCAL  DEFAULT   10 .init
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND write@GLIBC_2.2.5 (2)
     2: 0000000000001000    10 FUNC    GLOBAL DEFAULT   12 cuMemAlloc_v2
     3: 0000000000001010    10 FUNC    GLOBAL DEFAULT   12 cuMemFree_v2
     4: 0000000000001020    10 FUNC    GLOBAL DEFAULT   12 dlsym
     5: 0000000000001030    10 FUNC    GLOBAL DEFAULT   12 zone_stats
"""
ROW = "     9: 0000000000001040    10 FUNC    GLOBAL DEFAULT   12 "


class Exports(unittest.TestCase):
    def test_good(self) -> None:
        self.assertEqual(binary.check_exports(EXPORTS, HOOKS, HEADER), [])

    def test_stray_export(self) -> None:
        problems = binary.check_exports(EXPORTS + ROW + "helper\n", HOOKS, HEADER)
        self.assertEqual(len(problems), 1)
        self.assertIn("helper", problems[0])

    def test_missing_export(self) -> None:
        problems = binary.check_exports(
            EXPORTS.replace("12 cuMemFree_v2", "UND cuMemFree_v2"), HOOKS, HEADER
        )
        self.assertEqual(problems, ["cuMemFree_v2 is promised and not exported"])

    def test_calls_are_those_of_the_header(self) -> None:
        self.assertEqual(len(binary.check_exports(EXPORTS + ROW + "zone_more\n", HOOKS, HEADER)), 1)
        missing = binary.check_exports(EXPORTS, HOOKS, HEADER + "int zone_more(void);\n")
        self.assertEqual(missing, ["zone_more is promised and not exported"])

    def test_versioned_export(self) -> None:
        problems = binary.check_exports(
            EXPORTS.replace(" dlsym", " dlsym@@ZONE_1.0"), HOOKS, HEADER
        )
        self.assertEqual(len(problems), 1)

    def test_two_rows(self) -> None:
        problems = binary.check_exports(
            EXPORTS, HOOKS + "HOOK(cuMemFree_v2, CALL, (), ())\n", HEADER
        )
        self.assertTrue(problems)

    def test_broken_row(self) -> None:
        self.assertTrue(binary.check_exports(EXPORTS, HOOKS + "HOOK (cuInit)\n", HEADER))


class Glibc(unittest.TestCase):
    def test_old(self) -> None:
        self.assertEqual(binary.check_glibc(" write@GLIBC_2.2.5 (2)\n a@GLIBC_2.17 (3)"), [])

    def test_new(self) -> None:
        self.assertEqual(len(binary.check_glibc(" dlsym@GLIBC_2.34 (2)\n")), 1)

    def test_private(self) -> None:
        self.assertEqual(len(binary.check_glibc(" _dl_sym@GLIBC_PRIVATE (2)\n")), 1)

    def test_relr(self) -> None:
        self.assertEqual(len(binary.check_glibc("  Name: GLIBC_ABI_DT_RELR  Flags: none\n")), 1)

    def test_other_machine(self) -> None:
        """The version of x86-64 in a library for aarch64: it would find no dlsym there."""
        aarch64, x86_64 = bytes(18) + b"\xb7\0", bytes(18) + b"\x3e\0"
        self.assertEqual(binary.check_base(aarch64 + b"\0GLIBC_2.17\0GLIBC_2.34\0"), [])
        self.assertEqual(binary.check_base(x86_64 + b"\0GLIBC_2.2.5\0GLIBC_2.34\0"), [])
        self.assertEqual(len(binary.check_base(aarch64 + b"\0GLIBC_2.2.5\0")), 2)
        self.assertEqual(len(binary.check_base(x86_64 + b"\0GLIBC_2.17\0")), 1)


class Imports(unittest.TestCase):
    def test_good(self) -> None:
        self.assertEqual(binary.check_imports(EXPORTS), [])

    def test_each_kind(self) -> None:
        row = ROW.replace(" 12 ", " UND ")
        for name in ("cuMemAlloc_v2", "pthread_create@GLIBC_2.34", "sigaction", "sem_open", "_Zx"):
            self.assertEqual(len(binary.check_imports(EXPORTS + row + name + " (2)\n")), 1, name)


class Needed(unittest.TestCase):
    STACK = (
        "  GNU_STACK      0x000000 0x0000000000000000 0x0000000000000000 0x000000 0x000000 RW  0x10"
    )

    def test_good(self) -> None:
        dynamic = " 0x1 (NEEDED)  Shared library: [libc.so.6]\n"
        self.assertEqual(binary.check_needed(dynamic, self.STACK), [])

    def test_cuda(self) -> None:
        dynamic = " 0x1 (NEEDED)  Shared library: [libcuda.so.1]\n"
        self.assertEqual(len(binary.check_needed(dynamic, self.STACK)), 1)

    def test_runpath(self) -> None:
        self.assertEqual(len(binary.check_needed(" 0x1d (RUNPATH) [/x]\n", self.STACK)), 1)

    def test_executable_stack(self) -> None:
        stack = self.STACK.replace("RW ", "RWE")
        self.assertEqual(len(binary.check_needed("", stack)), 1)


class Layers(unittest.TestCase):
    def check(self, **contents: str) -> list[str]:
        """The problems of a tree with these files; "pool_a_h" is pool/a.h."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in contents.items():
                wing, stem, suffix = name.split("_")
                path = Path(folder, wing, f"{stem}.{suffix}")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return layers.check(Path(folder))

    def test_good(self) -> None:
        problems = self.check(
            pool_a_h="#include <stddef.h>\n/* dlsym is the shim's */\n",
            pool_a_c='#include "a.h"\n',
            shim_b_c='#include <cuda.h>\n#include "pool/a.h"\nvoid *x = dlsym;\n',
        )
        self.assertEqual(problems, [])

    def test_pool_includes_cuda(self) -> None:
        for header in ("cuda.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nvml.h"):
            self.assertEqual(len(self.check(pool_a_c=f"#include <{header}>\n")), 1, header)

    def test_pool_calls(self) -> None:
        self.assertEqual(len(self.check(pool_a_c='char *x = getenv("HOME");\n')), 1)
        self.assertEqual(len(self.check(pool_a_c="void *x = dlsym(0, 0);\n")), 1)

    def test_pool_includes_shim(self) -> None:
        problems = self.check(pool_a_c='#include "../shim/b.h"\n', shim_b_h="\n")
        self.assertEqual(len(problems), 1)

    def test_cycle(self) -> None:
        problems = self.check(pool_a_h='#include "b.h"\n', pool_b_h='#include "a.h"\n')
        self.assertEqual(len(problems), 1)
        self.assertIn("cycle", problems[0])


class Sources(unittest.TestCase):
    GOOD = "/* SPDX-License-Identifier: Apache-2.0 */\n#pragma once\n"

    def test_good(self) -> None:
        text = self.GOOD + 'char *a = "http://x"; /* see http://y */\n'
        self.assertEqual(sources.check_file("pool/a.h", text), [])

    def test_each_rule(self) -> None:
        self.assertEqual(len(sources.check_file("pool/a.h", "#pragma once\n")), 1)
        self.assertEqual(len(sources.check_file("pool/a.h", self.GOOD + "int a; \n")), 1)
        self.assertEqual(len(sources.check_file("pool/a.h", self.GOOD + "int a; // b\n")), 1)
        self.assertEqual(len(sources.check_file("pool/a.h", self.GOOD + "\n" * 499)), 1)
        self.assertEqual(len(sources.check_file("pool/a.h", self.GOOD.replace("#pragma", "#x"))), 1)


class Links(unittest.TestCase):
    def check(self, text: str) -> list[str]:
        root = Path(__file__).resolve().parents[2]
        return links.check_text(root, root / "README.md", text)

    def test_good(self) -> None:
        good = (
            "[a](docs/DESIGN.md#x) pool/pool.c, tests/victims/NAME.c [b](https://x.org/pool/no.c)"
        )
        self.assertEqual(self.check(good), [])

    def test_dead(self) -> None:
        self.assertEqual(len(self.check("[a](docs/NONE.md)")), 2)
        self.assertEqual(len(self.check("see pool/no_such.c.")), 1)


class Tree(unittest.TestCase):
    def test_without_comments_keeps_lines(self) -> None:
        text = 'a /* b\n c */ "dlsym" // getenv\nd'
        blanked = tree.without_comments(text)
        self.assertEqual(blanked.count("\n"), 2)
        self.assertNotIn("dlsym", blanked)
        self.assertNotIn("getenv", blanked)

    def test_nothing_checked_is_a_failure(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tree.finish([], 0, "files"), 1)


if __name__ == "__main__":
    unittest.main()
