# SPDX-License-Identifier: Apache-2.0
"""What zone doctor asks of the driver and the preload: a program of its own that prints JSON.

A broken driver may hang or crash whoever calls it; zone doctor starts this file in a child and
waits for a bounded time. It imports nothing of zonelib, so that any Python can run it by path.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

CUDA_SUCCESS = 0
# CUdevice_attribute
VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102
COMPUTE_MODE = 20
COMPUTE_MODE_NAMES = {0: "default", 2: "prohibited", 3: "exclusive process"}


class DlInfo(ctypes.Structure):
    """Dl_info of dladdr."""

    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


def file_of(address: int | None) -> str | None:
    """The file whose code is at the address."""
    if not address:
        return None
    info = DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(DlInfo)]
    if not dladdr(address, ctypes.byref(info)) or not info.dli_fname:
        return None
    return os.fsdecode(info.dli_fname)


def look_up(handle: int | None, name: str) -> int | None:
    """dlsym, the one that this process's own look-ups reach."""
    dlsym = ctypes.CDLL(None).dlsym
    dlsym.restype = ctypes.c_void_p
    dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return dlsym(handle, name.encode())


def preload() -> dict[str, Any]:
    """Under LD_PRELOAD: whose dlsym and cuMemAlloc_v2 does this process reach?"""
    found: dict[str, Any] = {
        "dlsym": file_of(ctypes.cast(ctypes.CDLL(None).dlsym, ctypes.c_void_p).value),
        "exported": file_of(look_up(None, "cuMemAlloc_v2")),
    }
    try:
        # ctypes opens with RTLD_LOCAL, like libcudart.
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        found["driver_error"] = str(error)
        return found
    found["resolved"] = file_of(look_up(cuda._handle, "cuMemAlloc_v2"))
    return found


def devices(cuda: ctypes.CDLL) -> list[dict[str, Any]]:
    """One entry for each device that the driver shows."""
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    result: list[dict[str, Any]] = []
    for ordinal in range(count.value):
        device = ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        total = ctypes.c_size_t()
        value = ctypes.c_int()
        entry: dict[str, Any] = {"ordinal": ordinal}
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) == CUDA_SUCCESS:
            cuda.cuDeviceGetName(name, len(name), device)
            cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
            entry |= {"name": name.value.decode(errors="replace"), "total_bytes": total.value}
            for key, attribute in (
                ("vmm", VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
                ("compute_mode", COMPUTE_MODE),
            ):
                if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
                    entry[key] = value.value
        result.append(entry)
    return result


def driver() -> dict[str, Any]:
    """Loads and starts the driver; creates no context and allocates nothing."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"load_error": str(error)}
    found: dict[str, Any] = {"path": file_of(look_up(cuda._handle, "cuInit"))}
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == CUDA_SUCCESS:
        found["cuda_version"] = version.value
    found["context_events"] = hasattr(cuda, "cuCtxRecordEvent")
    found["init"] = cuda.cuInit(0)
    if found["init"] == CUDA_SUCCESS:
        found["devices"] = devices(cuda)
    return found


if __name__ == "__main__":
    print(json.dumps({"driver": driver, "preload": preload}[sys.argv[1]]()))
