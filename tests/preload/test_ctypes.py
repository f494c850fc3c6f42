# SPDX-License-Identifier: Apache-2.0
"""Python programs that call CUDA by ctypes: the same answers, from several threads, and no hang."""

from __future__ import annotations

import re
import unittest

from harness import LIBZONE, PreloadTest, need_driver

# Device memory by the runtime, and the program's own virtual memory by the driver beside it.
PROGRAM = r"""
import ctypes, threading
driver = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL("libcudart.so.13")
DEVICE, HOST_NUMA, MIB = 1, 3, 1 << 20


class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int),
                ("id", ctypes.c_int), ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


def physical(place):
    handle = ctypes.c_ulonglong()
    prop = Prop(type=1, place=place)
    code = driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(2 * MIB), ctypes.byref(prop),
                              ctypes.c_ulonglong(0))
    return code or driver.cuMemRelease(handle)


def churn(number):
    for i in range(60):
        pointer = ctypes.c_void_p()
        codes.append(physical(DEVICE))
        codes.append(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096 << i % 11)))
        codes.append(runtime.cudaMemset(pointer, number, ctypes.c_size_t(4096)))
        codes.append(runtime.cudaFree(pointer))


codes = [runtime.cudaFree(None)]
print(driver.cuMemAlloc_v2(None, ctypes.c_size_t(16)), physical(HOST_NUMA), physical(77))
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(codes), set(codes))
"""


class Ctypes(PreloadTest):
    def test_same_answers(self) -> None:
        need_driver()
        command = ["/usr/bin/python3", "-c", PROGRAM]
        native = self.run_in(command, None, driver=True)
        zone = self.run_in(command, LIBZONE, driver=True)
        self.assertEqual((native.returncode, native.stderr), (0, ""))
        self.assertRegex(native.stdout, r"(?m)^961 \{0\}$")
        self.assertEqual((zone.returncode, zone.stdout), (0, native.stdout), zone.stderr)
        self.assertEqual(len(re.findall("in 240 allocations", zone.stderr)), 1, zone.stderr)
        self.assertIn("240 virtual memory", zone.stderr)


if __name__ == "__main__":
    unittest.main()
